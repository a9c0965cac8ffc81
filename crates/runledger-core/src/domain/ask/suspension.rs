//! The asks that let a run wait and let it go on.

use serde::Serialize;

use crate::domain::parts::texts;
use crate::domain::{LeaseEpoch, MaxRunning, PositionAsk, TimeoutThen};

/// What a caller says of the suspension that a phase brings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SuspensionTerms {
    /// The reason, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How to go on, for whoever resumes the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_hint: Option<String>,
    /// The time that the suspension may last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What becomes of the run then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_then: Option<TimeoutThen>,
}

impl SuspensionTerms {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn weight(&self) -> usize {
        let Self { reason, resume_hint, timeout_ms: _, timeout_then: _ } = self;
        texts::weight([reason, resume_hint])
    }
}

/// The fields of a suspension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspend {
    /// The lease that the caller holds; none: somebody else suspends the run.
    pub lease_epoch: Option<LeaseEpoch>,
    /// The kind of thing that the run waits for.
    pub kind: String,
    /// The reason, the hint, and the time that it may last.
    pub terms: SuspensionTerms,
    /// The time that the run may be ready afterwards.
    pub ready_timeout_ms: Option<u64>,
    /// The run counts towards `max_running` all the same.
    pub keep_slot: bool,
    /// Where the run is to stand.
    pub position: PositionAsk,
}

/// The fields of a resumption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// The reason, for people.
    pub reason: Option<String>,
    /// Where the run is to stand, and a limit that is raised.
    pub position: PositionAsk,
    /// The duration of the lease that the caller asks for.
    pub lease_ttl_ms: Option<u64>,
    /// The limit on running runs with the run's value of a label, for the lease.
    pub max_running: Option<MaxRunning>,
}
