//! Recent changes in the order of the log, bounded in bytes, and the sessions that wait for the next one.
//!
//! While no session watches many runs, only changes of watched runs are in the ring. Once one does, every event from
//! `begun` on is in the ring. Invariant: after `begun`, positions are dense in each shard, so that a session can tell
//! which events it has seen.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;

use super::watchers::Watchers;
use super::{Change, LogPlace};
use crate::domain::{Filter, LedgerEpoch, Namespace, Position, Positions, Revision, Time};

/// Changes that a session looks at before it gives up the ring's lock.
const LOOKS_MAX: u64 = 1024;

/// A change and its place.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) change: Change,
    pub(super) place: LogPlace,
    /// The tailer's positions after the change.
    pub(super) positions: Box<[Position]>,
    /// The cursor after the change, for clients.
    pub(super) cursor: Bytes,
}

impl Entry {
    /// The approximate number of bytes that the entry takes in memory.
    pub(super) fn weight(&self) -> usize {
        let positions = size_of_val::<[Position]>(&self.positions);
        size_of::<Self>() + self.change.weight() + self.cursor.len() + positions
    }
}

/// See the module.
pub(super) struct Ring {
    /// Bytes of changes that are kept at most.
    bytes_max: usize,
    /// The entries, each with the topic of its run where that is watched.
    entries: VecDeque<(Arc<Entry>, Option<u64>)>,
    /// The number of the oldest entry.
    first: u64,
    bytes: usize,
    /// The beginning from which on every event is in the ring; none while events are left out.
    begun: Option<Begun>,
    beginnings: u64,
    /// The tailer's positions.
    end: Positions,
    /// The store's clock when the log was last read to its end.
    as_of: Option<Time>,
    /// The changes of watched runs, by topic and revision.
    of_topics: HashMap<(u64, Revision), Arc<Entry>>,
    watchers: Watchers,
    /// The ledger's epoch of all entries. A session that began in another epoch gets none of them.
    epoch: LedgerEpoch,
}

struct Begun {
    /// The number of this beginning: between one beginning and the next, events were left out.
    beginning: u64,
    /// The first entry.
    number: u64,
    /// The positions before the first entry.
    positions: Positions,
}

/// The stand of a session that watches many runs: the place up to which it has read.
pub(super) struct Stand {
    /// The ring's beginning that it reads from, and the next entry to look at; none while it reads history.
    next: Option<(u64, u64)>,
    /// The positions of the last events that the session has delivered, or need not deliver.
    pub(super) positions: Positions,
}

impl Stand {
    pub(super) fn at(positions: Positions) -> Self {
        Self { next: None, positions }
    }

    /// Notes that an event was delivered, or need not be.
    pub(super) fn pass(&mut self, (shard, position): LogPlace) {
        self.positions.set(shard, position);
    }
}

/// The next step for a session.
pub(super) enum Next {
    /// The session shows this entry; whether its run still matches.
    Change(Arc<Entry>, bool),
    /// The session waits: the log was last read to its end at this time.
    Nothing(Option<Time>),
    /// The session calls again, after others have had the ring.
    More,
    /// The session reads history: the ring does not reach back so far.
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
            end: Positions::default(),
            as_of: None,
            of_topics: HashMap::new(),
            watchers: Watchers::default(),
            epoch: LedgerEpoch::FIRST,
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

    pub(super) fn watchers_bytes(&self) -> usize {
        self.watchers.bytes()
    }

    pub(super) fn has_watchers(&self) -> bool {
        !self.watchers.is_empty()
    }

    pub(super) fn admit(
        &mut self,
        id: u64,
        namespace: Namespace,
        filter: Arc<Filter>,
        epoch: LedgerEpoch,
    ) -> (Arc<Notify>, Arc<Notify>) {
        self.watchers.admit(id, namespace, filter, epoch)
    }

    /// Whether a session has taken all that the ring has for it, and misses nothing of what it was told before.
    pub(super) fn has_told_all(&self, id: u64) -> bool {
        let watcher = self.watchers.get(id).filter(|watcher| watcher.epoch == self.epoch);
        let begun = self.begun.as_ref().map(|begun| begun.beginning);
        begun.is_some_and(|begun| watcher.is_some_and(|watcher| watcher.has_looked_since(begun)))
    }

    pub(super) fn dismiss(&mut self, id: u64) {
        self.watchers.dismiss(id);
        if self.watchers.is_empty() {
            self.begun = None;
        }
    }

    /// Empties the ring for a new beginning in an epoch, since the next entries may not follow the present ones.
    /// Sessions of another epoch are woken, to end.
    pub(super) fn clear(&mut self, epoch: LedgerEpoch) {
        self.epoch = epoch;
        self.watchers.wake(|watcher| watcher.epoch != epoch);
        self.first += self.entries.len() as u64;
        self.entries.clear();
        self.of_topics.clear();
        self.bytes = 0;
        self.begun = None;
    }

    /// Begins to keep every event after these positions. Sessions that read history use the ring once they have reached
    /// them.
    pub(super) fn begin(&mut self, positions: &Positions) {
        if self.begun.is_none() {
            self.beginnings += 1;
            let (beginning, number) = (self.beginnings, self.end_number());
            self.begun = Some(Begun { beginning, number, positions: positions.clone() });
            self.end = positions.clone();
            self.watchers.wake(|_| true);
        }
    }

    /// Notes that the next event is left out: a session that has not seen it must look into the history.
    pub(super) fn interrupt(&mut self) {
        self.begun = None;
    }

    /// The change that made a revision of a watched run, while the ring has it and is of this epoch.
    pub(super) fn of_topic(&self, topic: u64, revision: Revision, epoch: LedgerEpoch) -> Option<Arc<Entry>> {
        if self.epoch == epoch { self.of_topics.get(&(topic, revision)).cloned() } else { None }
    }

    /// Takes a page of the log, whose entries may be watched as topics, up to `end`; `as_of` when that is the log's
    /// end.
    pub(super) fn take(&mut self, page: Vec<(Arc<Entry>, Option<u64>)>, end: &Positions, as_of: Option<Time>) {
        for (entry, topic) in page {
            self.watchers.tell(&entry.change, self.end_number());
            self.bytes += entry.weight();
            if let Some(topic) = topic {
                self.of_topics.insert((topic, entry.change.revision), entry.clone());
            }
            self.entries.push_back((entry, topic));
        }
        self.end = end.clone();
        self.as_of = as_of.or(self.as_of);
        while self.bytes > self.bytes_max {
            let Some((oldest, topic)) = self.entries.pop_front() else { break };
            self.bytes -= oldest.weight();
            if let Some(topic) = topic {
                self.of_topics.remove(&(topic, oldest.change.revision));
            }
            if let Some(begun) = self.begun.as_mut().filter(|begun| begun.number == self.first) {
                begun.number += 1;
                begun.positions = oldest.positions.to_vec().into();
            }
            self.first += 1;
        }
    }

    /// The next step for a session at `stand`.
    pub(super) fn next(&mut self, id: u64, stand: &mut Stand) -> Next {
        let end = self.end_number();
        let watcher = self.watchers.get(id).filter(|watcher| watcher.epoch == self.epoch);
        let (Some(begun), Some(watcher)) = (&self.begun, watcher) else {
            stand.next = None;
            return Next::Behind;
        };
        let reads_on = stand.next.filter(|(beginning, next)| {
            // Entries that were evicted since were not for the session, or it has looked at them.
            *beginning == begun.beginning && (*next >= begun.number || watcher.pending(end) >= begun.number)
        });
        let reads_on = match reads_on {
            Some((_, next)) => next.max(begun.number),
            None if stand.positions.reaches(&begun.positions) => begun.number,
            None => {
                stand.next = None;
                return Next::Behind;
            }
        };
        // No entry before the session's pending one is for it.
        let mut number = reads_on.max(watcher.pending(end));
        let before = match number.checked_sub(begun.number) {
            Some(1..) => &*self.entries[self.index(number) - 1].0.positions,
            Some(0) | None => &*begun.positions,
        };
        stand.positions.advance(before);
        let looks_end = end.min(number + LOOKS_MAX);
        while number < looks_end {
            let (entry, _) = &self.entries[self.index(number)];
            number += 1;
            let (shard, position) = entry.place;
            // A shard's positions are dense: an event that the session has seen is not shown again.
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
        stand.positions.advance(&self.end);
        self.watchers.has_looked(id, begun.beginning);
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
