//! The database's own identity, and which past it is of.

use std::fmt;

use uuid::Uuid;

use crate::domain::{LedgerEpoch, Time};

/// The database's own identity, fixed when it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// The ledger's id: keys the shard hash, binds tokens and derived run ids.
    pub id: Uuid,
    /// The epoch: 0, until the database is seen to have lost acknowledged calls: restored from a copy, or failed
    /// over. Then an epoch above the one before, and the [`EPOCH_SECONDS`] since [`EPOCH_ZERO`] if these are more. It is given
    /// out when they are over, so that no two pasts have the same, however soon a ledger is restored again.
    pub epoch: LedgerEpoch,
    /// The number of shards.
    pub shard_count: u16,
    /// The key that its cursors and page tokens are sealed with.
    pub seal_key: SealKey,
}

/// The ledger's own secret: whoever has it can make and read what only the ledger gives out. It stands in the database,
/// so that all replicas have the same and nobody distributes it, and is never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SealKey([u8; 32]);

impl SealKey {
    /// The key of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the derivation of keys and for the store. They are never shown.
    #[must_use]
    pub const fn secret(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(***)")
    }
}

/// The time from which epochs count: the beginning of 2026, in seconds since 1970.
pub const EPOCH_ZERO: u32 = 1_767_225_600;

/// The seconds that an epoch stands for. The epochs of leases, which begin with this one's, stay below 2^53 until 2060.
pub const EPOCH_SECONDS: u32 = 2;

/// Epochs below are minutes, as releases before 0.8.0 gave them out: these come to it in 2045. Those of today are above.
const MINUTES_BELOW: u64 = 10_000_000;

impl Ledger {
    /// The minute in which the ledger's epoch began, for people, where the epoch is not the first.
    #[must_use]
    pub fn epoch_began(self) -> String {
        let epoch = self.epoch.get();
        let seconds = if epoch < MINUTES_BELOW { 60 } else { EPOCH_SECONDS.into() };
        let began = epoch.saturating_mul(seconds).saturating_add(EPOCH_ZERO.into());
        let began = Time::from_micros(i64::try_from(began.saturating_mul(1_000_000)).unwrap_or(i64::MAX)).to_string();
        began.split_at_checked(16).map_or(began.clone(), |(minute, _)| format!("{minute}Z"))
    }
}

/// A part of a store, which knows its ledger.
pub trait OfLedger: Send + Sync + 'static {
    /// The database's identity. The epoch rises while a server runs when the database turns out to have lost
    /// acknowledged calls, after a failover or from a copy: before any read of this store answers from the new past. So
    /// a reader that compares the epoch after a read with the one before it, and finds them alike, has read one past.
    fn ledger(&self) -> Ledger;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_of_minutes_and_one_of_seconds_tell_when_they_began() {
        let began = |epoch: u64| {
            let seal_key = SealKey::new([0; 32]);
            Ledger { id: Uuid::nil(), epoch: epoch.into(), shard_count: 1, seal_key }.epoch_began()
        };
        assert_eq!(began(476_977), "2026-11-28T05:37Z");
        assert_eq!(began(14_309_310), "2026-11-28T05:37Z");
    }

    #[test]
    fn a_ledger_that_is_shown_keeps_its_key_to_itself() {
        let seal_key = SealKey::new([0xa7; 32]);
        let ledger = Ledger { id: Uuid::nil(), epoch: LedgerEpoch::FIRST, shard_count: 1, seal_key };
        let shown = format!("{ledger:?} {ledger:#?}");
        assert!(shown.contains("SealKey(***)") && !shown.contains("167") && !shown.contains("a7"), "{shown}");
    }
}
