//! Events: the entries of the log.

use serde::{Deserialize, Serialize};

use super::{Changes, Principal, Revision, RunKey, Status, Time, TraceContext};

/// One entry of a run's history. The ledger's `event` column keeps an event's serde form; the skipped fields have
/// columns of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Event {
    /// The run that it belongs to.
    #[serde(skip)]
    pub key: RunKey,
    /// The run's revision after it.
    #[serde(skip)]
    pub revision: Revision,
    /// The event's time.
    #[serde(skip, default = "no_time")]
    pub at: Time,
    /// The `request_id` of the call that made it.
    #[serde(skip)]
    pub request_id: Option<String>,
    /// By how much the ledger's [steady clock](super::steady) was ahead of `at`, in microseconds; 0: by less than is noted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub steady_ahead_micros: i64,
    /// The kind of event.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// The status before; none at creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Status>,
    /// The status after.
    pub to: Status,
    /// The caller that made the event.
    pub principal: Principal,
    /// The place in a trace of the call that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// The fields that the event set.
    #[serde(default)]
    pub changes: Changes,
}

impl Event {
    /// About how many bytes the event takes in memory: for bounds on pages.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.key.run_id.len() + self.changes.weight()
    }
}

/// The effect of an event on its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventType {
    /// The run was created. Always the [first revision](Revision::FIRST).
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
    /// One that is running.
    Running,
    /// One that has ended and is not archived.
    Ended,
    /// One that is archived.
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
            Self::Claimed        => row(None,            EventOf::Running,  false),
            Self::Released       => row(None,            EventOf::Running,  false),
            Self::AbortRequested => row(None,            EventOf::Running,  false),
            Self::LateReported   => row(None,            EventOf::Presumed, false),
            Self::Ready          => row(None,            EventOf::Running,  true),
            Self::Suspended      => row(None,            EventOf::Running,  true),
            Self::Resumed        => row(None,            EventOf::Running,  true),
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn no_time() -> Time {
    Time::from_micros(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Event;
    use crate::domain::Run;

    /// Code that drops a field which it does not know would write the run back without it.
    #[test]
    fn a_field_that_is_not_known_is_an_error_and_not_a_loss() {
        let principal = json!({"kind": "anonymous"});
        let event =
            json!({"type": "created", "to": "running", "principal": principal, "changes": {"taskThreadId": "t"}});
        assert!(serde_json::from_value::<Event>(event.clone()).is_ok());
        for place in ["", "/changes", "/principal"] {
            let mut strange = event.clone();
            strange.pointer_mut(place).unwrap()["fieldToCome"] = json!(1);
            assert!(serde_json::from_value::<Event>(strange).is_err(), "{place}");
        }
        let at = "2026-11-26T10:00:00.000000Z";
        let run = json!({"taskThreadId": "t", "runId": "r", "namespace": "default", "status": "running", "revision": 1,
            "startedAt": at, "updatedAt": at, "supervision": {"presumed": true}, "refinements": {"links": 1}});
        assert!(serde_json::from_value::<Run>(run.clone()).is_ok(), "{:?}", serde_json::from_value::<Run>(run));
        for place in ["", "/supervision", "/refinements"] {
            let mut strange = run.clone();
            strange.pointer_mut(place).unwrap()["fieldToCome"] = json!(1);
            assert!(serde_json::from_value::<Run>(strange).is_err(), "{place}");
        }
    }
}
