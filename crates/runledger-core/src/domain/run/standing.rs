//! How a run stands: whether it waits, rests or is held, and when it is due.

use super::{Run, Supervision};
use crate::domain::{AttemptBegin, Priority, Rest, RunPosition, Status, Suspension, Time};

impl Run {
    /// Where it stands within its status; none: it has no [refinements](Run::refinements).
    #[must_use]
    pub fn position(&self) -> Option<&RunPosition> {
        self.refinements.as_deref().map(|all| &all.position)
    }

    /// The suspension of a run that is suspended, also where it is ready.
    #[must_use]
    pub fn suspension(&self) -> Option<&Suspension> {
        self.refinements.as_deref()?.rest.suspension.as_deref()
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

    /// Whether the run is RUNNING, no worker executes it, and the next claim takes it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.supervision.ready.is_some()
    }

    /// Whether an attempt has failed, and the next has not begun, be the run paused meanwhile or not.
    #[must_use]
    pub fn is_between_attempts(&self) -> bool {
        let attempts = self.refinements.as_ref().and_then(|all| all.attempts.as_ref());
        self.status == Status::Running && attempts.is_some_and(|attempts| attempts.waits)
    }

    /// The owner as claims see it. Of a run that waits for its next attempt it is the one that it had before a claim made another
    /// the owner: that one is the owner until the next claim, for what it still reports.
    #[must_use]
    pub fn owner_to_claim(&self) -> Option<&String> {
        let attempts = self.refinements.as_ref().and_then(|all| all.attempts.as_ref());
        match attempts.filter(|attempts| attempts.waits).and_then(|attempts| attempts.owner.as_ref()) {
            Some(before) => Some(before).filter(|before| !before.is_empty()),
            None => self.agent_id.as_ref(),
        }
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
    pub(in crate::domain) fn start_timeout_micros(&self) -> Option<i64> {
        Some(self.supervision.start_deadline?.micros() - self.started_at.micros())
    }

    /// The time at which a running run is aborted; none: never, or not while it is at rest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.is_at_rest() {
            return None;
        }
        let Supervision { run_timeout_ms, rest_micros, .. } = self.supervision;
        Some(self.running_at?.plus_ms(run_timeout_ms?).plus_micros(rest_micros))
    }

    /// The time at which the attempt that is under way has failed; none: never, or not while the run is at rest.
    #[must_use]
    pub fn attempt_deadline(&self) -> Option<Time> {
        let is_under_way = self.status == Status::Running && !self.is_at_rest();
        let attempts = self.refinements.as_ref()?.attempts.as_deref().filter(|_| is_under_way)?;
        let first = || Some(AttemptBegin { at: self.running_at?, rested_micros: 0 });
        let AttemptBegin { at, rested_micros } = attempts.began.or_else(first)?;
        Some(at.plus_ms(attempts.timeout_ms?).plus_micros(self.supervision.rest_micros - rested_micros))
    }

    /// The time at which the authority has to end the run by itself, with or without a lease, by the
    /// [steady clock](crate::domain::steady); none: never.
    #[must_use]
    pub fn due_at(&self) -> Option<Time> {
        Some(self.first_deadline()?.plus_micros(self.supervision.steady_ahead_micros))
    }

    fn first_deadline(&self) -> Option<Time> {
        let deadline = match self.status {
            Status::Pending => self.supervision.start_deadline,
            Status::Running => match (&self.supervision.ready, self.suspension()) {
                (Some(ready), _) => ready.deadline,
                (None, Some(suspension)) => suspension.deadline,
                (None, None) => self.deadline().into_iter().chain(self.attempt_deadline()).min(),
            },
            Status::Completed | Status::Aborted | Status::Failed => return None,
        };
        let grace = self.supervision.abort_request.as_ref().and_then(|request| request.deadline);
        deadline.into_iter().chain(grace).min()
    }

    /// Whether a worker may hold a lease on the run.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.status == Status::Running && self.supervision.lease.is_some() && !self.is_at_rest()
    }

    /// The run's last known terminal status: that of a late report, else the run's own. A completion that its lifecycle
    /// would not have allowed is none.
    #[must_use]
    pub fn outcome(&self) -> Option<Status> {
        let late = self.supervision.late_report.as_ref().filter(|report| !report.is_incomplete());
        let reported = late.map(|report| report.status);
        reported.or(Some(self.status).filter(|status| status.is_terminal()))
    }
}
