//! The usable keys of one issuer, as one document told them.

use std::sync::Arc;

use ring::digest;
use serde::Deserialize;
use thiserror::Error;

use super::{Algorithm, Key, Skipped};

/// The keys of one JWKS that may be used.
#[derive(Debug)]
pub struct KeySet {
    keys: Vec<Arc<Key>>,
    skipped: Vec<Skipped>,
    digest: [u8; 32],
}

/// The reason for which a document is not taken as a set of keys.
#[derive(Debug, Error)]
pub enum BadKeySet {
    /// The document is no JWKS.
    #[error("not a JSON object with an array `keys`")]
    Malformed(#[source] serde_json::Error),
    /// No key of the set may be used.
    #[error("the set has no key that may be used, of {keys}; the first is {}", first_reason(.skipped))]
    NoUsableKey {
        /// The number of keys in the document.
        keys: usize,
        /// The reasons.
        skipped: Vec<Skipped>,
    },
}

fn first_reason(skipped: &[Skipped]) -> String {
    skipped.first().map_or_else(|| "missing".to_owned(), ToString::to_string)
}

/// The outcome of a search for a key.
#[derive(Debug)]
pub enum KeySearch {
    Key(Arc<Key>),
    /// No key has this id; or, where no id was told, no key has this algorithm.
    Unknown,
    /// The key of this id is for another algorithm.
    OtherAlgorithm,
    /// No id was told, and several keys have the algorithm.
    Ambiguous,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<serde_json::Value>,
}

impl KeySet {
    /// The set that a document holds.
    ///
    /// # Errors
    ///
    /// The document is no JWKS, or none of its keys may be used.
    pub fn parse(json: &[u8]) -> Result<Self, BadKeySet> {
        let jwks: Jwks = serde_json::from_slice(json).map_err(BadKeySet::Malformed)?;
        let told = jwks.keys.len();
        let (mut keys, mut skipped) = (Vec::<Arc<Key>>::new(), Vec::new());
        for jwk in &jwks.keys {
            match Key::from_jwk(jwk) {
                // The same key, told twice, is one.
                Ok(key) if keys.iter().any(|other| **other == key) => {}
                Ok(key) => keys.push(Arc::new(key)),
                Err(reason) => skipped.push(reason),
            }
        }
        let is_clear = |key: &Arc<Key>| keys.iter().filter(|other| same_name(key, other)).count() == 1;
        let (clear, ambiguous): (Vec<_>, Vec<_>) = keys.iter().cloned().partition(is_clear);
        skipped.extend(ambiguous.iter().map(|_| Skipped::Ambiguous));
        if clear.is_empty() {
            return Err(BadKeySet::NoUsableKey { keys: told, skipped });
        }
        Ok(Self { keys: clear, skipped, digest: digest_of(json) })
    }

    /// Whether the set was read from exactly this document.
    #[must_use]
    pub fn is_from(&self, json: &[u8]) -> bool {
        self.digest == digest_of(json)
    }

    /// The keys that may be used.
    #[must_use]
    pub fn keys(&self) -> &[Arc<Key>] {
        &self.keys
    }

    /// The reasons for which other keys of the document are not used.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// The key of an id and an algorithm. Without an id, the algorithm must tell one key: two of them are not tried one
    /// after the other, as a token would then cost as many verifications as the set has keys.
    #[must_use]
    pub fn find(&self, id: Option<&str>, algorithm: Algorithm) -> KeySearch {
        let mut named = self.keys.iter().filter(|key| id.is_none() || key.id() == id).peekable();
        if named.peek().is_none() {
            return KeySearch::Unknown;
        }
        let mut fitting = named.filter(|key| key.algorithm() == algorithm);
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => KeySearch::Key(Arc::clone(key)),
            (Some(_), Some(_)) => KeySearch::Ambiguous,
            (None, _) if id.is_none() => KeySearch::Unknown,
            (None, _) => KeySearch::OtherAlgorithm,
        }
    }
}

/// Whether two keys are told apart by nothing that a token names. Keys without an id are told apart by no name at all,
/// and [`KeySet::find`] refuses where that matters.
fn same_name(key: &Key, other: &Key) -> bool {
    key == other || (key.id().is_some() && key.id() == other.id() && key.algorithm() == other.algorithm())
}

fn digest_of(json: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, json);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}
