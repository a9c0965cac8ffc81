//! JSON Web Tokens of issuers that are trusted: who their bearer is, proven by the issuer's key.
//!
//! ```text
//! known (within 60 s) <- verified <- signature <- its turn <- key (waits where unknown) <- claims <- issuer <- form
//! ```
//!
//! The checks that cost the least come first, and no key is asked for on behalf of a token that would be refused
//! anyway. Nothing of a token is believed before its signature holds, except its issuer and its key's id, which choose
//! what to verify it with. A token appears in no error, log line or `Debug`.
//!
//! The tokens are verified with ring directly. The crate `jsonwebtoken` would add a provider of our own that is
//! installed process-wide and panics where it is missing, reads the machine's clock itself, takes a list of issuers in
//! one token, and leaves the checks of `crit`, `typ`, `aud` and of the key's algorithm to its caller.

mod claims;
mod issuer;
mod refused;
mod token;
mod verified;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value};
use thiserror::Error;

pub use claims::Proof;
pub(super) use issuer::{AUDIENCE, SERVICE_ACCOUNT};
pub use issuer::{Issuer, NoIssuer};
pub use refused::JwtRefused;
pub use token::{TOKEN_BYTES_MAX, has_form};

use super::jwks::Source;
use crate::clock::Clock;
use crate::fairness::{CallerKey, Turns};
use token::Token;
use verified::Verified;

/// The longest time that a token waits to be verified.
const TURN_WAIT_MAX: Duration = Duration::from_secs(1);

/// Verifies the tokens of some issuers, and knows those that it verified lately.
pub struct Jwts {
    issuers: Vec<Followed>,
    clock: Arc<dyn Clock>,
    verified: Verified,
    /// A signature costs more than a whole call, and anybody can send one that is wrong: half of the processors verify
    /// at most, and those who ask rarely come first.
    turns: Arc<Turns>,
}

struct Followed {
    issuer: Issuer,
    keys: Arc<Source>,
}

/// The reason for which issuers cannot be used together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadIssuers {
    /// Two issuers have one name.
    #[error("the issuer {0} is named twice")]
    Twice(Arc<str>),
    /// An issuer's tokens could be for anybody.
    #[error("the issuer {0} has no audience: every token of it would be refused")]
    NoAudience(Arc<str>),
}

impl std::fmt::Debug for Jwts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let issuers = self.issuers.iter().map(|followed| &followed.issuer).collect::<Vec<_>>();
        f.debug_struct("Jwts").field("issuers", &issuers).finish_non_exhaustive()
    }
}

impl Jwts {
    /// Tokens of these issuers are taken. Their keys are read once [`Jwts::follow`] runs.
    ///
    /// # Errors
    ///
    /// An issuer is named twice, or has no audience.
    pub fn new(issuers: Vec<Issuer>, clock: Arc<dyn Clock>) -> Result<Self, BadIssuers> {
        for (place, issuer) in issuers.iter().enumerate() {
            if issuer.audience.is_empty() {
                return Err(BadIssuers::NoAudience(Arc::clone(&issuer.issuer)));
            }
            if issuers[..place].iter().any(|other| other.issuer == issuer.issuer) {
                return Err(BadIssuers::Twice(Arc::clone(&issuer.issuer)));
            }
        }
        let followed = |issuer: Issuer| {
            let keys = Arc::new(Source::new(Arc::clone(&issuer.issuer), issuer.keys.clone()));
            Followed { issuer, keys }
        };
        let issuers = issuers.into_iter().map(followed).collect();
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Self { issuers, clock, verified: Verified::new(), turns: Turns::new((processors / 2).max(1)) })
    }

    /// Tokens of other issuers are taken, and those whose keys have the same place keep them.
    ///
    /// # Errors
    ///
    /// See [`Jwts::new`].
    pub fn renewed(&self, issuers: Vec<Issuer>) -> Result<Self, BadIssuers> {
        let mut renewed = Self::new(issuers, Arc::clone(&self.clock))?;
        for followed in &mut renewed.issuers {
            let same = |known: &&Followed| {
                known.issuer.issuer == followed.issuer.issuer && known.issuer.keys == followed.issuer.keys
            };
            if let Some(known) = self.issuers.iter().find(same) {
                followed.keys = Arc::clone(&known.keys);
            }
        }
        Ok(renewed)
    }

    /// The issuers whose tokens are taken.
    #[must_use]
    pub fn issuers(&self) -> impl ExactSizeIterator<Item = &Issuer> {
        self.issuers.iter().map(|followed| &followed.issuer)
    }

    /// Whether the token that proved this would still be taken for its issuer and its audience.
    #[must_use]
    pub fn takes(&self, proof: &Proof) -> bool {
        let issuer = self.issuers().find(|issuer| issuer.issuer == proof.issuer);
        issuer.is_some_and(|issuer| claims::is_for(&proof.claims, &issuer.audience))
    }

    /// The answer that is known without waiting: the token was verified within the last 60 s, with a key that is still
    /// its issuer's, and has not expired. It costs one SHA-256 of the token.
    #[must_use]
    pub fn known(&self, token: &[u8]) -> Option<Arc<Proof>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let generation = |issuer: usize| self.issuers[issuer].keys.generation();
        self.verified.get(&verified::digest(token), self.clock.now(), generation)
    }

    /// Verifies a token for a caller, whom only its connection tells from others. Waits, for 5 s at most, where the
    /// token's key is not known and its issuer may be asked, and for its turn.
    ///
    /// # Errors
    ///
    /// The reason for which the token is refused.
    pub async fn verify(&self, token: &[u8], caller: CallerKey) -> Result<Arc<Proof>, JwtRefused> {
        if let Some(proof) = self.known(token) {
            return Ok(proof);
        }
        let Token { algorithm, key_id, claims, signed, signature } = Token::parse(token)?;
        let (place, followed) = self.issuer_of(&claims)?;
        // The claims are checked first, and are not kept while the token waits: they take far more memory than it.
        let _unproven = claims::prove(claims, &followed.issuer, &*self.clock)?;
        let (key, generation) = followed.keys.key(key_id.as_deref(), algorithm).await?;
        let _turn = self.turns.turn(caller, TURN_WAIT_MAX).await.map_err(|_waited| JwtRefused::Busy)?;
        // Calls that came with one new token at once: the first has verified it.
        if let Some(proof) = self.known(token) {
            return Ok(proof);
        }
        if !key.verifies(signed, &signature) {
            return Err(JwtRefused::Signature);
        }
        let proof = Arc::new(claims::prove(Token::parse(token)?.claims, &followed.issuer, &*self.clock)?);
        self.verified.insert(token, Arc::clone(&proof), place, generation);
        Ok(proof)
    }

    /// Keeps the keys of all issuers fresh, for ever.
    pub async fn follow(&self) -> Infallible {
        join_all(self.issuers.iter().map(|followed| followed.keys.follow())).await;
        // Without issuers there is nothing to follow.
        std::future::pending().await
    }

    /// Waits until the keys of each issuer were looked for once, with or without success. [`Jwts::follow`] must run.
    pub async fn looked(&self) {
        join_all(self.issuers.iter().map(|followed| followed.keys.looked(1))).await;
    }

    /// The time since the keys of each issuer were last read, or have been looked for in vain.
    pub fn key_ages(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.issuers.iter().map(|followed| (&*followed.issuer.issuer, followed.keys.age()))
    }

    fn issuer_of(&self, claims: &Map<String, Value>) -> Result<(usize, &Followed), JwtRefused> {
        let name = issuer::named_in(claims)?;
        let mut issuers = self.issuers.iter().enumerate();
        issuers.find(|(_, followed)| *followed.issuer.issuer == *name).ok_or(JwtRefused::UnknownIssuer)
    }
}
