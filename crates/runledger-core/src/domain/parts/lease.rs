//! A lease: as the run has it, as its own row keeps it, and as its holder renews it.
//!
//! Invariants:
//!
//! - The lease's epoch is part of the run, and decides which worker may write.
//! - The lease's expiry is not part of the run. It stands in a row of its own, in the table `leases`, which a heartbeat
//!   renews without the shard's head and without an event.
//! - A sweep, a give-back, and a claim of a running run read that row under the head and lock it. So of a heartbeat and
//!   a command that ends the lease, the first wins.
//! - A commit that ends the run, or puts it at rest (suspended or ready), deletes the row.

use serde::{Deserialize, Serialize};

use super::texts;
use crate::domain::{LeaseEpoch, Time};

/// A lease: its holder may report on the run. The epoch is the fencing token: it only grows, and writes under an older
/// one are refused. The expiry is not kept here, since renewals are no events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lease {
    /// 1 for the run's first lease, and more for each that follows; more by far after a failover that lost commits.
    pub epoch: LeaseEpoch,
    /// The duration of the lease after a grant or a renewal, in milliseconds.
    pub ttl_ms: u64,
    /// The lease was given up: this epoch has no holder, and the run may be claimed at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// The run was suspended under it: it is not renewed and never over, and its holder may still say what is true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resting: bool,
}

/// A lease as the store keeps it, read under the shard's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// The lease's epoch.
    pub epoch: LeaseEpoch,
    /// The time at which the lease is over: its own expiry, or one ttl after the authority came back, if that is later.
    pub expires_at: Time,
    /// Whether the lease was renewed since it was granted.
    pub renewed: bool,
}

impl HeldLease {
    /// The row of a lease that is granted at a time.
    #[must_use]
    pub fn granted(lease: Lease, at: Time) -> Self {
        Self { epoch: lease.epoch, expires_at: at.plus_ms(lease.ttl_ms), renewed: false }
    }
}

/// The ask of a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The epoch that the caller holds.
    pub epoch: LeaseEpoch,
    /// The acting agent.
    pub agent_id: Option<String>,
    /// Whether the caller may write runs of its own agents only.
    pub is_confined: bool,
    /// The progress of the work.
    pub progress: Option<Progress>,
}

/// The progress of the work, as its worker reports it. Best effort: the last value is shown while the run has a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The amount of work that is done.
    pub done: u64,
    /// The whole amount of work; 0: not known.
    pub total: u64,
    /// A message about the work, for people.
    pub message: String,
}

/// A claim of a run that waited for one, and under which no event was made yet. The fields are the values that a
/// release restores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Unbegun {
    /// The owner that the run had before the claim made its claimer the owner; empty: the run had no owner. None: the
    /// claim left the owner as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

impl Unbegun {
    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { owner } = self;
        size_of::<Self>() + texts::weight([owner])
    }
}

/// An identity that is kept as one that executed the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Executor {
    /// The event's caller, who executes the run without a lease.
    Caller,
    /// Whoever was granted the lease before.
    Grantee,
}
