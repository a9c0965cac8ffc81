//! Invariants of a store at any time, after any commands.

use std::collections::{BTreeMap, BTreeSet};

use runledger::domain::steady::STEP_MIN_MICROS;
use runledger::domain::{Positions, Priority, Run, RunKey, Time};
use runledger::store::query::{Place, ReadyOf};
use runledger::store::{LoggedEvent, PAGE_BYTES_MAX, Page, Store};

use super::asking::{beginning, home};
use crate::support::model::folded;

/// All rows of a store.
pub(crate) struct Contents {
    /// The log, merged.
    pub(crate) log: Vec<LoggedEvent>,
    /// The runs: the fold of the log, and equal to what the store says of each.
    pub(crate) runs: BTreeMap<RunKey, Run>,
}

impl Contents {
    pub(crate) fn revisions(&self, key: &RunKey) -> u64 {
        self.log.iter().filter(|logged| logged.event.key == *key).count().try_into().unwrap()
    }

    pub(crate) fn terminal_events(&self, key: &RunKey) -> usize {
        let events = self.log.iter().map(|logged| &logged.event).filter(|event| event.key == *key);
        events.filter(|event| event.to.is_terminal() && event.from != Some(event.to)).count()
    }
}

/// Reads everything and holds it against itself: positions dense and from 1, times that never fall within a run, every event in its
/// run's shard, dense revisions, and runs that are the fold of their events.
pub(crate) async fn sound(store: &dyn Store) -> Contents {
    let log = pages(store, 1000).await;
    let mut ends = beginning(store);
    let (mut times, mut times_of_runs) = (BTreeMap::new(), BTreeMap::new());
    for LoggedEvent { shard, position, event } in &log {
        ends.set(*shard, ends.of(*shard) + 1);
        assert_eq!(*position, ends.of(*shard), "positions are dense, from 1, in {shard:?}");
        assert_eq!(home(store, &event.key), *shard, "an event is in its run's shard");
        let before = times_of_runs.insert(event.key.clone(), event.at);
        assert!(before.is_none_or(|before| before <= event.at), "times never fall in a run: {event:?}");
        // Where the clocks differ by less than this, an event does not note it.
        let happened = event.at.plus_micros(event.steady_ahead_micros);
        let before = times.insert(*shard, happened);
        let is_later = before.is_none_or(|before| before.since(happened) < STEP_MIN_MICROS);
        assert!(is_later, "times never fall in {shard:?} by the steady clock: {event:?}");
    }
    assert_eq!(store.ends().await.unwrap(), ends, "heads are the last positions");
    let runs = folded(log.iter().map(|logged| &logged.event));
    for (key, run) in &runs {
        assert_eq!(store.run(key).await.unwrap().as_ref(), Some(run), "the stored run is the fold of its events");
    }
    let mut ready: Vec<Run> = runs.values().filter(|run| run.is_ready()).map(Run::without_metadata).collect();
    ready.sort_by_key(Place::of);
    let namespaces: BTreeSet<_> = runs.keys().map(|key| &key.namespace).collect();
    let priorities: BTreeSet<_> = runs.values().map(Run::priority).chain([Priority::NONE]).collect();
    for (namespace, priority) in
        namespaces.iter().flat_map(|namespace| priorities.iter().map(move |it| (namespace, it)))
    {
        for not_begun in [true, false] {
            let of = ReadyOf { not_begun, priority: *priority };
            let found = store.ready(namespace, of, None, usize::MAX >> 1).await.unwrap().runs;
            let is_one = |run: &&Run| {
                run.namespace == **namespace && run.priority() == *priority && run.suspension().is_none() == not_begun
            };
            let expected: Vec<Run> = ready.iter().filter(is_one).cloned().collect();
            assert_eq!(found, expected, "who is ready is kept apart, too");
        }
    }
    Contents { log, runs }
}

/// A page of which everything can be read.
pub(crate) struct Whole {
    pub(crate) as_of: Time,
    pub(crate) events: Vec<LoggedEvent>,
    pub(crate) cut: bool,
}

impl Whole {
    pub(crate) fn of(page: Page) -> Self {
        Self { as_of: page.as_of, cut: page.cut, events: page.whole().unwrap() }
    }
}

/// The whole log, read in pages of this size.
pub(crate) async fn pages(store: &dyn Store, limit: usize) -> Vec<LoggedEvent> {
    let mut log = Vec::new();
    let mut after = beginning(store);
    loop {
        let page = Whole::of(store.changes(&after, limit, PAGE_BYTES_MAX).await.unwrap());
        assert!(!page.events.is_empty() || !page.cut, "a page that is cut has something");
        advance(&mut after, &page.events);
        log.extend(page.events);
        if !page.cut {
            return log;
        }
    }
}

/// Moves a cursor past events, which must be the next ones of their shards.
pub(crate) fn advance(after: &mut Positions, events: &[LoggedEvent]) {
    for logged in events {
        let expected = after.of(logged.shard) + 1;
        assert_eq!(logged.position, expected, "nothing missed, nothing repeated in {:?}", logged.shard);
        after.set(logged.shard, logged.position);
    }
}
