//! The links of the runs whose events go by: known from the events themselves, or looked up at the first that is seen.

use std::collections::HashMap;

use crate::domain::{Event, Revision, RunKey};
use crate::store::inspect::Links;

/// Runs that are remembered. Above, all are forgotten, and looked up again when they come by.
const RUNS_MAX: usize = 100_000;

/// Links by run, each with the revision that they are of.
#[derive(Default)]
pub(super) struct Lineage {
    runs: HashMap<RunKey, (Revision, Links)>,
}

impl Lineage {
    /// The runs, each with a revision, whose links right after that revision must be learned before these events can be
    /// shown.
    pub(super) fn unknown<'a>(&mut self, events: impl Iterator<Item = &'a Event>) -> Vec<(RunKey, Revision)> {
        if self.runs.len() > RUNS_MAX {
            self.runs.clear();
        }
        let mut ends: HashMap<&RunKey, Revision> = HashMap::new();
        let mut unknown = Vec::new();
        for event in events {
            let known = ends.insert(&event.key, event.revision).or(self.runs.get(&event.key).map(|(end, _)| *end));
            let before = event.revision.before().filter(|before| known != Some(*before));
            unknown.extend(before.map(|before| (event.key.clone(), before)));
        }
        unknown
    }

    pub(super) fn learn(&mut self, asked: Vec<(RunKey, Revision)>, found: Vec<Links>) {
        self.runs.extend(asked.into_iter().zip(found).map(|((key, revision), links)| (key, (revision, links))));
    }

    /// The links before an event and after it.
    pub(super) fn pass(&mut self, event: &Event) -> (Links, Links) {
        let (_, before) = self.runs.remove(&event.key).unwrap_or_default();
        let mut after = before.clone();
        after.change(event.changes.task_thread_id.as_deref(), event.changes.bindings.audit_session_id.as_deref());
        self.runs.insert(event.key.clone(), (event.revision, after.clone()));
        (before, after)
    }
}
