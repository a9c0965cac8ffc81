//! The claims that every token must make, and what they prove once the signature holds.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Issuer, JwtRefused};
use crate::clock::Clock;
use crate::domain::Time;

/// The longest subject, in bytes. The longest of Kubernetes has 343.
const SUBJECT_BYTES_MAX: usize = 1_024;

/// What a token proved.
#[derive(Clone, PartialEq)]
pub struct Proof {
    /// The issuer that signed the token (`iss`).
    pub issuer: Arc<str>,
    /// The bearer, by the issuer's name for it (`sub`): not empty, and without control characters.
    pub subject: Arc<str>,
    /// The expiry (`exp`).
    pub expires_at: Time,
    /// The end of what the token permits: its expiry, and the leeway for clocks that differ.
    pub ends_at: Time,
    /// All claims of the token.
    pub claims: Map<String, Value>,
}

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut proof = f.debug_struct("Proof");
        proof.field("issuer", &self.issuer).field("subject", &self.subject).field("expires_at", &self.expires_at);
        proof.finish_non_exhaustive()
    }
}

/// What the token proves if its signature holds.
pub(super) fn prove(claims: Map<String, Value>, issuer: &Issuer, clock: &dyn Clock) -> Result<Proof, JwtRefused> {
    let leeway = i64::try_from(issuer.leeway.as_micros()).unwrap_or(i64::MAX);
    let expires_at = match claims.get("exp") {
        None | Some(Value::Null) => return Err(JwtRefused::NoExpiry),
        Some(exp) => seconds(exp).ok_or(JwtRefused::BadExpiry)?,
    };
    let ends_at = expires_at.plus_micros(leeway);
    if clock.now() >= ends_at {
        return Err(JwtRefused::Expired);
    }
    if let Some(not_before) = claims.get("nbf") {
        let not_before = seconds(not_before).ok_or(JwtRefused::BadNotBefore)?;
        if clock.latest().plus_micros(leeway) < not_before {
            return Err(JwtRefused::NotYetValid);
        }
    }
    audience(claims.get("aud"), &issuer.audience)?;
    let subject = claims
        .get("sub")
        .and_then(Value::as_str)
        .filter(|subject| (1..=SUBJECT_BYTES_MAX).contains(&subject.len()) && !subject.contains(char::is_control));
    let subject = subject.ok_or(JwtRefused::NoSubject)?.into();
    Ok(Proof { issuer: Arc::clone(&issuer.issuer), subject, expires_at, ends_at, claims })
}

/// Whether the claims name one of these audiences.
pub(super) fn is_for(claims: &Map<String, Value>, ours: &[String]) -> bool {
    audience(claims.get("aud"), ours).is_ok()
}

fn audience(claim: Option<&Value>, ours: &[String]) -> Result<(), JwtRefused> {
    let named = match claim {
        Some(Value::String(one)) => Some(vec![one.as_str()]),
        Some(Value::Array(several)) => several.iter().map(Value::as_str).collect::<Option<Vec<_>>>(),
        Some(_) | None => None,
    };
    match named.ok_or(JwtRefused::NoAudience)? {
        named if named.is_empty() => Err(JwtRefused::NoAudience),
        named if named.iter().any(|named| ours.iter().any(|ours| ours == named)) => Ok(()),
        _ => Err(JwtRefused::WrongAudience),
    }
}

/// A `NumericDate` of RFC 7519: seconds since 1970, which may have a fraction, that is dropped.
fn seconds(value: &Value) -> Option<Time> {
    let seconds = value.as_i64().or_else(|| value.as_f64().map(whole))?;
    Some(Time::from_micros(seconds.saturating_mul(1_000_000)))
}

#[expect(clippy::cast_possible_truncation, reason = "the cast of a float saturates, and times are held in their range")]
fn whole(seconds: f64) -> i64 {
    seconds.floor() as i64
}
