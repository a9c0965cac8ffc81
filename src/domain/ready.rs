//! Runs that are RUNNING and *ready*: no worker executes them, and the next claim takes them, as it takes a pending
//! one.
//!
//! A suspended run becomes ready when somebody lets it go on; any run, when a claim of it is given back that was not begun:
//! its caller did not receive it, or its holder gives it back and has written nothing. No status goes back: such a run
//! stays RUNNING. One that had gone on after a suspension is suspended once more, and ready.
//!
//! A claim says by its [`Take`] which of the runs that wait it takes.

use serde::{Deserialize, Serialize};

use super::{Run, Time};

/// The time from which a run is ready, and its deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ready {
    /// The time at which the run became ready.
    pub at: Time,
    /// The time at which the run is ended unless it is claimed before; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// The run is ready because a claim was given back that was not begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_begun: bool,
}

/// A claim of a run that waited for one, and under which no event was made yet. The fields are the values that a
/// release restores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Unbegun {
    /// The owner that the run had before the claim made its claimer the owner; empty: the run had no owner. None: the
    /// claim left the owner as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

impl Unbegun {
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.owner.as_ref().map_or(0, String::len)
    }
}

/// Which runs a claimer takes. All take those that are ready because a claim of theirs was not begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Take {
    /// Those that are pending.
    #[default]
    Pending,
    /// Those that were suspended and are ready to go on.
    Ready,
    /// Both.
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

    /// Whether a claimer takes a run that is ready.
    #[must_use]
    pub fn takes_ready(self, run: &Run) -> bool {
        match self {
            Self::Pending => run.suspension().is_none(),
            Self::Ready | Self::Both => true,
        }
    }
}

impl Run {
    /// Whether the run is RUNNING, no worker executes it, and the next claim takes it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.supervision.ready.is_some()
    }

    /// Whether the run waits for a claim: it is pending or ready.
    #[must_use]
    pub fn awaits_claim(&self) -> bool {
        self.status.awaits_claim() || self.is_ready()
    }

    /// Whether a claim takes the ready run over from its owner: it was executed before, and goes on after a suspension. One
    /// that was not begun before is its owner's.
    #[must_use]
    pub fn is_for_any_worker(&self) -> bool {
        self.is_ready() && self.suspension().is_some()
    }

    /// The time that the run may wait to be started, in microseconds, as it was set at the run's creation.
    pub(super) fn start_timeout_micros(&self) -> Option<i64> {
        Some(self.supervision.start_deadline?.micros() - self.started_at.micros())
    }
}
