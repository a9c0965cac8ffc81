//! Epochs: a lease's, which fences off its earlier holders, and the ledger's, which tells its pasts apart.

use super::number::number;

number!(
    /// The epoch of a run's lease, the fencing token: it only grows, and writes under an older one are refused.
    LeaseEpoch
);

number!(
    /// The ledger's epoch: it rises when the ledger turns out to have lost a part of its past, so that no two pasts
    /// have the same.
    LedgerEpoch
);

/// A ledger that lost a part of its past could grant an epoch again that was granted in that part, to a worker that
/// still holds it. So the epochs of leases begin above all earlier ones after a loss: no run has so many leases in one
/// past.
const LEDGER_EPOCH_SHIFT: u32 = 24;

impl LeaseEpoch {
    /// No lease: the run never had one, or the caller names none.
    pub const NONE: Self = Self(0);

    /// The epoch of the run's next lease, granted in this epoch of the ledger.
    #[must_use]
    pub fn next(self, ledger_epoch: LedgerEpoch) -> Self {
        Self((self.0 + 1).max(ledger_epoch.0 << LEDGER_EPOCH_SHIFT))
    }
}

impl LedgerEpoch {
    /// The epoch of a ledger that lost nothing.
    pub const FIRST: Self = Self(0);
}
