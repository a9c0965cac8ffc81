//! A run's labels, for filtering.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::form::form;

/// The labels of a run, by key.
pub type Labels = BTreeMap<String, String>;

/// The changes of labels that a command asks for, and that an event made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelsChange {
    /// Labels to set.
    pub set: Labels,
    /// Keys of labels to drop.
    pub remove: BTreeSet<String>,
}

form!(LabelsChange { set: "labels", remove: "removeLabels" });

impl LabelsChange {
    pub(in crate::domain) fn fold_into(&self, labels: &mut Labels) {
        for key in &self.remove {
            labels.remove(key);
        }
        labels.extend(self.set.clone());
    }

    /// The part of the change that has an effect on these labels.
    #[must_use]
    pub(in crate::domain) fn effective(mut self, labels: &Labels) -> Self {
        self.set.retain(|key, value| labels.get(key) != Some(value));
        self.remove.retain(|key| labels.contains_key(key));
        self
    }

    /// The keys that it drops take little.
    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { set, remove: _ } = self;
        weight(set)
    }

    /// Whether the change is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }
}

/// The approximate number of bytes that labels take in memory.
pub(in crate::domain) fn weight(labels: &Labels) -> usize {
    labels.iter().map(|(key, value)| 64 + key.len() + value.len()).sum()
}
