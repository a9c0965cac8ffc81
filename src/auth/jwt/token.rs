//! A token, taken apart: its header is checked, its claims are read, and nothing of it is proven.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::super::jwks::Algorithm;
use super::JwtRefused;

/// The largest token that is read, in bytes.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Whether a bearer token is meant as a JWT, and so is none of a token file: it begins as a JSON object does in base64,
/// and has parts. The bytes up to the first dot are looked at.
#[must_use]
pub fn has_form(token: &[u8]) -> bool {
    token.starts_with(b"ey") && token.contains(&b'.')
}

/// A token whose header may be taken. There is no `Debug`: a token is a secret.
pub(super) struct Token<'a> {
    /// The algorithm that the token says it is signed with. It chooses nothing: it must be the key's.
    pub(super) algorithm: Algorithm,
    /// The id of the key that the token says it is signed with.
    pub(super) key_id: Option<String>,
    /// The claims, unproven.
    pub(super) claims: Map<String, Value>,
    /// The bytes that are signed.
    pub(super) signed: &'a [u8],
    pub(super) signature: Vec<u8>,
}

/// The header of RFC 7515. A member that comes twice makes it malformed. Keys that it holds or links to (`jwk`, `jku`,
/// `x5c`, `x5u`) are never used: the token would say itself what it is verified with.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<IgnoredAny>,
    enc: Option<IgnoredAny>,
}

impl<'a> Token<'a> {
    pub(super) fn parse(token: &'a [u8]) -> Result<Self, JwtRefused> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(JwtRefused::TooLarge);
        }
        let [header, claims, signature] = parts(token).ok_or(JwtRefused::Malformed)?;
        let signed = &token[..header.len() + 1 + claims.len()];
        let header: Header = json(header)?;
        let algorithm = algorithm(&header)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwtRefused::Malformed)?;
        Ok(Self { algorithm, key_id: header.kid, claims: json(claims)?, signed, signature })
    }
}

fn algorithm(header: &Header) -> Result<Algorithm, JwtRefused> {
    let typ = header.typ.as_deref().map(str::to_ascii_lowercase);
    let typ = typ.as_deref().map(|typ| typ.strip_prefix("application/").unwrap_or(typ));
    if header.enc.is_some() || typ == Some("jwe") {
        return Err(JwtRefused::Encrypted);
    }
    if !matches!(typ, None | Some("jwt" | "at+jwt")) {
        return Err(JwtRefused::Type);
    }
    if header.crit.is_some() {
        return Err(JwtRefused::Critical);
    }
    match header.alg.as_str() {
        "HS256" | "HS384" | "HS512" => Err(JwtRefused::SymmetricAlgorithm),
        name if name.is_empty() || name.eq_ignore_ascii_case("none") => Err(JwtRefused::Unsigned),
        name => Algorithm::named(name).ok_or(JwtRefused::UnknownAlgorithm),
    }
}

fn parts(token: &[u8]) -> Option<[&[u8]; 3]> {
    let mut parts = token.split(|byte| *byte == b'.');
    let three = [parts.next()?, parts.next()?, parts.next()?];
    parts.next().is_none().then_some(three)
}

fn json<T: for<'de> Deserialize<'de>>(part: &[u8]) -> Result<T, JwtRefused> {
    let text = URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtRefused::Malformed)?;
    serde_json::from_slice(&text).map_err(|_| JwtRefused::Malformed)
}
