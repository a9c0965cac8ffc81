//! Runs at rest: RUNNING, and executed by nobody.
//!
//! - A *suspended* run waits for something which no worker can bring about.
//! - A *ready* run waits for a claim, and the next one takes it, as it takes a pending run. A suspended run becomes ready
//!   when somebody lets it go on; any run, when a claim of it is given back that was not begun: its caller did not receive
//!   it, or its holder gives it back and has written nothing. No status goes back: such a run stays RUNNING. One that had
//!   gone on after a suspension is suspended once more, and ready. A claim says by its [`Take`](super::claim::Take) which
//!   of the runs that wait it takes.
//!
//! Invariant: a run at rest has no row in the table `leases`, and one row in the table `suspended`. A commit that ends the
//! run, or lets a worker go on with it, deletes that row. What a suspension says is in the run; the row has what lists and
//! claims look for.

use serde::{Deserialize, Serialize};

use super::priority::Priority;
use super::redaction::Redaction;
use super::texts;
use crate::domain::form::form;
use crate::domain::{EventType, LeaseEpoch, Principal, Time};

/// What a run waits for, or last waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspensions {
    /// The run waits, and nobody executes it.
    pub suspension: Option<Box<Suspension>>,
    /// The suspension that it last went on from, with what was said then.
    pub resumed_from: Option<Box<Suspension>>,
}

form!(Suspensions { suspension: "suspension", resumed_from: "resumedFrom" });

/// The change of what a run waits for, by an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuspensionsChange {
    /// The run was suspended.
    pub suspension: Option<Box<Suspension>>,
    /// What was said with the call that let the run go on, or made it ready.
    pub resumption: Option<Box<Resumption>>,
}

form!(SuspensionsChange { suspension: "suspension", resumption: "resumption" });

impl Suspensions {
    pub(in crate::domain) fn fold(&mut self, change: &SuspensionsChange, event_type: EventType) {
        let SuspensionsChange { suspension, resumption } = change;
        if suspension.is_some() {
            self.suspension.clone_from(suspension);
            self.resumed_from = None;
        }
        if let (EventType::Ready, Some(suspension)) = (event_type, &mut self.suspension) {
            (suspension.deadline, suspension.timeout_then) = (None, None);
            suspension.resumption.clone_from(resumption);
        }
    }

    /// Ends the suspension, with what was said. Tells whether the run goes on from one.
    pub(in crate::domain) fn end(&mut self, said: Option<&Resumption>, is_over: bool) -> bool {
        let ended = self.suspension.take();
        if is_over {
            self.resumed_from = None;
            return false;
        }
        let Some(mut ended) = ended else { return false };
        ended.resumption = said.cloned().map(Box::new).or(ended.resumption);
        (ended.deadline, ended.timeout_then) = (None, None);
        self.resumed_from = Some(ended);
        true
    }

    /// Keeps the suspension's deadline where it is by the [steady clock](crate::domain::steady).
    pub(in crate::domain) fn reckon_anew(&mut self, shift: i64) {
        if let Some(deadline) = self.suspension.as_mut().and_then(|suspension| suspension.deadline.as_mut()) {
            *deadline = deadline.plus_micros(shift);
        }
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { suspension, resumed_from } = self;
        [suspension, resumed_from].into_iter().flatten().map(|it| it.weight()).sum()
    }

    pub(in crate::domain) fn take_out(&mut self, redaction: &Redaction) -> u64 {
        let Self { suspension, resumed_from } = self;
        [suspension, resumed_from].into_iter().flatten().map(|it| it.take_out(redaction)).sum()
    }
}

impl SuspensionsChange {
    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { suspension, resumption } = self;
        suspension.as_ref().map_or(0, |suspension| suspension.weight())
            + resumption.as_ref().map_or(0, |resumption| resumption.weight())
    }

    pub(in crate::domain) fn take_out(&mut self, redaction: &Redaction) -> u64 {
        let Self { suspension, resumption } = self;
        suspension.as_mut().map_or(0, |suspension| suspension.take_out(redaction))
            + resumption.as_mut().map_or(0, |resumption| resumption.take_out(redaction))
    }
}

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
    /// The time at which the wait is over, if the run still waits then; none: never, or the run is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// What becomes of the run then; none: it is aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_then: Option<TimeoutThen>,
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

/// What becomes of a suspended run at its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TimeoutThen {
    #[default]
    Abort,
    /// It goes on by itself.
    Resume,
    Fail,
}

/// What somebody said who let a run go on, or the authority at the deadline.
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
    fn weight(&self) -> usize {
        let Self {
            kind,
            reason,
            resume_hint,
            executed_by,
            resumption,
            at: _,
            by: _,
            lease_epoch: _,
            deadline: _,
            timeout_then: _,
            ready_timeout_ms: _,
            keep_slot: _,
            by_limit: _,
        } = self;
        size_of::<Self>()
            + kind.len()
            + reason.len()
            + texts::weight([resume_hint])
            + executed_by.as_ref().map_or(0, |_| size_of::<Principal>())
            + resumption.as_ref().map_or(0, |resumption| resumption.weight())
    }

    fn take_out(&mut self, redaction: &Redaction) -> u64 {
        let Self {
            reason,
            resume_hint,
            resumption,
            kind: _,
            at: _,
            by: _,
            executed_by: _,
            lease_epoch: _,
            deadline: _,
            timeout_then: _,
            ready_timeout_ms: _,
            keep_slot: _,
            by_limit: _,
        } = self;
        redaction.of_said_reason(reason)
            + redaction.of_reason(resume_hint)
            + resumption.as_mut().map_or(0, |resumption| resumption.take_out(redaction))
    }
}

impl Resumption {
    fn weight(&self) -> usize {
        let Self { at: _, by: _, reason, phase, max_iterations: _ } = self;
        size_of::<Self>() + texts::weight([reason, phase])
    }

    fn take_out(&mut self, redaction: &Redaction) -> u64 {
        let Self { at: _, by: _, reason, phase: _, max_iterations: _ } = self;
        redaction.of_reason(reason)
    }
}

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
    pub priority: Priority,
}
