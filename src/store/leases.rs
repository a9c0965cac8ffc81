//! Leases as the stores keep them, in rows of their own.
//!
//! A lease is over when two things have passed: its own expiry, and one ttl since the authority was last away. No
//! worker could report to an authority that was away: its outage ends the lease of no living worker. The authority was
//! away while no server ran, and for as long as a server stood still or the store made no renewals, where that took at
//! least a quarter of the lease's ttl: a living worker renews every third, so no shorter interruption ends its lease.

use std::time::Duration;

use crate::domain::{LeaseEpoch, Progress, Run, Time};

/// The interval at which a store is told that its process runs.
pub const TICK_EVERY: Duration = Duration::from_millis(100);

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
