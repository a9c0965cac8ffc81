//! One public key, with the one algorithm that it is used with, and the check of a signature.
//!
//! The algorithm comes from the key, never from a token: so a token cannot choose how it is verified. A key that must
//! not or cannot be used is skipped with its reason, and the rest of its set is used.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm as EllipticAlgorithm,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;

/// The reason for which a key of a set is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Skipped {
    /// The JWK cannot be read, or its parts are no key.
    #[error("not a key that can be read")]
    Malformed,
    /// The type or the curve is not known here.
    #[error("of a type or curve that is not used")]
    Kind,
    /// `kty` is `oct`: whoever could verify could also sign.
    #[error("symmetric")]
    Symmetric,
    /// `use` is not `sig`.
    #[error("not for signatures, by its `use`")]
    Use,
    /// `key_ops` has no `verify`.
    #[error("not for verifying, by its `key_ops`")]
    Operations,
    /// `alg` is not taken, or does not fit the key.
    #[error("of an algorithm that is not used, or does not fit it")]
    Algorithm,
    /// An RSA key whose length is not 2,048 to 8,192 bits.
    #[error("an RSA key whose length is not 2048 to 8192 bits")]
    RsaLength,
    /// The private part stands beside the public one, for everybody to read.
    #[error("published with its private part")]
    Private,
    /// Another key of the set has the same id and algorithm: neither is used.
    #[error("another key has the same `kid` and algorithm")]
    Ambiguous,
}

/// The lengths of RSA keys that are used, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;

/// A signature algorithm of JWS (RFC 7518, RFC 8037) that is taken. There is no symmetric one, and no `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519; `EdDSA` and `Ed25519` (RFC 9864) name the same.
    EdDsa,
    /// RSA, PKCS#1 v1.5, with SHA-256.
    Rs256,
    /// RSA, PKCS#1 v1.5, with SHA-384.
    Rs384,
    /// RSA, PKCS#1 v1.5, with SHA-512.
    Rs512,
    /// RSA, PSS, with SHA-256.
    Ps256,
    /// RSA, PSS, with SHA-384.
    Ps384,
    /// RSA, PSS, with SHA-512.
    Ps512,
}

impl Algorithm {
    /// The algorithm of a name, if it is taken.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" | "Ed25519" => Self::EdDsa,
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            _ => return None,
        })
    }

    fn implementation(self) -> Implementation {
        match self {
            Self::Es256 => Implementation::Elliptic(&signature::ECDSA_P256_SHA256_FIXED),
            Self::Es384 => Implementation::Elliptic(&signature::ECDSA_P384_SHA384_FIXED),
            Self::EdDsa => Implementation::Elliptic(&signature::ED25519),
            Self::Rs256 => Implementation::Rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Implementation::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Implementation::Rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => Implementation::Rsa(&signature::RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => Implementation::Rsa(&signature::RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => Implementation::Rsa(&signature::RSA_PSS_2048_8192_SHA512),
        }
    }
}

enum Implementation {
    Elliptic(&'static dyn EllipticAlgorithm),
    Rsa(&'static RsaParameters),
}

/// A public key of an issuer, and the one algorithm that it verifies by.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    id: Option<Box<str>>,
    algorithm: Algorithm,
    /// The point of an elliptic curve, or the modulus of an RSA key.
    public: Vec<u8>,
    /// The exponent of an RSA key; else empty.
    exponent: Vec<u8>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("id", &self.id).field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// A JWK as RFC 7517 writes it, with the members that matter here.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<Box<str>>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    d: Option<IgnoredAny>,
}

impl Key {
    /// The key that a JWK describes.
    ///
    /// # Errors
    ///
    /// The reason for which the key is not used.
    pub fn from_jwk(jwk: &serde_json::Value) -> Result<Self, Skipped> {
        let jwk = Jwk::deserialize(jwk).map_err(|_| Skipped::Malformed)?;
        if jwk.usage.as_ref().is_some_and(|usage| usage != "sig") {
            return Err(Skipped::Use);
        }
        if jwk.key_ops.as_ref().is_some_and(|operations| operations.iter().all(|operation| operation != "verify")) {
            return Err(Skipped::Operations);
        }
        if jwk.d.is_some() {
            return Err(Skipped::Private);
        }
        let told = jwk.alg.as_deref().map(|alg| Algorithm::named(alg).ok_or(Skipped::Algorithm)).transpose()?;
        let (algorithm, public, exponent) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("EC", Some("P-256")) => (Algorithm::Es256, point(&jwk, 32)?, Vec::new()),
            ("EC", Some("P-384")) => (Algorithm::Es384, point(&jwk, 48)?, Vec::new()),
            ("OKP", Some("Ed25519")) => (Algorithm::EdDsa, exactly(jwk.x.as_deref(), 32)?, Vec::new()),
            ("RSA", _) => rsa(&jwk, told)?,
            ("oct", _) => return Err(Skipped::Symmetric),
            _ => return Err(Skipped::Kind),
        };
        if told.is_some_and(|told| told != algorithm) {
            return Err(Skipped::Algorithm);
        }
        Ok(Self { id: jwk.kid, algorithm, public, exponent })
    }

    /// The key's id, if it has one.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The one algorithm that the key is used with.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether the signature of the message was made with this key.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self.algorithm.implementation() {
            Implementation::Elliptic(algorithm) => {
                UnparsedPublicKey::new(algorithm, &self.public).verify(message, signature).is_ok()
            }
            Implementation::Rsa(parameters) => {
                let key = RsaPublicKeyComponents { n: &self.public, e: &self.exponent };
                key.verify(parameters, message, signature).is_ok()
            }
        }
    }
}

/// An uncompressed point, as SEC 1 writes it.
fn point(jwk: &Jwk, coordinate_bytes: usize) -> Result<Vec<u8>, Skipped> {
    let (x, y) = (exactly(jwk.x.as_deref(), coordinate_bytes)?, exactly(jwk.y.as_deref(), coordinate_bytes)?);
    Ok([[4].as_slice(), &x, &y].concat())
}

/// A modulus and an exponent. An RSA key that tells no algorithm is used with RS256, and with no other.
fn rsa(jwk: &Jwk, told: Option<Algorithm>) -> Result<(Algorithm, Vec<u8>, Vec<u8>), Skipped> {
    let algorithm = told.unwrap_or(Algorithm::Rs256);
    if matches!(algorithm.implementation(), Implementation::Elliptic(_)) {
        return Err(Skipped::Algorithm);
    }
    let (modulus, exponent) = (natural(jwk.n.as_deref())?, natural(jwk.e.as_deref())?);
    let bits = modulus.len() * 8 - modulus.first().map_or(0, |first| first.leading_zeros() as usize);
    if !RSA_BITS.contains(&bits) {
        return Err(Skipped::RsaLength);
    }
    // The exponents that the verifier takes: odd, from 3, and below 2^33.
    let value = exponent.iter().try_fold(0_u64, |value, byte| value.checked_mul(256)?.checked_add(u64::from(*byte)));
    match value {
        Some(3..=0x1_FFFF_FFFF) if is_odd(&exponent) && is_odd(&modulus) => Ok((algorithm, modulus, exponent)),
        Some(_) | None => Err(Skipped::Malformed),
    }
}

fn is_odd(natural: &[u8]) -> bool {
    natural.last().is_some_and(|last| last % 2 == 1)
}

/// A number without leading zeros, which some issuers write although they must not.
fn natural(text: Option<&str>) -> Result<Vec<u8>, Skipped> {
    let bytes = decoded(text)?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Ok(bytes[zeros..].to_vec())
}

fn exactly(text: Option<&str>, bytes: usize) -> Result<Vec<u8>, Skipped> {
    decoded(text).and_then(|decoded| if decoded.len() == bytes { Ok(decoded) } else { Err(Skipped::Malformed) })
}

fn decoded(text: Option<&str>) -> Result<Vec<u8>, Skipped> {
    text.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()).ok_or(Skipped::Malformed)
}
