//! Whether the process may be sent traffic, and if not, why.

use std::fmt;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The store is not open yet.
    Opening,
    /// The process may be sent traffic.
    Ready,
    /// The store has not answered for long.
    StoreAway,
    /// The store answers, and commits have failed for long.
    CommitsFail,
    /// The process stops.
    Draining,
}

impl Readiness {
    /// Whether the process may be sent traffic.
    #[must_use]
    pub fn is_ready(self) -> bool {
        match self {
            Self::Ready => true,
            Self::Opening | Self::StoreAway | Self::CommitsFail | Self::Draining => false,
        }
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Opening => "not ready: the store is not open yet",
            Self::Ready => "ready",
            Self::StoreAway => "not ready: the store does not answer",
            Self::CommitsFail => "not ready: commits fail",
            Self::Draining => "not ready: draining",
        })
    }
}
