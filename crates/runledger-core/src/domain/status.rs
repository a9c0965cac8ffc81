//! A run's lifecycle state, and the matrix of transitions.
//!
//! Invariant: no event changes the status of a run that has ended. Some events may still follow an end: a run that has
//! ended in any way is archived, restored or redacted, and a late report follows an end that was presumed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A run's lifecycle state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Created, not yet started.
    Pending,
    /// Under way.
    Running,
    /// Terminal: finished successfully.
    Completed,
    /// Terminal: stopped on purpose.
    Aborted,
    /// Terminal: ended with an error.
    Failed,
}

impl Status {
    /// Every status, in the order of their codes.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Completed, Self::Aborted, Self::Failed];

    /// Whether the status never changes again.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Completed | Self::Aborted | Self::Failed => true,
        }
    }

    /// Whether every run of this status waits for a claim. See [`Run::awaits_claim`](super::Run::awaits_claim).
    #[must_use]
    pub fn awaits_claim(self) -> bool {
        match self {
            Self::Pending => true,
            Self::Running | Self::Completed | Self::Aborted | Self::Failed => false,
        }
    }

    /// The lower-case name that the bridges' envelope and every message use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
        }
    }

    /// The number that the tables' `status` columns and the proto use.
    #[must_use]
    pub fn code(self) -> i16 {
        match self {
            Self::Pending => 1,
            Self::Running => 2,
            Self::Completed => 3,
            Self::Aborted => 4,
            Self::Failed => 5,
        }
    }

    /// The matrix: whether `to` may follow `from`, where `None` is a run that does not exist.
    #[must_use]
    pub fn allows(from: Option<Self>, to: Self) -> bool {
        match (from, to) {
            (None, Self::Pending | Self::Running)
            | (Some(Self::Pending), Self::Running | Self::Aborted | Self::Failed)
            | (Some(Self::Running), Self::Completed | Self::Aborted | Self::Failed) => true,
            (None, Self::Completed | Self::Aborted | Self::Failed)
            | (Some(Self::Pending), Self::Pending | Self::Completed)
            | (Some(Self::Running), Self::Pending | Self::Running)
            | (Some(Self::Completed | Self::Aborted | Self::Failed), _) => false,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
