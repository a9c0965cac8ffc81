//! A run's labels.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::domain::limits::{LABEL_KEY_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX};
use crate::domain::{LabelsChange, Run};
use crate::wire::validate::{Violations, quoted};
use runledger_proto::v1;

impl Violations {
    /// Labels.
    pub(in crate::wire) fn labels(&mut self, field: &str, labels: HashMap<String, String>) -> BTreeMap<String, String> {
        if labels.len() > LABELS_MAX {
            self.push(field, format!("has {} entries; the limit is {LABELS_MAX}", labels.len()));
            return BTreeMap::new();
        }
        let labels: BTreeMap<String, String> = labels.into_iter().collect();
        for (key, value) in &labels {
            if self.is_full() {
                break;
            }
            self.label_key(|| label(field, key), key);
            if value.len() > LABEL_VALUE_BYTES_MAX || value.contains('\0') {
                let rule = format!("the value must be at most {LABEL_VALUE_BYTES_MAX} bytes without U+0000");
                self.push(label(field, key), rule);
            }
        }
        labels
    }

    /// `remove_labels`, apart from `labels`.
    pub(in crate::wire) fn remove_labels(
        &mut self,
        keys: Vec<String>,
        labels: &BTreeMap<String, String>,
    ) -> BTreeSet<String> {
        if keys.len() > LABELS_MAX {
            self.push("remove_labels", format!("has {} keys; the limit is {LABELS_MAX}", keys.len()));
            return BTreeSet::new();
        }
        for (index, key) in keys.iter().enumerate() {
            if self.is_full() {
                break;
            }
            self.label_key(|| format!("remove_labels[{index}]"), key);
            if labels.contains_key(key) {
                self.push(format!("remove_labels[{index}]"), format!("\"{}\" is in labels too", quoted(key)));
            }
        }
        keys.into_iter().collect()
    }

    pub(in crate::wire) fn label_key(&mut self, field: impl FnOnce() -> String, key: &str) {
        if !(1..=LABEL_KEY_BYTES_MAX).contains(&key.len()) || key.contains('\0') {
            self.push(field(), format!("a key must be 1 to {LABEL_KEY_BYTES_MAX} bytes without U+0000"));
        }
    }
}

fn label(field: &str, key: &str) -> String {
    format!("{field}[\"{}\"]", quoted(key))
}

pub(in crate::wire) fn show(run: &Run, shown: &mut v1::Run) {
    shown.labels = run.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
}

pub(in crate::wire) fn show_change(labels: &LabelsChange, shown: &mut v1::RunChanges) {
    let LabelsChange { set, remove } = labels;
    shown.labels = set.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    shown.remove_labels = remove.iter().cloned().collect();
}
