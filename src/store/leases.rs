//! Leases as the stores keep them, in rows of their own.
//!
//! A lease is over when two things have passed: its own expiry, and one ttl since the authority was last away. An
//! authority that was away could be told nothing meanwhile: its outage kills nobody who lives. It was away while no
//! server ran, and for as long as a server stood still or the store made no renewals, where that took at least a quarter
//! of the lease's ttl: a worker that lives renews every third, so no shorter interruption ends its lease.

use std::time::Duration;

use crate::domain::{Progress, Run, Time};

/// How often a store is told that its process runs.
pub const TICK_EVERY: Duration = Duration::from_millis(100);

/// A lease that was renewed.
#[derive(Clone, Debug, PartialEq)]
pub struct Renewed {
    /// When it is over.
    pub expires_at: Time,
    /// The store's clock.
    pub now: Time,
    /// The run, without its metadata.
    pub run: Run,
}

/// A lease and what its holder said of the work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLease {
    /// Its epoch.
    pub epoch: u64,
    /// When it is over, unless it is renewed.
    pub expires_at: Time,
    /// How far the work has come, and when that was said.
    pub progress: Option<(Progress, Time)>,
}
