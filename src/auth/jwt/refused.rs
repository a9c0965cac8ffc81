//! The reasons for which a token is refused. Each has a fixed text, which tells nothing of the token.

use thiserror::Error;

use super::super::jwks::Missing;

/// The reason for which a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum JwtRefused {
    /// The token has more than 8 KiB.
    #[error("the token is larger than 8 KiB")]
    TooLarge,
    /// The token is not three parts of base64url, of which two are JSON objects.
    #[error("the token is malformed")]
    Malformed,
    /// The token is encrypted (JWE).
    #[error("the token is encrypted: only signed tokens are taken")]
    Encrypted,
    /// `typ` names another use of JWTs: a logout token, a proof of possession.
    #[error("the token's typ is not JWT or at+jwt")]
    Type,
    /// The token has a header `crit`: an extension must be understood, and none is.
    #[error("the token has critical extensions, which are not understood")]
    Critical,
    /// `alg` is `none`, in any spelling.
    #[error("the token is not signed")]
    Unsigned,
    /// `alg` is symmetric: whoever could verify could also sign.
    #[error("the token's algorithm is symmetric")]
    SymmetricAlgorithm,
    /// `alg` is no algorithm that is known here.
    #[error("the token's algorithm is not taken")]
    UnknownAlgorithm,
    /// The key is for another algorithm than the token names.
    #[error("the token's algorithm is not its key's")]
    WrongAlgorithm,
    /// `iss` is missing, or is no text.
    #[error("the token has no issuer")]
    NoIssuer,
    /// `iss` is `kubernetes/serviceaccount`: such tokens never expire.
    #[error("a legacy Kubernetes service account token, which never expires: project one with an audience")]
    LegacyServiceAccount,
    /// No such issuer is trusted.
    #[error("the token's issuer is not trusted")]
    UnknownIssuer,
    /// `aud` is missing, or is neither a text nor a list of texts.
    #[error("the token has no audience")]
    NoAudience,
    /// `aud` names others.
    #[error("the token is for another audience")]
    WrongAudience,
    /// `sub` is missing, or is no text that can name somebody.
    #[error("the token has no subject that can be used")]
    NoSubject,
    /// `exp` is missing.
    #[error("the token has no expiry")]
    NoExpiry,
    /// `exp` is no number.
    #[error("the token's expiry is not a number")]
    BadExpiry,
    /// `exp` has passed.
    #[error("the token has expired")]
    Expired,
    /// `nbf` is no number.
    #[error("the token's nbf is not a number")]
    BadNotBefore,
    /// `nbf` is to come.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// The issuer has no key of this id, as far as it was asked lately.
    #[error("the token's key is not one of its issuer's")]
    UnknownKey,
    /// The token names no key, and several of its issuer's have its algorithm.
    #[error("the token names no key, and several keys of its issuer have its algorithm")]
    AmbiguousKey,
    /// The signature was not made with the key.
    #[error("the token's signature does not hold")]
    Signature,
    /// The issuer's keys could not be read, and the token's is not among those that are known.
    #[error("the keys of the token's issuer cannot be read now")]
    KeysUnavailable,
    /// Too many tokens wait to be verified.
    #[error("too many tokens wait to be verified")]
    Busy,
}

impl JwtRefused {
    /// The name for programs, which never changes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TooLarge => "TOO_LARGE",
            Self::Malformed => "MALFORMED",
            Self::Encrypted => "ENCRYPTED",
            Self::Type => "TYPE",
            Self::Critical => "CRITICAL_EXTENSION",
            Self::Unsigned => "UNSIGNED",
            Self::SymmetricAlgorithm => "SYMMETRIC_ALGORITHM",
            Self::UnknownAlgorithm => "UNKNOWN_ALGORITHM",
            Self::WrongAlgorithm => "WRONG_ALGORITHM",
            Self::NoIssuer => "NO_ISSUER",
            Self::LegacyServiceAccount => "LEGACY_SERVICE_ACCOUNT",
            Self::UnknownIssuer => "UNKNOWN_ISSUER",
            Self::NoAudience => "NO_AUDIENCE",
            Self::WrongAudience => "WRONG_AUDIENCE",
            Self::NoSubject => "NO_SUBJECT",
            Self::NoExpiry => "NO_EXPIRY",
            Self::BadExpiry => "BAD_EXPIRY",
            Self::Expired => "EXPIRED",
            Self::BadNotBefore => "BAD_NOT_BEFORE",
            Self::NotYetValid => "NOT_YET_VALID",
            Self::UnknownKey => "UNKNOWN_KEY",
            Self::AmbiguousKey => "AMBIGUOUS_KEY",
            Self::Signature => "SIGNATURE",
            Self::KeysUnavailable => "KEYS_UNAVAILABLE",
            Self::Busy => "BUSY",
        }
    }
}

impl From<Missing> for JwtRefused {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Unknown => Self::UnknownKey,
            Missing::OtherAlgorithm => Self::WrongAlgorithm,
            Missing::Ambiguous => Self::AmbiguousKey,
            Missing::Unavailable => Self::KeysUnavailable,
            Missing::Busy => Self::Busy,
        }
    }
}
