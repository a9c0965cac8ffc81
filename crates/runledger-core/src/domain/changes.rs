//! The changes of a run by an event, in the run's parts.

use super::form::object;
use super::parts::texts;
use super::{BindingsChange, Ending, LabelsChange, Metadata, Redaction, RefinementsChange, SupervisionChange};

/// The fields that an event set. The serde form is one flat object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Set at creation.
    pub task_thread_id: Option<String>,
    /// The owner: set at creation, when a pending run without an owner starts, or by a claim.
    pub agent_id: Option<String>,
    /// What it is bound to outside the ledger.
    pub bindings: BindingsChange,
    /// The reason for which the run was aborted or failed.
    pub ending: Ending,
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
    bindings,
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
        let Self {
            task_thread_id,
            agent_id,
            bindings,
            ending,
            labels,
            metadata,
            supervision: _,
            redaction,
            refinements,
        } = self;
        texts::weight([task_thread_id, agent_id])
            + bindings.weight()
            + ending.weight()
            + labels.weight()
            + metadata.weight()
            + redaction.as_ref().map_or(0, |redaction| redaction.weight())
            + refinements.as_ref().map_or(0, |refinements| refinements.weight())
    }

    /// Takes out what stands at the paths of a redaction, and tells how many values of the metadata and reasons these were:
    /// links and contents are counted where they stand.
    pub(super) fn take_out(&mut self, by: &Redaction) -> u64 {
        let Self {
            task_thread_id: _,
            agent_id: _,
            bindings,
            ending,
            labels: _,
            metadata,
            supervision,
            redaction,
            refinements,
        } = self;
        bindings.take_out(by)
            + ending.take_out(by)
            + metadata.take_out(by)
            + supervision.take_out(by)
            + redaction.as_mut().map_or(0, |redaction| redaction.take_out(by))
            + RefinementsChange::take_out(refinements, by)
    }
}
