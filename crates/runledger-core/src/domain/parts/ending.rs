//! The end of a run: its reason, the request that it be aborted, and what is reported after the authority has ended it.

use serde::{Deserialize, Serialize};

use super::attachments::ResultDigest;
use super::metadata::Metadata;
use super::redaction::Redaction;
use super::texts::{self, set};
use crate::domain::form::object;
use crate::domain::{LeaseEpoch, Principal, Status, Time};

/// The reason for which a run ended; also the change of it that a command asks for or an event made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The reason in words, for people.
    pub failure_reason: Option<String>,
    /// The reason as a code, for programs.
    pub reason_code: Option<String>,
}

object!(Ending { failure_reason: "failureReason", reason_code: "reasonCode" });

impl Ending {
    pub(in crate::domain) fn fold(&mut self, change: &Self) {
        let Self { failure_reason, reason_code } = self;
        set(failure_reason, change.failure_reason.as_ref());
        set(reason_code, change.reason_code.as_ref());
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { failure_reason, reason_code } = self;
        texts::weight([failure_reason, reason_code])
    }

    pub(in crate::domain) fn take_out(&mut self, redaction: &Redaction) -> u64 {
        let Self { failure_reason, reason_code: _ } = self;
        redaction.of_reason(failure_reason)
    }
}

/// A request that the worker which executes a run abort it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AbortRequest {
    /// The time of the request.
    pub at: Time,
    /// The caller that made the request.
    pub by: Principal,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time at which the authority aborts the run by itself; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
}

/// The report that the last lease's holder made after the authority had ended the run. A late report changes no status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LateReport {
    /// The time of the report.
    pub at: Time,
    /// The caller that reported.
    pub by: Principal,
    /// The epoch of the lease that the report was made under; [`LeaseEpoch::NONE`] for a run without one.
    pub lease_epoch: LeaseEpoch,
    /// The terminal status that the report names.
    pub status: Status,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The reason, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<String>,
    /// The metadata patch of the report; it is not applied, and only the event keeps it.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// The result of the report, which is kept beside the run's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultDigest>,
    /// The number of links that came with it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub links: u32,
    /// The phase that the report names; nothing checks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

/// The `reason_code` of a late report that the run was completed, where its lifecycle would not have let it complete. A
/// completion has no reason of its own: so its reason is the authority's, and lists what was missing.
const COMPLETION_INCOMPLETE: &str = "COMPLETION_INCOMPLETE";

/// What stands between two things that were missing: no requirement has a space in it.
const BETWEEN: &str = " ";

impl AbortRequest {
    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { at: _, by: _, reason, deadline: _ } = self;
        size_of::<Self>() + texts::weight([reason])
    }

    pub(in crate::domain) fn take_out(&mut self, redaction: &Redaction) -> u64 {
        let Self { at: _, by: _, reason, deadline: _ } = self;
        redaction.of_reason(reason)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_none(links: &u32) -> bool {
    *links == 0
}

impl LateReport {
    /// The report as the run shows it: without the patch, which the event keeps.
    #[must_use]
    pub fn without_metadata(&self) -> Self {
        Self { metadata: Metadata::default(), ..self.clone() }
    }

    /// Notes what the run lacks for the completion that is reported.
    pub(in crate::domain) fn lacks(&mut self, missing: &[String]) {
        if self.status == Status::Completed && !missing.is_empty() {
            self.reason_code = Some(COMPLETION_INCOMPLETE.to_owned());
            self.failure_reason = Some(missing.join(BETWEEN));
        }
    }

    /// Whether the run would not have been completed by this report, had it come in time: then it is no outcome.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.status == Status::Completed && self.reason_code.as_deref() == Some(COMPLETION_INCOMPLETE)
    }

    /// What the run lacked for the completion that was reported.
    #[must_use]
    pub fn completion_missing(&self) -> Vec<String> {
        let listed = self.failure_reason.as_deref().filter(|_| self.is_incomplete()).unwrap_or_default();
        listed.split(BETWEEN).filter(|missing| !missing.is_empty()).map(str::to_owned).collect()
    }

    /// The code, and who reported, take little.
    pub(in crate::domain) fn weight(&self) -> usize {
        let Self {
            failure_reason,
            phase,
            metadata,
            at: _,
            by: _,
            lease_epoch: _,
            status: _,
            reason_code: _,
            result: _,
            links: _,
        } = self;
        size_of::<Self>() + texts::weight([failure_reason, phase]) + metadata.weight()
    }

    pub(in crate::domain) fn take_out(&mut self, redaction: &Redaction) -> u64 {
        let Self {
            failure_reason,
            metadata,
            result,
            at: _,
            by: _,
            lease_epoch: _,
            status: _,
            reason_code: _,
            links: _,
            phase: _,
        } = self;
        redaction.take_result(result);
        redaction.of_reason(failure_reason) + metadata.take_out(redaction)
    }
}
