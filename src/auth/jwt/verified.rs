//! The tokens that were verified lately, by their digests. A token that was refused is never among them: a flood of bad
//! tokens evicts nothing.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use ring::digest as ring_digest;
use serde_json::Value;
use tokio::time::Instant;

use super::Proof;
use crate::domain::Time;

/// The longest time for which a token is known without being verified again.
const FRESH_FOR: Duration = Duration::from_mins(1);
/// The most tokens that are known.
const TOKENS_MAX: usize = 4_096;
/// The most bytes of the proofs that are known, roughly: 4 KiB for each of [`TOKENS_MAX`].
const BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The part of [`BYTES_MAX`] that a token takes at least, so that there are never more than [`TOKENS_MAX`].
const TOKEN_BYTES_MIN: u64 = BYTES_MAX / TOKENS_MAX as u64;

type Digest = [u8; 32];

#[derive(Clone)]
struct Entry {
    proof: Arc<Proof>,
    /// The issuer, and the generation of its keys by which the token was verified. When the keys change, the entry is
    /// as good as gone; so a verification that overlapped the change cannot bring an old answer back.
    issuer: usize,
    generation: u64,
    fresh_until: Instant,
    bytes: u64,
}

#[derive(Clone, Copy)]
struct Bytes;

impl Weighter<Digest, Entry> for Bytes {
    fn weight(&self, _digest: &Digest, entry: &Entry) -> u64 {
        TOKEN_BYTES_MIN.max(entry.bytes)
    }
}

type Entries = Cache<Digest, Entry, Bytes, DefaultHashBuilder, DefaultLifecycle<Digest, Entry>>;

pub(super) struct Verified {
    entries: Entries,
}

impl Verified {
    pub(super) fn new() -> Self {
        let mut options = OptionsBuilder::new();
        options.estimated_items_capacity(TOKENS_MAX).weight_capacity(BYTES_MAX).shards(4);
        let options = options.build().expect("both capacities are given");
        let entries = Cache::with_options(options, Bytes, DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self { entries }
    }

    /// The proof of a token that is known, that has not expired, and whose issuer has the same keys as then.
    pub(super) fn get(
        &self,
        digest: &Digest,
        now: Time,
        generation: impl Fn(usize) -> Option<u64>,
    ) -> Option<Arc<Proof>> {
        let entry = self.entries.get(digest)?;
        let holds = now < entry.proof.expires_at
            && Instant::now() < entry.fresh_until
            && generation(entry.issuer) == Some(entry.generation);
        if !holds {
            let _gone = self.entries.remove_if(digest, |other| other.fresh_until == entry.fresh_until);
        }
        holds.then_some(entry.proof)
    }

    /// Remembers a token that was verified.
    pub(super) fn insert(&self, token: &[u8], proof: Arc<Proof>, issuer: usize, generation: u64) {
        let fresh_until = Instant::now() + FRESH_FOR;
        let bytes = proof.claims.iter().map(|(name, value)| name.len() as u64 + bytes(value)).sum();
        let entry = Entry { proof, issuer, generation, fresh_until, bytes };
        self.entries.insert(digest(token), entry);
    }
}

/// The memory of a claim, roughly. A list of small numbers takes 30 times the length of its text.
fn bytes(value: &Value) -> u64 {
    const VALUE: u64 = 64;
    VALUE
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len() as u64,
            Value::Array(values) => values.iter().map(bytes).sum(),
            Value::Object(members) => members.iter().map(|(name, value)| name.len() as u64 + bytes(value)).sum(),
        }
}

/// The name under which a token is known.
pub(super) fn digest(token: &[u8]) -> Digest {
    let digest = ring_digest::digest(&ring_digest::SHA256, token);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(numbers: usize) -> Arc<Proof> {
        let (expires_at, ends_at) = (Time::from_micros(1), Time::from_micros(2));
        let claims = [("a".to_owned(), vec![0; numbers].into())].into_iter().collect();
        Arc::new(Proof { issuer: "i".into(), subject: "s".into(), expires_at, ends_at, claims })
    }

    #[tokio::test]
    async fn the_tokens_that_are_known_are_bounded_in_number_and_in_bytes() {
        let verified = Verified::new();
        for (numbers, at_least) in [(1, 2_000), (3_000, 60)] {
            for token in 0..6_000_u32 {
                verified.insert(&token.to_be_bytes(), proof(numbers), 0, 1);
            }
            let len = verified.entries.len();
            assert!((at_least..=TOKENS_MAX).contains(&len), "{len}");
            assert!(verified.entries.weight() <= BYTES_MAX);
        }
    }
}
