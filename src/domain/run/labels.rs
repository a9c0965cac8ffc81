//! A run's labels, for filtering.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The labels of a run, by key.
pub type Labels = BTreeMap<String, String>;

/// What of its labels a command asks to set, and an event set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelsChange {
    /// Labels to set.
    #[serde(rename = "labels", skip_serializing_if = "BTreeMap::is_empty")]
    pub set: Labels,
    /// Keys of labels to drop.
    #[serde(rename = "removeLabels", skip_serializing_if = "BTreeSet::is_empty")]
    pub remove: BTreeSet<String>,
}

impl LabelsChange {
    pub(in crate::domain) fn fold_into(&self, labels: &mut Labels) {
        for key in &self.remove {
            labels.remove(key);
        }
        labels.extend(self.set.clone());
    }

    /// What of the change changes these labels.
    #[must_use]
    pub(in crate::domain) fn effective(mut self, labels: &Labels) -> Self {
        self.set.retain(|key, value| labels.get(key) != Some(value));
        self.remove.retain(|key| labels.contains_key(key));
        self
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }
}

/// About how many bytes labels take in memory.
pub(in crate::domain) fn weight(labels: &Labels) -> usize {
    labels.iter().map(|(key, value)| 64 + key.len() + value.len()).sum()
}
