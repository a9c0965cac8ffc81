//! Leases as the stores keep them, in rows of their own.
//!
//! A lease is over when two things have passed: its own expiry, and one ttl of the present uptime. An authority that was
//! away could be told nothing meanwhile: its outage kills nobody who lives. Every server stamps the database once a
//! second; where nobody did for [`GAP_MS`], a new uptime has begun.

use crate::domain::{Progress, Run, Time};

/// So long without any server's stamp is an outage.
pub const GAP_MS: u32 = 5_000;

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
