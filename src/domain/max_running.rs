//! How many runs with one value of a label may be running at once.
//!
//! What counts are runs that were claimed under a limit for that label: who claims states the limit, and the store keeps
//! for each value which runs count. A run counts from its claim until it is terminal, but not while it is
//! ready, whoever holds it meanwhile and whatever becomes of its labels.

use serde::Serialize;

use super::{Command, Run};

/// A claim's limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MaxRunning {
    /// The label's key. A run without it is not limited.
    pub label: String,
    /// How many runs with the same value of it may be running, this one included.
    pub limit: u32,
}

/// A value that a label has in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelValue {
    /// The namespace.
    pub namespace: String,
    /// The label's key.
    pub label: String,
    /// Its value.
    pub value: String,
}

impl LabelValue {
    /// The value that a command's limit is about; none where it states none, the run does not have the label, or does
    /// not wait for a claim.
    #[must_use]
    pub fn limited(run: &Run, command: &Command) -> Option<Self> {
        let label = command.max_running().map(|max| &max.label)?;
        if run.awaits_claim() { Self::of(run, label) } else { None }
    }

    /// The value that a run has of a label.
    #[must_use]
    pub fn of(run: &Run, label: &str) -> Option<Self> {
        let value = run.labels.get(label)?.clone();
        Some(Self { namespace: run.namespace.clone(), label: label.to_owned(), value })
    }
}
