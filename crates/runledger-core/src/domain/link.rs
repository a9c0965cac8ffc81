//! Links: what belongs to a run and is kept elsewhere, such as an artifact or a receipt.

use serde::{Deserialize, Serialize};

use super::Hash;
use super::limits::LINK_REL_BYTES_MAX;

/// A link of a run. A run has one with the same (`rel`, `target`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Link {
    /// What the target is to the run: `evidence`, `artifact` and so on.
    pub rel: String,
    /// Where it is.
    pub target: String,
    /// The SHA-256 of what is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Hash>,
    /// The media type of what is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// What it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

impl Link {
    /// The key by which a link of a run is told from its others.
    #[must_use]
    pub fn key(&self) -> Hash {
        // No rel has a zero byte.
        Hash::new([self.rel.as_bytes(), b"\0", self.target.as_bytes()].concat().as_slice())
    }

    /// Its text in the store: JSON.
    ///
    /// # Panics
    ///
    /// Never.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("strings serialize")
    }

    /// Whether a text may be a `rel`: 1 to 64 characters of `[a-z0-9_.-]`, a lower-case letter first.
    #[must_use]
    pub fn is_rel(text: &str) -> bool {
        let charset = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte);
        (1..=LINK_REL_BYTES_MAX).contains(&text.len())
            && text.bytes().all(charset)
            && text.as_bytes()[0].is_ascii_lowercase()
    }

    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let more = [&self.media_type, &self.summary];
        self.rel.len() + self.target.len() + more.into_iter().flatten().map(String::len).sum::<usize>()
    }

    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.text_bytes()
    }
}
