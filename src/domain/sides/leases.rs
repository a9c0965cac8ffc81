//! The leases of runs, as they are kept in rows of their own, which heartbeats renew without the head.

use std::collections::HashMap;

use crate::domain::{Command, Event, HeldLease, Lease, LeaseEpoch, LeaseRow, Run, RunKey, RunWrite, Time};

/// Whether a command is decided on the row of the lease.
pub(super) fn is_wanted(command: &Command, run: Option<&Run>) -> bool {
    match command.ask.facts().lease_row {
        LeaseRow::Unread => false,
        LeaseRow::OfHeld => run.is_none_or(|run| run.supervision.lease.is_some()),
        LeaseRow::Read => true,
    }
}

/// The leases, as the commands of a batch leave them.
#[derive(Debug)]
pub(super) struct Leases {
    rows: HashMap<RunKey, HeldLease>,
}

impl Leases {
    pub(super) fn of(rows: Vec<(RunKey, HeldLease)>) -> Self {
        Self { rows: rows.into_iter().collect() }
    }

    pub(super) fn row(&self, command: &Command) -> Option<HeldLease> {
        self.rows.get(&command.key).copied()
    }

    pub(super) fn apply(&mut self, command: &Command, event: &Event, run: &Run, steady: Time) {
        if run.is_at_rest() {
            self.rows.remove(&command.key);
        } else if let Some(lease) = event.changes.supervision.lease {
            self.rows.insert(command.key.clone(), HeldLease::granted(lease, steady));
        }
    }
}

/// The change of the row that keeps a run's lease: it is written with a new lease, or deleted (none).
pub(super) fn write(write: &RunWrite) -> Option<(RunKey, Option<Lease>)> {
    let stored = write.before.as_ref();
    let before = stored.map_or(LeaseEpoch::NONE, |before| before.epoch);
    let has_row = stored.is_some_and(|it| !it.status.is_terminal() && before > LeaseEpoch::NONE && it.rest.is_none());
    let run = &write.run;
    let becomes = match run.supervision.lease {
        // The run has ended, or has no holder.
        Some(_) | None if run.status.is_terminal() || run.is_at_rest() => has_row.then_some(None),
        Some(lease) if lease.epoch != before => Some(Some(lease)),
        Some(_) | None => None,
    };
    becomes.map(|lease| (run.key(), lease))
}
