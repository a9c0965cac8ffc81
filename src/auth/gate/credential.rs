//! The credential that comes with a call.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::super::jwt::{Proof, has_form};
use super::super::token::{CREDENTIAL_BYTES_MAX, TokenHash};
use super::{BadCredential, Certificate};

/// The credential of a call.
pub(super) enum Credential {
    /// A token of the access file, of which only the hash is kept.
    Token(TokenHash),
    /// A signed token, by what it has proven.
    Jwt(Arc<Proof>),
    /// A client certificate.
    Certificate { name: String, issuer: String },
}

impl Credential {
    fn new(certificate: Certificate<'_>) -> Self {
        Self::Certificate { name: certificate.name.to_owned(), issuer: certificate.issuer.to_owned() }
    }

    /// The certificate of the connection, where this is a token and comes with one.
    pub(super) fn beside(&self, certificate: Option<Certificate<'_>>) -> Option<Self> {
        match self {
            Self::Token(_) | Self::Jwt(_) => certificate.map(Self::new),
            Self::Certificate { .. } => None,
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token(_) => "Credential::Token",
            Self::Jwt(_) => "Credential::Jwt",
            Self::Certificate { .. } => "Credential::Certificate",
        })
    }
}

/// What a call shows.
pub(super) enum ShownCredential<'a> {
    Credential(Credential),
    /// A signed token, which has proven nothing yet.
    Jwt(&'a [u8]),
}

impl<'a> ShownCredential<'a> {
    /// What a call shows, if it shows anything. A token names the caller, also on a connection with a certificate, which
    /// [must be good as well](Credential::beside).
    pub(super) fn of(
        headers: &'a HeaderMap,
        certificate: Option<Certificate<'_>>,
    ) -> Result<Option<Self>, BadCredential> {
        let Some(token) = bearer(headers)? else {
            return Ok(certificate.map(Credential::new).map(Self::Credential));
        };
        Ok(Some(if has_form(token) {
            Self::Jwt(token)
        } else {
            Self::Credential(Credential::Token(TokenHash::new(token)))
        }))
    }
}

/// The bearer token, if there is one.
fn bearer(headers: &HeaderMap) -> Result<Option<&[u8]>, BadCredential> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let value = value.as_bytes();
    let (scheme, token) = value.split_at_checked(7).ok_or(BadCredential::Malformed)?;
    let is_one = values.next().is_none() && scheme.eq_ignore_ascii_case(b"bearer ");
    let token = token.trim_ascii();
    if !is_one || token.is_empty() || token.len() > CREDENTIAL_BYTES_MAX {
        return Err(BadCredential::Malformed);
    }
    Ok(Some(token))
}
