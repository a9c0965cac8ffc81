//! The reasons for which a call does not pass.

use crate::auth::jwt::JwtRefused;
use crate::auth::names::Names;
use crate::auth::{Access, Grants, Lacking};
use crate::domain::Violation;

/// A call that does not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The call has no credential.
    NoCredential,
    /// The call's credential is not good.
    BadCredential(BadCredential),
    /// The call's credential may be good: the keys of its issuer cannot be read now.
    KeysUnavailable,
    /// The call's credential may be good: too many wait to be verified.
    Busy,
    /// The port has no such method.
    UnknownMethod,
    /// Headers that break their rules.
    Headers(Vec<Violation>),
    /// Nothing was granted to the caller in the namespace, which may not even exist.
    Namespace,
    /// No role of the caller's allows the call.
    Role(Access),
    /// The caller may not act as an agent.
    Agent {
        /// The agent that it named; none: it must name one of its own.
        named: Option<String>,
        /// The agents as which it may act, as far as they are shown.
        own: String,
    },
}

/// What is wrong with a credential. Each has a name for programs, which never changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCredential {
    /// Not one `authorization` header with a bearer token.
    #[error("the authorization header must come once, as `Bearer TOKEN`")]
    Malformed,
    /// The server takes no credentials of this kind.
    #[error("this server takes no credentials of this kind")]
    NotTaken,
    /// Nobody is known by the credential.
    #[error("nobody is known by it here")]
    Unknown,
    /// The credential's time is over.
    #[error("its time is over")]
    Expired,
    /// Nobody is known by the client certificate, by its name.
    #[error(
        "nobody is known here by the client certificate `{0}`: it takes a [[certificate]] of that name in the access file"
    )]
    UnknownCertificate(String),
    /// The token may be good, and nobody is known by the certificate of its connection, by its name.
    #[error(
        "nobody is known here by the client certificate `{0}` of the connection, whatever the token is: it takes a \
         [[certificate]] of that name in the access file, or a connection without it"
    )]
    Certificate(String),
    /// A signed token is refused.
    #[error("{0}")]
    Jwt(JwtRefused),
}

impl BadCredential {
    /// The name for programs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Malformed => "MALFORMED",
            Self::NotTaken => "NOT_TAKEN",
            Self::Unknown | Self::UnknownCertificate(_) => "UNKNOWN",
            Self::Expired => "EXPIRED",
            Self::Certificate(_) => "CERTIFICATE",
            Self::Jwt(refused) => refused.name(),
        }
    }

    /// The client certificate that is not good, by its name.
    #[must_use]
    pub fn certificate(&self) -> Option<&str> {
        match self {
            Self::UnknownCertificate(name) | Self::Certificate(name) => Some(name),
            Self::Malformed | Self::NotTaken | Self::Unknown | Self::Expired | Self::Jwt(_) => None,
        }
    }
}

impl From<BadCredential> for Denied {
    fn from(bad: BadCredential) -> Self {
        Self::BadCredential(bad)
    }
}

impl From<JwtRefused> for Denied {
    fn from(refused: JwtRefused) -> Self {
        if refused == JwtRefused::KeysUnavailable {
            Self::KeysUnavailable
        } else if refused == JwtRefused::Busy {
            Self::Busy
        } else {
            BadCredential::Jwt(refused).into()
        }
    }
}

impl Denied {
    pub(super) fn lacking(lacking: Lacking, access: Access, names: &Names, grants: &Grants) -> Self {
        match lacking {
            Lacking::Namespace => Self::Namespace,
            Lacking::Role(access) => Self::Role(access),
            Lacking::Agent => Self::Agent { named: names.agent.clone(), own: grants.agents(access, &names.namespace) },
        }
    }
}
