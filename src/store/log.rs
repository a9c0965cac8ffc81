//! The path on which the feed and the tools read the log: events in their order, of all shards and of one run.

use async_trait::async_trait;

use super::{OfLedger, StoreError};
use crate::domain::{Event, Namespace, Position, Positions, Revision, RunKey, Shard, Time};

/// The log of the events of runs.
#[async_trait]
pub trait RunLog: OfLedger {
    /// Each shard's last position (0 when empty), in one snapshot.
    async fn ends(&self) -> Result<Positions, StoreError>;

    /// The events of all shards above `after` (a position for each shard), in one snapshot, merged by (`at`, shard,
    /// position), at most about `limit` for each shard and about `bytes_max` in all as stored, at least one if there is
    /// one. A merged page ends where the first cut shard ends, so that no event comes before one that belongs in
    /// front of it. An event that cannot be decoded stands in its place as [`Unreadable`], and costs no other event.
    async fn changes(&self, after: &Positions, limit: usize, bytes_max: usize) -> Result<Page, StoreError>;

    /// The events of one namespace above `after`: the page that [`changes`](RunLog::changes) would give of a log that
    /// has no others, and as quickly. A page that is not cut says in [`ends`](Page::ends) up to which positions it has
    /// all of them. Of `default`, and where nobody watches, it is [`changes`](RunLog::changes), with others' events.
    async fn changes_of(
        &self,
        namespace: &Namespace,
        after: &Positions,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Page, StoreError>;

    /// A run's events above `after`, by revision, at most `limit` and about `bytes_max` as stored, at least one if
    /// there is one.
    async fn run_events(
        &self,
        key: &RunKey,
        after: Revision,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Event>, StoreError>;

    /// The revision that each run had when its shard's last position was that of `ends`; [`Revision::NONE`] when
    /// the run did not exist.
    async fn revisions_as_of(&self, keys: &[RunKey], ends: &Positions) -> Result<Vec<Revision>, StoreError>;

    /// The last position of each shard of which an event of a namespace may be gone: 0 where all are there. It only grows.
    /// So whoever reads it after a page has missed nothing in the page that comes after these positions.
    async fn forgotten(&self, namespace: &Namespace) -> Result<Positions, StoreError>;

    /// Resolves when another process may have committed; may resolve without cause, and may miss a commit. Never
    /// resolves where no other process can write, or where nothing tells of it.
    async fn foreign_commit(&self);
}

/// The bytes of events that one page of history may hold as stored, about: a page is held in memory whole.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// A page of the log.
#[derive(Debug)]
pub struct Page {
    /// The store's clock when the page was read.
    pub as_of: Time,
    /// The events, merged, each as it was read or why it cannot be.
    pub events: Vec<Result<LoggedEvent, Unreadable>>,
    /// Whether there may be more right away.
    pub cut: bool,
    /// The ends of the shards in the page's snapshot, where the page leaves out events of others: the log has no more
    /// events of the namespace up to these. None: the page has every event, or is cut.
    pub ends: Option<Positions>,
}

impl Page {
    /// The events, when all of them could be read.
    ///
    /// # Errors
    ///
    /// The error of the first event that could not be read.
    pub fn whole(self) -> Result<Vec<LoggedEvent>, StoreError> {
        self.events.into_iter().map(|event| event.map_err(|unreadable| unreadable.error)).collect()
    }

    /// The places that the page covers: the shard and the position of each of its events.
    pub fn places(&self) -> impl Iterator<Item = (Shard, Position)> {
        self.events.iter().map(|event| match event {
            Ok(logged) => (logged.shard, logged.position),
            Err(unreadable) => (unreadable.shard, unreadable.position),
        })
    }
}

/// An event that cannot be decoded, and where it stands.
#[derive(Debug)]
pub struct Unreadable {
    /// The event's shard.
    pub shard: Shard,
    /// The event's position.
    pub position: Position,
    /// The time of the event.
    pub at: Time,
    /// The run that the event is of.
    pub key: RunKey,
    /// The event's revision.
    pub revision: Revision,
    /// The reason why the event cannot be read.
    pub error: StoreError,
}

/// An event and its place in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedEvent {
    /// The event's shard.
    pub shard: Shard,
    /// The event's position.
    pub position: Position,
    pub event: Event,
}
