//! The `max_running` of a queue's claims, and the runs that count towards it, as far as the queue knows: those that it
//! handed out, and those that refusals named, until the feed tells of their end. A claim is decided in
//! `domain::decide::max_running`; a queue foresees it, to save claims that would be refused.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::room::CountedRoom;
use crate::domain::RunId;

/// About the bytes of a run that counts, which stands in the set of its value and in the map of values, and of its value,
/// without their texts.
const RUN_BYTES: usize = 2 * size_of::<(RunId, Arc<str>)>() * 3 / 2 + 2 * size_of::<(Arc<str>, HashSet<RunId>)>();

fn weight(run_id: &str, value: &str) -> usize {
    RUN_BYTES + run_id.len() + value.len()
}

/// See the module.
pub(super) struct Counted {
    pub(super) max: usize,
    /// The bytes of what counts. No run is left out for want of room: one that is not counted would be claimed in vain
    /// again and again.
    room: CountedRoom,
    /// The runs that count, by value.
    running: HashMap<Arc<str>, HashSet<RunId>>,
    value_of: HashMap<RunId, Arc<str>>,
}

impl Counted {
    /// A limit that nothing counts towards.
    pub(super) fn new(max: usize, room: CountedRoom) -> Self {
        Self { max, room, running: HashMap::new(), value_of: HashMap::new() }
    }

    /// Whether one more run of a value may be running, beside the one that kept its slot. Runs without a value are not
    /// limited.
    pub(super) fn has_room(&self, value: Option<&Arc<str>>, keeps_slot: Option<&RunId>) -> bool {
        value.and_then(|value| self.running.get(value)).is_none_or(|running| {
            let its_own = usize::from(keeps_slot.is_some_and(|run_id| running.contains(run_id)));
            running.len() - its_own < self.max
        })
    }

    /// A run counts towards a value. Returns the value that it counted towards before.
    pub(super) fn count(&mut self, value: &Arc<str>, run_id: &RunId) -> Option<Arc<str>> {
        let before = self.discount(run_id);
        self.room.add(weight(run_id, value));
        self.running.entry(value.clone()).or_default().insert(run_id.clone());
        self.value_of.insert(run_id.clone(), value.clone());
        before
    }

    /// A run does not count any more. Returns the value that it counted towards.
    pub(super) fn discount(&mut self, run_id: &str) -> Option<Arc<str>> {
        let value = self.value_of.remove(run_id)?;
        self.room.take(weight(run_id, &value));
        if let Some(running) = self.running.get_mut(&value) {
            running.remove(run_id);
            if running.is_empty() {
                self.running.remove(&value);
            }
        }
        Some(value)
    }

    /// Of a value, at most these runs count.
    pub(super) fn retain(&mut self, value: &str, counts: impl Fn(&str) -> bool) {
        let running = self.running.get(value).into_iter().flatten();
        for run_id in running.filter(|run_id| !counts(run_id)).cloned().collect::<Vec<_>>() {
            self.discount(&run_id);
        }
    }
}
