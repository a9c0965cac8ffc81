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

    /// Whether one run of a value fills it.
    pub(super) fn takes_one(&self) -> bool {
        self.limit == 1
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
        for run_id in running {
            self.count(value, run_id);
        }
        true
    }

    /// No claim is on its way that began before so many ends had been told.
    pub(super) fn forget_ends(&mut self, until: u64) {
        while self.ended.front().is_some_and(|(number, _)| *number <= until) {
            self.ended.pop_front();
        }
    }

    /// The store says which runs of a value count: all others, but those that are being claimed, have ended.
    pub(super) fn only(&mut self, value: &str, running: &[String], being_claimed: impl Fn(&str) -> bool) {
        let Some(runs) = self.of_value.get(value) else { return };
        let ended = runs.iter().filter(|run_id| !running.contains(run_id) && !being_claimed(run_id));
        for run_id in ended.cloned().collect::<Vec<_>>() {
            self.discount(&run_id);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|&id| id.to_owned()).collect()
    }

    #[test]
    fn a_value_is_full_until_one_of_its_runs_ends() {
        let mut running = Running::new(2);
        running.count("a", "run-1");
        assert!(running.has_room("a"));
        assert!(running.refused("a", &ids(&["run-1", "run-2"]), running.ends()));
        assert!(!running.has_room("a") && running.has_room("b"));
        assert_eq!(running.end("run-2").as_deref(), Some("a"));
        assert!(running.has_room("a"));
        assert_eq!(running.end("stranger"), None);
    }

    #[test]
    fn what_ended_while_a_claim_was_on_its_way_is_not_waited_for() {
        let mut running = Running::new(1);
        let before = running.ends();
        running.end("run-1");
        assert!(!running.refused("a", &ids(&["run-1"]), before), "it will not be told again");
        assert!(running.has_room("a"));
        running.forget_ends(running.ends());
        assert!(running.refused("a", &ids(&["run-2"]), running.ends()));
        assert!(!running.has_room("a"));
    }

    #[test]
    fn of_what_ended_in_a_moment_of_doubt_nothing_is_believed() {
        let mut running = Running::new(1);
        let before = running.ends();
        running.doubt();
        assert!(!running.refused("a", &ids(&["run-1"]), before), "its end may have been missed");
        for n in 0..=ENDED_MAX {
            running.end(&format!("run-{n}"));
        }
        assert!(!running.refused("a", &ids(&["other"]), before), "nor of what ended too long ago to be remembered");
    }

    #[test]
    fn what_the_store_says_counts_is_all_that_counts() {
        let mut running = Running::new(3);
        for run_id in ["run-1", "run-2", "claimed-now"] {
            running.count("a", run_id);
        }
        assert!(!running.has_room("a"));
        running.only("a", &ids(&["run-2", "unheard-of"]), |run_id| run_id == "claimed-now");
        assert_eq!(running.of_value["a"], ids(&["run-2", "claimed-now"]).into_iter().collect());
    }
}
