//! Sweeps: the authority's own conclusions about runs whose time is over.
//!
//! The authority ends a run by an ordinary command, which is decided under the shard's head like every other command. A
//! conclusion that the authority draws from a worker's silence is marked as `presumed`: the worker may know better, and
//! so a late report may follow such an end.

use super::context::Context;
use super::{EventType, Run, Status, Time, TimeoutThen};

/// The reason for which the authority ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A pending run was not started in time.
    NotStarted,
    /// A running run took too long.
    TooLong,
    /// An attempt at it took too long.
    AttemptTooLong,
    /// A request to abort the run was not followed in time.
    GraceOver,
    /// What a suspended run waits for did not come in time.
    SuspensionOver,
    /// The same, and the run was to fail then.
    SuspensionFailed,
    /// The same, and the run was to go on then by itself. It ends where it cannot.
    GoesOn,
    /// A run that was ready to go on was not claimed in time.
    NotClaimed,
    /// The run's lease was not renewed.
    Orphaned,
}

impl Due {
    /// The reason whose time is over first, if any is.
    pub(super) fn of(run: &Run, context: &Context<'_>) -> Option<Self> {
        let grace = run.supervision.abort_request.as_ref().and_then(|request| request.deadline);
        let nothing = (None, Self::Orphaned);
        // These deadlines are people's time: they get a minute after the authority was away.
        let attended =
            |at: Option<Time>| at.filter(|_| context.sides.acts_from.is_some_and(|from| from <= context.steady.now));
        // Deadlines are told by the store's clock as it was set then; leases have times of the steady clock.
        let ahead = context.steady.ahead_of_run(run.updated_at, run.supervision.steady_ahead_micros);
        let ends: [(Option<Time>, Self); 4] = match (run.status, &run.supervision.ready, run.suspension()) {
            (Status::Pending, _, _) => {
                [(run.supervision.start_deadline, Self::NotStarted), (grace, Self::GraceOver), nothing, nothing]
            }
            (Status::Running, Some(ready), None) => [(ready.deadline, Self::NotStarted), nothing, nothing, nothing],
            (Status::Running, Some(ready), Some(_)) => {
                [(attended(ready.deadline), Self::NotClaimed), nothing, nothing, nothing]
            }
            (Status::Running, None, Some(suspension)) => {
                let due = match suspension.timeout_then.unwrap_or_default() {
                    TimeoutThen::Abort => Self::SuspensionOver,
                    TimeoutThen::Resume => Self::GoesOn,
                    TimeoutThen::Fail => Self::SuspensionFailed,
                };
                [(attended(suspension.deadline), due), nothing, nothing, nothing]
            }
            (Status::Running, None, None) => {
                // A lease that was granted or given up after this one was read has another epoch.
                let held = run.supervision.lease.zip(context.sides.lease);
                let expiry = held.filter(|(lease, held)| lease.epoch == held.epoch).map(|(_, held)| held.expires_at);
                [
                    (run.deadline(), Self::TooLong),
                    (run.attempt_deadline(), Self::AttemptTooLong),
                    (grace, Self::GraceOver),
                    (expiry, Self::Orphaned),
                ]
            }
            (Status::Completed | Status::Aborted | Status::Failed, _, _) => return None,
        };
        let over = ends.into_iter().filter_map(|(at, due)| {
            let at = if due == Self::Orphaned { at } else { at.map(|at| at.plus_micros(ahead)) };
            Some((at.filter(|at| *at <= context.steady.now)?, due))
        });
        over.min().map(|(_, due)| due)
    }

    /// Whether an attempt has failed, which need not be the run's last.
    pub(super) fn is_of_an_attempt(self) -> bool {
        matches!(self, Self::AttemptTooLong | Self::Orphaned)
    }

    /// The event by which the reason ends its run.
    pub(super) fn event_type(self) -> EventType {
        match self {
            Self::NotStarted | Self::TooLong | Self::GraceOver | Self::SuspensionOver | Self::GoesOn => {
                EventType::Aborted
            }
            Self::AttemptTooLong | Self::SuspensionFailed | Self::NotClaimed | Self::Orphaned => EventType::Failed,
        }
    }

    /// Whether the worker may know better: a deadline is a rule, all else is a conclusion from silence.
    pub(super) fn is_presumed(self) -> bool {
        match self {
            Self::NotStarted | Self::TooLong | Self::SuspensionOver | Self::SuspensionFailed | Self::GoesOn => false,
            Self::AttemptTooLong | Self::GraceOver | Self::NotClaimed | Self::Orphaned => true,
        }
    }

    pub(super) fn reason_code(self) -> &'static str {
        match self {
            Self::NotStarted | Self::TooLong => "TIMEOUT",
            Self::AttemptTooLong => "ATTEMPT_TIMEOUT",
            Self::GraceOver => "ABORT_GRACE_EXPIRED",
            Self::SuspensionOver | Self::SuspensionFailed | Self::GoesOn => "SUSPENSION_TIMEOUT",
            Self::NotClaimed | Self::Orphaned => "ORPHANED",
        }
    }

    pub(super) fn reason(self, run: &Run) -> String {
        match self {
            Self::SuspensionOver | Self::SuspensionFailed => "still suspended at its suspension.deadline".to_owned(),
            Self::GoesOn => "still suspended at its suspension.deadline, and could not go on by itself".to_owned(),
            Self::NotClaimed => "ready to go on, and not claimed before its ready.deadline".to_owned(),
            Self::NotStarted if run.is_ready() => "not claimed again before its ready.deadline".to_owned(),
            Self::NotStarted => "not started before its start_deadline".to_owned(),
            Self::TooLong => "still running at its deadline".to_owned(),
            Self::AttemptTooLong => "the attempt was still running at its attempt_deadline".to_owned(),
            Self::GraceOver => "still open when the grace after a request to abort it was over".to_owned(),
            Self::Orphaned if run.supervision.lease.is_some_and(|lease| lease.released) => {
                "the lease was released, and nobody claimed the run within its ttl".to_owned()
            }
            Self::Orphaned => format!("the lease of epoch {} expired: nobody renewed it", run.supervision.epoch()),
        }
    }
}
