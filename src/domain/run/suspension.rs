//! Suspensions: a RUNNING run that waits for something which no worker can bring about, and is executed by nobody.
//!
//! Invariant: a run at rest (it is suspended or [ready](super::super::ready)) has no row in the table `leases`, and one
//! row in the table `suspended`. A commit that ends the run, or lets a worker go on with it, deletes that row. What a
//! suspension says is in the run; the row has what lists and claims look for.

use serde::{Deserialize, Serialize};

use crate::domain::{LeaseEpoch, Principal, Priority, Refinements, Run, Status, Time};

/// A suspension. It lasts until the run goes on under a lease, or ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Suspension {
    /// The kind of thing that the run waits for.
    pub kind: String,
    /// The reason, for people.
    pub reason: String,
    /// How to go on, for whoever resumes the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_hint: Option<String>,
    /// The time since which it holds.
    pub at: Time,
    /// The caller that suspended the run.
    pub by: Principal,
    /// The caller that executed the run, where another suspended it since, or its limit did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed_by: Option<Box<Principal>>,
    /// The lease under which the run's holder suspended it; none: somebody else did, or a limit of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_epoch: Option<LeaseEpoch>,
    /// The time at which the run is aborted if it still waits then; none: never, or the run is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// The time that the run may be ready, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_timeout_ms: Option<u64>,
    /// The run counts towards `max_running` all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_slot: bool,
    /// The run's own limit suspended it, in a call of who executed it: it goes on with a higher one alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_limit: bool,
    /// What was said when the run was made ready: the claim applies it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumption: Option<Box<Resumption>>,
}

/// What somebody said who let a run go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resumption {
    /// The time of the call.
    pub at: Time,
    /// The caller.
    pub by: Principal,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The phase that the claim moves the run to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The highest iteration that the run may come to from the claim on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
}

impl Suspension {
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>()
            + self.kind.len()
            + self.reason.len()
            + self.resume_hint.as_ref().map_or(0, String::len)
            + self.executed_by.as_ref().map_or(0, |_| size_of::<Principal>())
            + self.resumption.as_ref().map_or(0, |resumption| resumption.weight())
    }
}

impl Resumption {
    pub(super) fn weight(&self) -> usize {
        let texts = [&self.reason, &self.phase];
        size_of::<Self>() + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

/// The row that a run has in the table `suspended` while it is at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The time of the run's creation.
    pub started_at: Time,
    /// The kind of its suspension; none: it is ready because a claim was not begun.
    pub kind: Option<String>,
    /// Whether the next claim takes it.
    pub ready: bool,
    /// Whether it counts towards `max_running` all the same.
    pub keep_slot: bool,
    /// Its priority.
    pub priority: Priority,
}

impl Run {
    /// The suspension of a run that is suspended, also where it is ready.
    #[must_use]
    pub fn suspension(&self) -> Option<&Suspension> {
        self.refinements.as_deref().and_then(|all: &Refinements| all.suspension.as_deref())
    }

    /// Whether nobody executes the RUNNING run, and nothing of it can be over by silence: it is suspended, or ready.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.is_ready() || self.suspension().is_some()
    }

    /// The time since which the run is at rest, or since it changed what it waits for.
    pub(in crate::domain) fn rests_since(&self) -> Option<Time> {
        let ready = self.supervision.ready.as_ref().map(|ready| ready.at);
        ready.or_else(|| self.suspension().map(|suspension| suspension.at))
    }

    /// The priority among the runs that wait for a claim.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.refinements.as_ref().map_or(Priority::NONE, |all| all.priority)
    }

    /// The priority that the run's row in `active` has: a run has one there while it is pending.
    #[must_use]
    pub fn queued_priority(&self) -> Option<Priority> {
        Some(self.priority()).filter(|priority| self.status == Status::Pending && !priority.is_none())
    }

    /// The run's row in the table `suspended`; none: it has none.
    #[must_use]
    pub fn rest(&self) -> Option<Rest> {
        let suspension = self.suspension();
        self.is_at_rest().then(|| Rest {
            started_at: self.started_at,
            kind: suspension.map(|suspension| suspension.kind.clone()),
            ready: self.is_ready(),
            keep_slot: suspension.is_some_and(|suspension| suspension.keep_slot),
            priority: self.priority(),
        })
    }

    /// Whether a run that was claimed under a `max_running` counts towards it.
    #[must_use]
    pub fn counts(&self) -> bool {
        let keeps = self.suspension().is_some_and(|suspension| suspension.keep_slot);
        !self.status.is_terminal() && (keeps || !self.is_at_rest())
    }
}
