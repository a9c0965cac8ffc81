//! The kinds of events.

use serde::{Deserialize, Serialize};

use super::Status;

/// The effect of an event on its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventType {
    /// The run was created. Always the [first revision](super::Revision::FIRST).
    Created,
    /// A pending run became running.
    Started,
    /// Links, labels or metadata changed.
    Updated,
    /// The run became completed.
    Completed,
    /// The run became aborted.
    Aborted,
    /// The run became failed.
    Failed,
    /// A running run got a new lease, and perhaps a new owner.
    Claimed,
    /// The lease's holder gave it up.
    Released,
    /// An abort of the run was requested.
    #[serde(rename = "abort_requested")]
    AbortRequested,
    /// An outcome came after the authority had ended the run.
    #[serde(rename = "late_reported")]
    LateReported,
    /// The running run became ready: nobody executes it, and the next claim takes it.
    Ready,
    /// The running run was suspended, or what it waits for changed.
    Suspended,
    /// The suspended run goes on.
    Resumed,
    /// An attempt at the running run failed, and it waits for the next one.
    #[serde(rename = "attempt_failed")]
    AttemptFailed,
    /// The run, which had ended, was hidden from lists and counts.
    Archived,
    /// The run was shown in lists and counts again.
    Restored,
    /// What should not have been written was taken out of the run, and of its events before.
    Redacted,
}

/// What holds of every event of a type.
#[derive(Clone, Copy, Debug)]
pub struct EventFacts {
    /// The status that it leads to; none where it leaves the run's own, or where its ask says which.
    pub leads_to: Option<Status>,
    /// The run that it may be made of.
    pub of: EventOf,
    /// Whether it may say where its run stands within its status: the phase and the iteration.
    pub moves: bool,
}

/// The run that an event may be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOf {
    /// One from whose status a step leads to the event's. Every other event leaves its run's status.
    Step,
    /// One that has not ended.
    Active,
    Running,
    /// One that has ended and is not archived.
    Ended,
    Archived,
    /// One that the authority has ended.
    Presumed,
    /// Every one.
    Any,
}

impl EventType {
    /// What holds of every event of the type.
    #[must_use]
    #[rustfmt::skip]
    #[expect(clippy::match_same_arms, reason = "it is a table: a row for each type")]
    pub fn facts(self) -> EventFacts {
        use Status::{Aborted, Completed, Failed, Running};
        let row = |leads_to, of, moves| EventFacts { leads_to, of, moves };
        match self {
            //                            leads to         of                 moves
            Self::Created        => row(None,            EventOf::Step,     true),
            Self::Started        => row(Some(Running),   EventOf::Step,     true),
            Self::Updated        => row(None,            EventOf::Active,   true),
            Self::Completed      => row(Some(Completed), EventOf::Step,     true),
            Self::Aborted        => row(Some(Aborted),   EventOf::Step,     true),
            Self::Failed         => row(Some(Failed),    EventOf::Step,     true),
            Self::Claimed        => row(None,            EventOf::Running,  true),
            Self::Released       => row(None,            EventOf::Running,  false),
            Self::AbortRequested => row(None,            EventOf::Running,  false),
            Self::LateReported   => row(None,            EventOf::Presumed, false),
            Self::Ready          => row(None,            EventOf::Running,  true),
            Self::Suspended      => row(None,            EventOf::Running,  true),
            Self::Resumed        => row(None,            EventOf::Running,  true),
            Self::AttemptFailed  => row(None,            EventOf::Running,  true),
            Self::Archived       => row(None,            EventOf::Ended,    false),
            Self::Restored       => row(None,            EventOf::Archived, false),
            Self::Redacted       => row(None,            EventOf::Any,      false),
        }
    }

    /// Whether the event archives its run, or restores it.
    #[must_use]
    pub fn is_of_the_archive(self) -> bool {
        matches!(self, Self::Archived | Self::Restored)
    }
}
