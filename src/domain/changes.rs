//! The changes of a run by an event, in the run's parts.

use serde::{Deserialize, Serialize};

use super::run::labels_weight;
use super::{Ending, LabelsChange, LinksChange, Metadata, Redaction, RefinementsChange, SupervisionChange};

/// The fields that an event set. The serde form is one flat object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Changes {
    /// Set at creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_thread_id: Option<String>,
    /// The owner: set at creation, when a pending run without an owner starts, or by a claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The run's route and its links.
    #[serde(flatten)]
    pub links: LinksChange,
    /// The reason for which the run was aborted or failed.
    #[serde(flatten)]
    pub ending: Ending,
    /// The labels.
    #[serde(flatten)]
    pub labels: LabelsChange,
    /// Merge patch on the metadata; empty changes nothing.
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// The fields that the authority watches over.
    #[serde(flatten)]
    pub supervision: SupervisionChange,
    /// What was taken out of the run, and of its events before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redaction: Option<Box<Redaction>>,
    /// What the run was given, what it left, and the runs that it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refinements: Option<Box<RefinementsChange>>,
}

impl Changes {
    /// About how many bytes it takes in memory, beside its own size.
    pub(super) fn weight(&self) -> usize {
        [&self.task_thread_id, &self.agent_id].into_iter().flatten().map(String::len).sum::<usize>()
            + self.links.weight()
            + self.ending.weight()
            + labels_weight(&self.labels.set)
            + self.metadata.weight()
            + self.redaction.as_ref().map_or(0, |redaction| redaction.weight())
            + self.refinements.as_ref().map_or(0, |refinements| refinements.weight())
    }
}
