//! The changes of a run by an event, in the run's parts.

use super::form::object;
use super::run::labels_weight;
use super::{Ending, LabelsChange, LinksChange, Metadata, Redaction, RefinementsChange, SupervisionChange};

/// The fields that an event set. The serde form is one flat object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Set at creation.
    pub task_thread_id: Option<String>,
    /// The owner: set at creation, when a pending run without an owner starts, or by a claim.
    pub agent_id: Option<String>,
    /// The run's route and its links.
    pub links: LinksChange,
    /// The reason for which the run was aborted or failed.
    pub ending: Ending,
    /// The labels.
    pub labels: LabelsChange,
    /// Merge patch on the metadata; empty changes nothing.
    pub metadata: Metadata,
    /// The fields that the authority watches over.
    pub supervision: SupervisionChange,
    /// What was taken out of the run, and of its events before this one.
    pub redaction: Option<Box<Redaction>>,
    /// What the run was given, what it left, and the runs that it comes from.
    pub refinements: Option<Box<RefinementsChange>>,
}

object!(Changes {
    task_thread_id: "taskThreadId",
    agent_id: "agentId",
    links,
    ending,
    labels,
    metadata: "metadata",
    supervision,
    redaction: "redaction",
    refinements: "refinements"
});

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
