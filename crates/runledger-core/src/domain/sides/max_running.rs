//! Limits on the number of runs with one value of a label that may be running at once.
//!
//! The runs that count are those that were claimed under a limit for that label: the claimer states the limit, and the
//! store keeps for each value, in a row of its own, the runs of any shard that count. A run counts from its claim until
//! it is terminal, but not while it is at rest, unless it keeps its slot. A change of its holder or its labels makes no
//! difference.
//!
//! A commit that ends a run does not touch the row: the next claim drops the run from it. No event names the limit of a
//! claim: so the rows are not made from the log, and `verify` does not look at them.

use std::collections::{BTreeMap, HashMap};

use super::side::{Applied, Side};
use crate::domain::{Command, Namespace, Run, RunId, RunKey, RunWrite};

/// A value that a label has in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelValue {
    pub namespace: Namespace,
    /// The label's key.
    pub label: String,
    /// The label's value.
    pub value: String,
}

impl LabelValue {
    /// The value that a command's limit is about; none where the command states no limit, or the run does not have the
    /// label or is neither pending nor at rest.
    #[must_use]
    pub fn limited(run: &Run, command: &Command) -> Option<Self> {
        let label = &command.ask.brought().terms.max_running?.label;
        if run.awaits_claim() || run.is_at_rest() { Self::new(run, label) } else { None }
    }

    /// The value that a run has of a label.
    #[must_use]
    pub fn new(run: &Run, label: &str) -> Option<Self> {
        let value = run.labels.get(label)?.clone();
        Some(Self { namespace: run.namespace.clone(), label: label.to_owned(), value })
    }
}

/// The runs that count for values, as the commands of a batch leave them.
#[derive(Debug)]
pub struct Rows {
    rows: HashMap<LabelValue, Vec<RunId>>,
    added: BTreeMap<LabelValue, Vec<RunId>>,
}

impl Rows {
    /// The runs that count towards the command's limit.
    pub(super) fn row(&self, command: &Command, run: Option<&Run>) -> &[RunId] {
        let value = run.and_then(|run| LabelValue::limited(run, command));
        value.and_then(|value| self.rows.get(&value)).map_or(&[], Vec::as_slice)
    }
}

impl Side for Rows {
    /// The run and the label whose value it has.
    type Key = (RunKey, String);
    /// The runs that count for a value whose row was read, also where none counts. Invariant: no other commit changes
    /// such a row until this one has ended.
    type Row = (LabelValue, Vec<RunId>);
    /// The runs that count from now on, by value.
    type Writes = Vec<(LabelValue, Vec<RunId>)>;

    fn wanted(command: &Command) -> Option<Self::Key> {
        let max = command.ask.brought().terms.max_running?;
        Some((command.key.clone(), max.label.clone()))
    }

    fn is_read_for(command: &Command, _: Option<&Run>) -> bool {
        command.ask.brought().terms.max_running.is_some()
    }

    fn of(rows: Vec<Self::Row>) -> Self {
        Self { rows: rows.into_iter().collect(), added: BTreeMap::new() }
    }

    /// The row was not read where its run was created in this batch.
    fn lacks(&self, command: &Command, run: Option<&Run>) -> bool {
        let value = run.and_then(|run| LabelValue::limited(run, command));
        value.is_some_and(|value| !self.rows.contains_key(&value))
    }

    /// A run that is claimed under a limit counts, until it does not [count](Run::counts) any more.
    fn apply(&mut self, Applied { command, before, run, .. }: &Applied<'_>) {
        let run_id = &command.key.run_id;
        if let Some(value) = before.and_then(|before| LabelValue::limited(before, command)) {
            let counts = self.rows.entry(value.clone()).or_default();
            if !counts.contains(run_id) {
                counts.push(run_id.clone());
            }
            self.added.entry(value).or_default().push(run_id.clone());
        }
        if !run.counts() {
            let of_namespace = self.rows.iter_mut().filter(|(value, _)| value.namespace == command.key.namespace);
            of_namespace.for_each(|(_, counts)| counts.retain(|counted| counted != run_id));
        }
    }

    fn writes(self, _: &[RunWrite]) -> Self::Writes {
        self.added.into_iter().collect()
    }
}
