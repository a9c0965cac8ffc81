//! The memory that the parts of the authority take, counted in one place.

use runledger_proto::methods::Shed;

use super::Authority;
use crate::memory::{MemoryUse, Pressure};

/// Whether calls that are shed so are not taken on under a pressure on the process's memory.
#[must_use]
pub fn is_shed(shed: Shed, pressure: Pressure) -> bool {
    match shed {
        Shed::Never => false,
        Shed::Tight => pressure >= Pressure::Tight,
        Shed::Scarce => pressure >= Pressure::Scarce,
    }
}

impl Authority {
    /// What each part takes, and may take.
    #[must_use]
    pub fn memory(&self) -> Vec<MemoryUse> {
        let bounded = |name, (bytes, bytes_max)| MemoryUse { name, bytes, bytes_max: Some(bytes_max) };
        let reads =
            MemoryUse { name: "reads", bytes: self.reads.bytes() + self.reads.waiting_bytes(), bytes_max: None };
        let mut parts = vec![
            bounded("commands", self.engine.bytes()),
            bounded("renewals", self.renewals.bytes()),
            bounded("claim_queues", self.claims.bytes()),
            MemoryUse { name: "counted_runs", bytes: self.claims.counted_bytes(), bytes_max: None },
            reads,
        ];
        parts.extend(self.feed.memory());
        parts.extend(self.store.memory());
        parts
    }
}
