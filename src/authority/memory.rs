//! The memory that the parts of the authority take, counted in one place.

use super::Authority;
use crate::memory::Part;

impl Authority {
    /// What each part takes, and may take.
    #[must_use]
    pub fn memory(&self) -> Vec<Part> {
        let bounded = |name, (bytes, bytes_max)| Part { name, bytes, bytes_max: Some(bytes_max) };
        let reads = Part { name: "reads", bytes: self.reads.bytes() + self.reads.waiting_bytes(), bytes_max: None };
        let mut parts = vec![
            bounded("commands", self.engine.bytes()),
            bounded("renewals", self.renewals.bytes()),
            bounded("claim_queues", self.claims.bytes()),
            Part { name: "counted_runs", bytes: self.claims.counted_bytes(), bytes_max: None },
            reads,
        ];
        parts.extend(self.feed.memory());
        parts.extend(self.store.memory());
        parts
    }
}
