//! How much the engine takes.

use std::time::Duration;

/// How much of a queue and of a commit there may be. A test that has to reach one starts the engine with a smaller one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Commands that one shard queues at most.
    pub queue_commands_max: usize,
    /// Bytes of commands that all shards hold at most, queued and in flight.
    pub queue_bytes_max: usize,
    /// Commands in one commit at most.
    pub batch_commands_max: usize,
    /// Commands in one commit at most where commands of lists wait and single ones come as well, unless half of it are
    /// single: who waits for one command waits for the commit that is under way, and for the next one.
    pub batch_mixed_max: usize,
    /// Bytes of commands in one commit at most; a single command may weigh more.
    pub batch_bytes_max: usize,
    /// Bytes of runs that a commit should read and make at most: one that took more is followed by a shorter one.
    pub batch_runs_bytes_max: usize,
    /// The time that a command waits in a queue at most: an older one is refused when its turn comes.
    pub wait_max: Duration,
    /// The same in a crowded queue.
    pub crowded_wait_max: Duration,
    /// A queue is crowded when each batch of this time has left commands in it.
    pub crowded_after: Duration,
}

impl Limits {
    /// The service's.
    pub const DEFAULT: Self = Self {
        queue_commands_max: 4096,
        queue_bytes_max: 64 * 1024 * 1024,
        batch_commands_max: 512,
        batch_mixed_max: 64,
        batch_bytes_max: 4 * 1024 * 1024,
        batch_runs_bytes_max: 32 * 1024 * 1024,
        wait_max: Duration::from_secs(3),
        crowded_wait_max: Duration::from_millis(100),
        crowded_after: Duration::from_millis(500),
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
