//! What is taken and what is refused, with real signatures, files and servers.

mod clusters;
mod floods;
mod forms;
mod key_server;
mod keys;
mod rotation;
mod served;
mod signing;

use std::ops::Deref;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Issuer, JwtRefused, Jwts, Proof};
use crate::auth::jwks::KeySource;
use crate::clock::Clock;
use crate::domain::Time;
use crate::fairness::{CallerKey, Turns};

/// The issuer of most tokens here.
const ISSUER: &str = "https://issuer.example";
/// The time at which a test begins, in seconds.
const BEGIN: i64 = 1_800_000_000;

/// A clock that moves with tokio's, which a test can pause and advance.
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Time {
        Time::from_micros(BEGIN * 1_000_000).plus_ms(u64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
}

/// `Jwts` whose keys are followed until it is dropped.
struct Following {
    jwts: Arc<Jwts>,
    _task: JoinSet<()>,
}

impl Deref for Following {
    type Target = Jwts;

    fn deref(&self) -> &Jwts {
        &self.jwts
    }
}

impl Following {
    async fn verify(&self, token: &[u8]) -> Result<Arc<Proof>, JwtRefused> {
        self.jwts.verify(token, CallerKey::new(1, None)).await
    }
}

/// Follows the keys of some issuers.
fn follow(issuers: Vec<Issuer>) -> Following {
    follow_by(issuers, None)
}

/// The same, with turns of the test's own.
fn follow_by(issuers: Vec<Issuer>, turns: Option<Arc<Turns>>) -> Following {
    let mut jwts = Jwts::new(issuers, Arc::new(TokioClock(Instant::now()))).unwrap();
    jwts.turns = turns.unwrap_or(jwts.turns);
    let jwts = Arc::new(jwts);
    let mut task = JoinSet::new();
    let followed = Arc::clone(&jwts);
    task.spawn(async move { match followed.follow().await {} });
    Following { jwts, _task: task }
}

/// The issuer with keys at a place.
fn issuer(keys: KeySource) -> Issuer {
    Issuer::new(ISSUER, vec!["runledger".into()], keys)
}

/// Claims that are good for ten minutes.
fn claims() -> Value {
    json!({ "iss": ISSUER, "sub": "somebody", "aud": "runledger", "exp": BEGIN + 600 })
}

/// Claims that are good but for these members: null takes a member away.
fn claims_with(members: &Value) -> Value {
    let mut claims = claims();
    for (name, value) in members.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}
