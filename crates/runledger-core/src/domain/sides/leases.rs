//! The leases of runs, as they are kept in rows of their own, which heartbeats renew without the head.

use std::collections::HashMap;

use super::side::{Applied, Side};
use crate::domain::{Command, HeldLease, Lease, LeaseEpoch, LeaseRow, Run, RunKey, RunWrite};

/// The leases, as the commands of a batch leave them.
#[derive(Debug)]
pub struct Rows {
    rows: HashMap<RunKey, HeldLease>,
}

impl Rows {
    pub(super) fn row(&self, command: &Command) -> Option<HeldLease> {
        self.rows.get(&command.key).copied()
    }
}

impl Side for Rows {
    type Key = RunKey;
    type Row = (RunKey, HeldLease);
    /// Leases that begin, or begin anew; none: the row is deleted. The other rows are left to their renewals.
    type Writes = Vec<(RunKey, Option<Lease>)>;

    fn wanted(command: &Command) -> Option<RunKey> {
        Self::is_read_for(command, None).then(|| command.key.clone())
    }

    fn is_read_for(command: &Command, run: Option<&Run>) -> bool {
        match command.ask.facts().lease_row {
            LeaseRow::Unread => false,
            LeaseRow::OfHeld => run.is_none_or(|run| run.supervision.lease.is_some()),
            LeaseRow::Read => true,
        }
    }

    fn of(rows: Vec<(RunKey, HeldLease)>) -> Self {
        Self { rows: rows.into_iter().collect() }
    }

    fn apply(&mut self, Applied { command, event, run, steady, .. }: &Applied<'_>) {
        if run.is_at_rest() {
            self.rows.remove(&command.key);
        } else if let Some(lease) = event.changes.supervision.lease {
            self.rows.insert(command.key.clone(), HeldLease::granted(lease, *steady));
        }
    }

    fn writes(self, runs: &[RunWrite]) -> Self::Writes {
        let mut leases: Vec<_> = runs.iter().filter_map(write).collect();
        leases.sort_by(|(one, _), (other, _)| one.cmp(other));
        leases
    }
}

/// The change of the row that keeps a run's lease: it is written with a new lease, or deleted (none).
fn write(write: &RunWrite) -> Option<(RunKey, Option<Lease>)> {
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
