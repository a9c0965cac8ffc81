//! Leases as the stores keep them, in rows of their own.
//!
//! A lease is over when two things have passed: its own expiry, and one ttl since the authority was last away. No
//! worker could report to an authority that was away: its outage ends the lease of no living worker. The authority was
//! away while no server ran, and for as long as a server stood still or the store made no renewals, where that took at
//! least a quarter of the lease's ttl: a living worker renews every third, so no shorter interruption ends its lease.
//!
//! Each server knows its own interruptions, and forgets them when it ends. On Postgres the servers tell each other
//! more: see `postgres::uptime`.

use std::time::Duration;

use crate::domain::{LeaseEpoch, Progress, Run, RunKey, Time};

/// The interval at which a store is told that its process runs.
pub const TICK_EVERY: Duration = Duration::from_millis(100);

/// The time that passes after the authority was away before it acts upon a deadline of people: of a suspension, or of a run
/// that is ready to go on. An interruption counts that is a quarter as long, as for leases with that ttl.
pub const ACTS_AFTER_MS: u64 = 60_000;

/// A lease that was renewed.
#[derive(Clone, Debug, PartialEq)]
pub struct Renewed {
    /// The time at which the lease is over.
    pub expires_at: Time,
    /// The store's clock.
    pub now: Time,
    /// The run, without its metadata.
    pub run: Run,
}

impl Renewed {
    /// The same, with times of the steady clock as people are told them.
    pub(in crate::store) fn told(self, told: impl Fn(Time) -> Time) -> Self {
        Self { expires_at: told(self.expires_at), now: told(self.now), ..self }
    }
}

/// A lease, and its holder's last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLease {
    /// The lease's epoch.
    pub epoch: LeaseEpoch,
    /// The time at which the lease is over, unless it is renewed.
    pub expires_at: Time,
    /// The holder's progress, and the time of that report.
    pub progress: Option<(Progress, Time)>,
}

impl KeptLease {
    /// The same, with times of the steady clock as people are told them.
    pub(in crate::store) fn told(self, told: impl Fn(Time) -> Time) -> Self {
        let progress = self.progress.map(|(progress, at)| (progress, told(at)));
        Self { expires_at: told(self.expires_at), progress, ..self }
    }
}

/// A page of the runs whose time is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overdue {
    /// The runs. A run whose lease is over and that is due comes twice.
    pub runs: Vec<RunKey>,
    /// The place to go on from; none: there are no more.
    pub next: Option<OverduePlace>,
}

/// A place in a search for runs whose time is over; the default is the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverduePlace {
    /// The place among the leases that are over.
    pub lease: SearchedTo<RunKey>,
    /// The place among the runs that are due.
    pub due: SearchedTo<(Time, RunKey)>,
}

/// A place in one of the orders of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SearchedTo<P> {
    /// The beginning.
    #[default]
    Nothing,
    /// The last row that was found.
    Place(P),
    /// The end: no row is left.
    End,
}

impl<P: Clone> SearchedTo<P> {
    /// The place, and the number of rows to find after it; before the first row, the place is `start`.
    fn after(&self, start: P, limit: usize) -> (P, usize) {
        match self {
            Self::Nothing => (start, limit),
            Self::Place(place) => (place.clone(), limit),
            Self::End => (start, 0),
        }
    }
}

impl OverduePlace {
    /// The key after which leases are searched, and the number of rows to find.
    pub(in crate::store) fn leases_after(&self, limit: usize) -> (RunKey, usize) {
        self.lease.after(before_all(), limit)
    }

    /// The time and the key after which due runs are searched, and the number of rows to find.
    pub(in crate::store) fn due_after(&self, limit: usize) -> ((Time, RunKey), usize) {
        self.due.after((Time::from_micros(0), before_all()), limit)
    }
}

/// No run has this key: it stands before all others.
fn before_all() -> RunKey {
    RunKey { namespace: "".into(), run_id: "".into() }
}

impl Overdue {
    /// A page of leases that are over and of runs that are due, each the first so many after a place.
    pub(in crate::store) fn new(
        over: Vec<RunKey>,
        due: Vec<(Time, RunKey)>,
        (over_max, due_max): (usize, usize),
    ) -> Self {
        let lease = over.iter().max().filter(|_| over.len() >= over_max).cloned();
        let last_due = due.iter().max().filter(|_| due.len() >= due_max).cloned();
        let next = (lease.is_some() || last_due.is_some()).then(|| OverduePlace {
            lease: lease.map_or(SearchedTo::End, SearchedTo::Place),
            due: last_due.map_or(SearchedTo::End, SearchedTo::Place),
        });
        let runs = over.into_iter().chain(due.into_iter().map(|(_, key)| key)).collect();
        Self { runs, next }
    }
}
