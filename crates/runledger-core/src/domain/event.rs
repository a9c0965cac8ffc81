//! Events: the entries of the log.

use serde::{Deserialize, Serialize};

use super::happened::Happened;
use super::{Changes, EventType, Principal, Revision, RunKey, Status, Time, TraceContext};

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

    /// What happened, besides the changes.
    pub(super) fn happened(&self) -> Happened<'_> {
        let Self { event_type, to, at, revision, ref principal, .. } = *self;
        Happened { event_type, to, at, revision, principal }
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
