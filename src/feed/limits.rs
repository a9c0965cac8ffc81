//! How much the feed keeps and reads.

/// How large the ring is, and how much one read of the history takes. A test that has to reach one starts the feed
/// with a smaller one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of recent changes kept for sessions at most.
    pub ring_bytes_max: usize,
    /// Events of one run that one read of its history takes at most.
    pub run_page_events_max: usize,
    /// Events of all runs that one read of the history takes from a shard at most.
    pub log_page_events_max: usize,
    /// Runs that one read of a first view takes at most.
    pub view_page_runs_max: usize,
    /// About how many bytes one of these reads takes at most. A session keeps its page for as long as its reader
    /// sleeps.
    pub page_bytes_max: usize,
    /// Bytes of pages of the history that sessions share at most, and of what they have shown of them.
    pub shared_pages_bytes_max: usize,
}

impl Limits {
    /// The service's.
    pub const DEFAULT: Self = Self {
        ring_bytes_max: 32 * 1024 * 1024,
        run_page_events_max: 100,
        log_page_events_max: 256,
        view_page_runs_max: 100,
        page_bytes_max: 64 * 1024,
        shared_pages_bytes_max: 16 * 1024 * 1024,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
