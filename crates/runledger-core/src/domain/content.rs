//! Contents: what a run was given, and what came of it. They are JSON objects, which stand beside the run: the run and its
//! events have their [`ContentDigest`] alone.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::Metadata;

/// A SHA-256. Its text is 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash([u8; 32]);

impl Hash {
    /// The hash of some bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The hash that a text names; none where it names none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let mut hash = [0; 32];
        if digits.len() != 2 * hash.len() {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| match digit {
                b'0'..=b'9' => Some(digit - b'0'),
                b'a'..=b'f' => Some(digit - b'a' + 10),
                _ => None,
            };
            *byte = 16 * digit(pair[0])? + digit(pair[1])?;
        }
        Some(Self(hash))
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Hash {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> Self {
        let mut text = Self::with_capacity(64);
        write!(text, "{hash}").expect("a string takes everything");
        text
    }
}

impl TryFrom<String> for Hash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("no SHA-256: 64 lower-case hexadecimal digits")
    }
}

/// What the run and its events have of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContentDigest {
    /// The bytes of its text.
    pub bytes: u64,
    /// The SHA-256 of its text.
    pub sha256: Hash,
}

impl ContentDigest {
    /// The digest of a content's text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { bytes: text.len() as u64, sha256: Hash::new(text.as_bytes()) }
    }
}

/// A JSON object as its one text: compact, keys sorted, numbers as [`Metadata`] has them. Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    text: Arc<str>,
    digest: ContentDigest,
}

impl Content {
    /// The text, compact JSON.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    #[must_use]
    pub fn object(&self) -> Metadata {
        serde_json::from_str(&self.text).expect("the text was made from an object")
    }

    #[must_use]
    pub fn digest(&self) -> ContentDigest {
        self.digest
    }

    pub(super) fn weight(&self) -> usize {
        self.text.len()
    }
}

/// A content is in a request's digest by its own digest.
impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.digest.serialize(serializer)
    }
}

impl From<&Metadata> for Content {
    fn from(object: &Metadata) -> Self {
        let text: Arc<str> = serde_json::to_string(object).expect("keys are strings").into();
        Self { digest: ContentDigest::new(&text), text }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_objects_have_one_text_and_one_digest() {
        let read = |text: &str| Content::from(&serde_json::from_str::<Metadata>(text).unwrap());
        let (one, other) = (read(r#"{"b":1.0,"a":[-0.0]}"#), read(r#"{"a":[0],"b":1}"#));
        assert_eq!(one, other);
        assert_eq!(one.text(), r#"{"a":[0],"b":1}"#);
        assert_eq!(one.digest().bytes, 15);
    }

    #[test]
    fn a_hash_is_its_text() {
        let hash = Hash::new(b"");
        assert_eq!(hash.to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(Hash::parse(&hash.to_string()), Some(hash));
        assert_eq!(serde_json::from_value::<Hash>(json!(hash.to_string())).unwrap(), hash);
        for wrong in ["", "E3", &"g".repeat(64), &"A".repeat(64), &"é".repeat(32)] {
            assert_eq!(Hash::parse(wrong), None, "{wrong}");
        }
    }
}
