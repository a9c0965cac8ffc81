//! Recent changes in the order of the log, bounded in bytes, and who waits for the next one.
//!
//! While nobody watches many runs, only changes of watched runs are in the ring. Once somebody does, every event is, from
//! `begun` on: behind it, positions are dense in each shard, so that a session can tell what it has seen.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;

use super::cursor::{advance, reaches};
use super::{Change, LogPlace};
use crate::domain::{Filter, Position, Time};

/// Changes that a session looks at before it lets others have the ring.
const LOOKS_MAX: u64 = 1024;

/// No change waits for a watcher.
const NONE: u64 = u64::MAX;

/// A change and its place.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) change: Change,
    pub(super) place: LogPlace,
    /// Where the tailer stood after it.
    pub(super) positions: Box<[Position]>,
    /// The same, for clients.
    pub(super) cursor: Bytes,
}

impl Entry {
    /// About how many bytes it takes in memory.
    pub(super) fn weight(&self) -> usize {
        let positions = size_of_val::<[Position]>(&self.positions);
        size_of::<Self>() + self.change.weight() + self.cursor.len() + positions
    }
}

/// See the module.
pub(super) struct Ring {
    /// Bytes of changes that are kept at most.
    bytes_max: usize,
    /// With the topic of a watched run.
    entries: VecDeque<(Arc<Entry>, Option<u64>)>,
    /// The number of the oldest entry.
    first: u64,
    bytes: usize,
    /// From where on every event is here; none while not every event is.
    begun: Option<Begun>,
    beginnings: u64,
    /// Where the tailer stands.
    end: Vec<Position>,
    /// The store's clock when the log was last read to its end.
    as_of: Option<Time>,
    /// The changes of watched runs, by topic and revision.
    of_topics: HashMap<(u64, u64), Arc<Entry>>,
    watchers: HashMap<u64, Watcher>,
    /// The ledger's epoch that everything here is of. Who watches since another has no place here.
    epoch: u64,
}

struct Begun {
    /// Which of the ring's beginnings it is: between one and the next, events were left out.
    beginning: u64,
    /// The first entry.
    number: u64,
    /// The positions before it.
    positions: Vec<Position>,
}

/// A session that watches many runs.
struct Watcher {
    namespace: String,
    filter: Arc<Filter>,
    /// The oldest entry that it has not looked at and that may be for it. Before that, nothing is.
    pending: u64,
    wake: Arc<Notify>,
    /// The ledger's epoch when it began.
    epoch: u64,
}

impl Watcher {
    fn shows(&self, change: &Change) -> Option<bool> {
        change.shown_to(&self.namespace, &self.filter)
    }
}

/// Where a session that watches many runs stands.
pub(super) struct Stand {
    /// The ring's beginning that it reads from, and the next entry to look at; none while it reads history.
    next: Option<(u64, u64)>,
    /// What it has delivered, or need not deliver.
    pub(super) positions: Vec<Position>,
}

impl Stand {
    pub(super) fn at(positions: Vec<Position>) -> Self {
        Self { next: None, positions }
    }

    /// Notes that an event was delivered, or need not be.
    pub(super) fn pass(&mut self, (shard, position): LogPlace) {
        self.positions[usize::from(shard.0)] = position;
    }
}

/// What comes next for a session.
pub(super) enum Next {
    /// This one, and whether its run still matches.
    Change(Arc<Entry>, bool),
    /// Nothing yet: the log was last read to its end at this time.
    Nothing(Option<Time>),
    /// Others may have the ring first.
    More,
    /// The ring does not reach back so far.
    Behind,
}

impl Ring {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            entries: VecDeque::new(),
            first: 0,
            bytes: 0,
            begun: None,
            beginnings: 0,
            end: Vec::new(),
            as_of: None,
            of_topics: HashMap::new(),
            watchers: HashMap::new(),
            epoch: 0,
        }
    }

    pub(super) fn as_of(&self) -> Option<Time> {
        self.as_of
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn watchers(&self) -> usize {
        self.watchers.len()
    }

    pub(super) fn has_watchers(&self) -> bool {
        !self.watchers.is_empty()
    }

    pub(super) fn admit(&mut self, id: u64, namespace: String, filter: Arc<Filter>, epoch: u64) -> Arc<Notify> {
        let wake = Arc::new(Notify::new());
        // Whatever is here may be for it.
        self.watchers.insert(id, Watcher { namespace, filter, pending: 0, wake: wake.clone(), epoch });
        wake
    }

    pub(super) fn dismiss(&mut self, id: u64) {
        self.watchers.remove(&id);
        if self.watchers.is_empty() {
            self.begun = None;
        }
    }

    /// Begins anew, with what is of an epoch: what is here may not be followed by what comes. Sessions of another epoch are
    /// woken, to end.
    pub(super) fn clear(&mut self, epoch: u64) {
        self.epoch = epoch;
        let others = self.watchers.values().filter(|watcher| watcher.epoch != epoch);
        others.for_each(|watcher| watcher.wake.notify_one());
        self.first += self.entries.len() as u64;
        self.entries.clear();
        self.of_topics.clear();
        self.bytes = 0;
        self.begun = None;
    }

    /// From here on every event comes, after these positions. Sessions that read history come when they have reached it.
    pub(super) fn begin(&mut self, positions: &[Position]) {
        if self.begun.is_none() {
            self.beginnings += 1;
            let (beginning, number) = (self.beginnings, self.end_number());
            self.begun = Some(Begun { beginning, number, positions: positions.to_vec() });
            self.end = positions.to_vec();
            self.watchers.values().for_each(|watcher| watcher.wake.notify_one());
        }
    }

    /// The next event is not here: who has not seen it must look into the history.
    pub(super) fn interrupt(&mut self) {
        self.begun = None;
    }

    /// The change that made a revision of a watched run, while it is here and of this epoch.
    pub(super) fn of_topic(&self, topic: u64, revision: u64, epoch: u64) -> Option<Arc<Entry>> {
        if self.epoch == epoch { self.of_topics.get(&(topic, revision)).cloned() } else { None }
    }

    /// Takes a page of the log, whose entries may be watched as topics, up to `end`; `as_of` when that is the log's end.
    pub(super) fn take(&mut self, page: Vec<(Arc<Entry>, Option<u64>)>, end: &[Position], as_of: Option<Time>) {
        let new = self.end_number();
        for (entry, topic) in page {
            self.bytes += entry.weight();
            if let Some(topic) = topic {
                self.of_topics.insert((topic, entry.change.revision), entry.clone());
            }
            self.entries.push_back((entry, topic));
        }
        self.tell_watchers(new);
        self.end = end.to_vec();
        self.as_of = as_of.or(self.as_of);
        while self.bytes > self.bytes_max {
            let Some((oldest, topic)) = self.entries.pop_front() else { break };
            self.bytes -= oldest.weight();
            if let Some(topic) = topic {
                self.of_topics.remove(&(topic, oldest.change.revision));
            }
            if let Some(begun) = self.begun.as_mut().filter(|begun| begun.number == self.first) {
                begun.number += 1;
                begun.positions = oldest.positions.to_vec();
            }
            self.first += 1;
        }
    }

    fn tell_watchers(&mut self, new: u64) {
        let skipped = self.index(new);
        for watcher in self.watchers.values_mut().filter(|watcher| watcher.pending == NONE) {
            let mut entries = self.entries.range(skipped..).zip(new..);
            let found = entries.find(|((entry, _), _)| watcher.shows(&entry.change).is_some());
            if let Some((_, number)) = found {
                watcher.pending = number;
                watcher.wake.notify_one();
            }
        }
    }

    /// What comes next for a session at `stand`.
    pub(super) fn next(&mut self, id: u64, stand: &mut Stand) -> Next {
        let end = self.end_number();
        let watcher = self.watchers.get(&id).filter(|watcher| watcher.epoch == self.epoch);
        let (Some(begun), Some(watcher)) = (&self.begun, watcher) else {
            stand.next = None;
            return Next::Behind;
        };
        let reads_on = stand.next.filter(|(beginning, next)| {
            // What has left the ring since was not for it, or it has looked at it.
            *beginning == begun.beginning && (*next >= begun.number || watcher.pending >= begun.number)
        });
        let reads_on = match reads_on {
            Some((_, next)) => next.max(begun.number),
            None if reaches(&stand.positions, &begun.positions) => begun.number,
            None => {
                stand.next = None;
                return Next::Behind;
            }
        };
        // Nothing before its pending entry is for it.
        let mut number = reads_on.max(watcher.pending.min(end));
        let before = match number.checked_sub(begun.number) {
            Some(1..) => &self.entries[self.index(number) - 1].0.positions,
            Some(0) | None => begun.positions.as_slice(),
        };
        advance(&mut stand.positions, before);
        let looks_end = end.min(number + LOOKS_MAX);
        while number < looks_end {
            let (entry, _) = &self.entries[self.index(number)];
            number += 1;
            let (shard, position) = entry.place;
            // A shard's positions are dense: what it has seen is not shown again.
            if position > stand.positions[usize::from(shard.0)] {
                stand.pass(entry.place);
                if let Some(matches) = watcher.shows(&entry.change) {
                    stand.next = Some((begun.beginning, number));
                    return Next::Change(entry.clone(), matches);
                }
            }
        }
        stand.next = Some((begun.beginning, number));
        if number < end {
            return Next::More;
        }
        advance(&mut stand.positions, &self.end);
        if let Some(watcher) = self.watchers.get_mut(&id) {
            watcher.pending = NONE;
        }
        Next::Nothing(self.as_of)
    }

    fn index(&self, number: u64) -> usize {
        usize::try_from(number - self.first).expect("less than the ring's length")
    }

    /// The number that the next entry gets.
    fn end_number(&self) -> u64 {
        self.first + self.entries.len() as u64
    }
}

#[cfg(test)]
mod tests;
