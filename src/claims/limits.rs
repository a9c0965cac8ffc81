//! How much the queues of claimers keep and read.

use std::time::Duration;

/// How many queues there are, for how long, and how much each keeps and reads. A test that has to reach one starts the
/// claims with a smaller one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Queues at once at most: each follows the log. Above, the one that is idle for the longest is evicted.
    pub queues_max: usize,
    /// Queues that each caller may have, however many there are.
    pub queues_granted: usize,
    /// The time for which a queue outlives its last claimer at least, who usually comes back.
    pub idle_min: Duration,
    /// Runs that a queue keeps at most: of those that only their owner may have, or whose value has no room, some may
    /// stay for long.
    pub runs_max: usize,
    /// Bytes of runs that all queues keep at most.
    pub bytes_max: usize,
    /// Bytes of runs that each queue may keep, however many there are.
    pub bytes_granted: usize,
    /// Candidates that one read brings at most.
    pub page_runs_max: usize,
}

impl Limits {
    /// The service's.
    pub const DEFAULT: Self = Self {
        queues_max: 1_024,
        queues_granted: 8,
        idle_min: Duration::from_secs(30),
        runs_max: 65_536,
        bytes_max: 64 * 1024 * 1024,
        bytes_granted: 64 * 1024,
        page_runs_max: 256,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
