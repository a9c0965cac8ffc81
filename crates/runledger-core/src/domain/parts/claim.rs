//! What a claim states, and what is remembered of it.

use serde::Serialize;

use crate::domain::{LeaseEpoch, Namespace, RunKey};

/// A claim's limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MaxRunning {
    /// The label's key. A run without it is not limited.
    pub label: String,
    /// The number of runs with the same value of the label that may be running, this one included.
    pub limit: u32,
}

/// Which runs a claimer takes. All take those that are ready because a claim of theirs was not begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Take {
    /// Those that are pending.
    #[default]
    Pending,
    /// Those that were suspended and are ready to go on.
    Ready,
    Both,
}

impl Take {
    /// The name, of what is not the default.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Pending => None,
            Self::Ready => Some("READY"),
            Self::Both => Some("BOTH"),
        }
    }
}

/// A claim that was made under a `request_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The run that was claimed.
    pub key: RunKey,
    /// The epoch of the lease that was granted.
    pub epoch: LeaseEpoch,
    /// The digest of the request: see [`Request::digest`](crate::domain::Request::digest).
    pub digest: [u8; 32],
    /// The number of repetitions of the request that were answered with this claim.
    pub replays: u64,
}

/// The key of a claimer's request: its namespace and its id.
pub type ClaimKey = (Namespace, String);
