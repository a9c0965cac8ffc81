//! What a queue knows of the runs that count towards its limit: which values of the label have no room. A hint, which saves
//! claims that would be refused; the store decides.
//!
//! A refusal says which runs count. They are remembered until the feed tells of their end: so nobody has to ask again. An
//! end that was told while the claim was on its way is looked for, since it will not be told again.

use std::collections::{HashMap, HashSet, VecDeque};

/// Ends that are remembered at most for claims on their way.
const ENDED_MAX: usize = 65_536;

/// See the module.
#[derive(Default)]
pub(super) struct Running {
    limit: usize,
    of_value: HashMap<String, HashSet<String>>,
    value_of: HashMap<String, String>,
    /// How many ends were told.
    ends: u64,
    /// The last of them, with their numbers, while claims are on their way.
    ended: VecDeque<(u64, String)>,
    /// Up to this number, ends were forgotten.
    forgotten: u64,
}

impl Running {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Whether one more of a value may run, as far as is known.
    pub(super) fn has_room(&self, value: &str) -> bool {
        self.of_value.get(value).is_none_or(|runs| runs.len() < self.limit)
    }

    /// How many ends were told so far.
    pub(super) fn ends(&self) -> u64 {
        self.ends
    }

    /// It runs, or is being claimed.
    pub(super) fn count(&mut self, value: &str, run_id: &str) {
        self.of_value.entry(value.to_owned()).or_default().insert(run_id.to_owned());
        self.value_of.insert(run_id.to_owned(), value.to_owned());
    }

    /// It does not run. The value that it counted towards, if it did.
    pub(super) fn discount(&mut self, run_id: &str) -> Option<String> {
        let value = self.value_of.remove(run_id)?;
        if let Some(runs) = self.of_value.get_mut(&value) {
            runs.remove(run_id);
            if runs.is_empty() {
                self.of_value.remove(&value);
            }
        }
        Some(value)
    }

    /// The feed tells of an end. The value that the run counted towards, if it did.
    pub(super) fn end(&mut self, run_id: &str) -> Option<String> {
        self.ends += 1;
        self.ended.push_back((self.ends, run_id.to_owned()));
        if self.ended.len() > ENDED_MAX {
            self.forgotten = self.ended.pop_front().map_or(0, |(number, _)| number);
        }
        self.discount(run_id)
    }

    /// A claim that began when so many ends had been told was refused because these run. Whether that still holds, as far
    /// as is known; then they are remembered.
    pub(super) fn refused(&mut self, value: &str, running: &[String], since: u64) -> bool {
        let ended = || self.ended.iter().filter(|(number, _)| *number > since).map(|(_, run_id)| run_id);
        if self.forgotten > since || ended().any(|run_id| running.contains(run_id)) {
            return false;
        }
        running.iter().for_each(|run_id| self.count(value, run_id));
        true
    }

    /// No claim is on its way that began before so many ends had been told.
    pub(super) fn forget_ends(&mut self, until: u64) {
        while self.ended.front().is_some_and(|(number, _)| *number <= until) {
            self.ended.pop_front();
        }
    }

    /// Nothing is known any more: ends may have been missed.
    pub(super) fn doubt(&mut self) {
        self.of_value.clear();
        self.value_of.clear();
        self.ended.clear();
        self.ends += 1;
        self.forgotten = self.ends;
    }
}
