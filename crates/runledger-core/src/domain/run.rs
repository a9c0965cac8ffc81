//! The run: the fold of its events.

mod refinements;
mod standing;
mod supervision;

pub use self::refinements::{Refinements, RefinementsChange};
pub use self::supervision::{Supervision, SupervisionChange};
use super::form::{Blank, object};
use super::limits::SUMMARY_REASON_BYTES_MAX;
use super::parts::{labels, texts};
use super::{Bindings, Ending, Labels, Metadata, Namespace, Redaction, Revision, RunId, RunKey, Status, Time};

/// One run. The serde form is the bridges' envelope without the metadata, as the ledger's keyframes keep it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The orchestration task that the run belongs to. Never changes.
    pub task_thread_id: String,
    pub run_id: RunId,
    /// The namespace that the run lives in.
    pub namespace: Namespace,
    /// The lifecycle state.
    pub status: Status,
    /// 1 at creation, +1 with every event.
    pub revision: Revision,
    /// The time at which the run was created.
    pub started_at: Time,
    /// The time of the run's last event.
    pub updated_at: Time,
    /// The time at which the run first became running.
    pub running_at: Option<Time>,
    /// The time at which the run became terminal.
    pub completed_at: Option<Time>,
    /// The time since which lists and counts leave the run out.
    pub archived_at: Option<Time>,
    /// The time at which the run was purged: then it is a [tombstone](super::retention), and has nothing but its id, its
    /// status, its revision and its times. No event says so, and the fold of no events has it.
    pub purged_at: Option<Time>,
    /// The owner.
    pub agent_id: Option<String>,
    /// What it is bound to outside the ledger.
    pub bindings: Bindings,
    /// The reason for which the run was aborted or failed.
    pub ending: Ending,
    /// The labels, for filtering.
    pub labels: Labels,
    /// The fields that the authority watches over.
    pub supervision: Supervision,
    /// What the run was given, what it left, and the runs that it comes from.
    pub refinements: Option<Box<Refinements>>,
    /// The bridge's own data.
    pub metadata: Metadata,
}

object!(
    Run::new(RunKey::default(), Status::Pending, Time::from_micros(0)),
    ["taskThreadId", "runId", "namespace", "status", "revision", "startedAt", "updatedAt"],
    Run {
        task_thread_id: "taskThreadId" required,
        run_id: "runId" required,
        namespace: "namespace" required,
        status: "status" required,
        revision: "revision" required,
        started_at: "startedAt" required,
        updated_at: "updatedAt" required,
        running_at: "runningAt",
        completed_at: "completedAt",
        archived_at: "archivedAt",
        agent_id: "agentId",
        bindings,
        ending,
        labels: "labels",
        supervision: "supervision",
        refinements: "refinements";
        purged_at, metadata
    }
);

impl Blank for Supervision {
    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

impl Run {
    /// A run of which nothing is known but its identity, and how it stands at a time.
    pub(super) fn new(key: RunKey, status: Status, at: Time) -> Self {
        let RunKey { namespace, run_id } = key;
        Self {
            task_thread_id: String::new(),
            run_id,
            namespace,
            status,
            revision: Revision::NONE,
            started_at: at,
            updated_at: at,
            running_at: None,
            completed_at: None,
            archived_at: None,
            purged_at: None,
            agent_id: None,
            bindings: Bindings::default(),
            ending: Ending::default(),
            labels: Labels::new(),
            supervision: Supervision::default(),
            refinements: None,
            metadata: Metadata::default(),
        }
    }

    /// The run's identity.
    #[must_use]
    pub fn key(&self) -> RunKey {
        RunKey { namespace: self.namespace.clone(), run_id: self.run_id.clone() }
    }

    /// The number of its links, and of those that were reported late.
    #[must_use]
    pub fn all_links(&self) -> u32 {
        let late = self.supervision.late_report.as_ref().map_or(0, |report| report.links);
        self.refinements.as_ref().map_or(0, |refinements| refinements.attachments.links) + late
    }

    /// The run without its metadata.
    #[must_use]
    pub fn without_metadata(&self) -> Self {
        Self { metadata: Metadata::default(), ..self.clone() }
    }

    /// The part of the run that a refusal shows.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            namespace: self.namespace.clone(),
            run_id: self.run_id.clone(),
            task_thread_id: self.task_thread_id.clone(),
            agent_id: self.agent_id.clone(),
            status: self.status,
            revision: self.revision,
            started_at: self.started_at,
            running_at: self.running_at,
            updated_at: self.updated_at,
            completed_at: self.completed_at,
            presumed: self.supervision.presumed,
            reason_code: self.ending.reason_code.clone(),
            failure_reason: self
                .ending
                .failure_reason
                .as_deref()
                .map(|text| text[..text.floor_char_boundary(SUMMARY_REASON_BYTES_MAX)].to_owned()),
        }
    }

    /// The approximate number of bytes that the run takes in memory: for bounds on queues and caches.
    #[must_use]
    pub fn weight(&self) -> usize {
        let Self {
            task_thread_id,
            run_id,
            agent_id,
            bindings,
            ending,
            labels,
            supervision,
            refinements,
            metadata,
            namespace: _,
            status: _,
            revision: _,
            started_at: _,
            updated_at: _,
            running_at: _,
            completed_at: _,
            archived_at: _,
            purged_at: _,
        } = self;
        size_of::<Self>()
            + task_thread_id.len()
            + run_id.len()
            + texts::weight([agent_id])
            + bindings.weight()
            + ending.weight()
            + labels::weight(labels)
            + supervision.weight()
            + refinements.as_ref().map_or(0, |refinements| refinements.weight())
            + metadata.weight()
    }

    /// Takes out what stands at the paths of a redaction. The result is the same whether it was taken out of the run's events
    /// before.
    pub(super) fn take_out(&mut self, redaction: &Redaction) {
        let Self {
            bindings,
            ending,
            supervision,
            refinements,
            metadata,
            labels: _,
            task_thread_id: _,
            run_id: _,
            agent_id: _,
            namespace: _,
            status: _,
            revision: _,
            started_at: _,
            updated_at: _,
            running_at: _,
            completed_at: _,
            archived_at: _,
            purged_at: _,
        } = self;
        bindings.take_out(redaction);
        ending.take_out(redaction);
        supervision.take_out(redaction);
        Refinements::take_out(refinements, redaction);
        metadata.take_out(redaction);
    }
}

/// The part of a run that a refusal shows: enough to see who won, small enough for HTTP/2 trailers.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// See [`Run::namespace`].
    pub namespace: Namespace,
    /// See [`Run::run_id`].
    pub run_id: RunId,
    /// See [`Run::task_thread_id`].
    pub task_thread_id: String,
    /// See [`Run::agent_id`].
    pub agent_id: Option<String>,
    /// See [`Run::status`].
    pub status: Status,
    /// See [`Run::revision`].
    pub revision: Revision,
    /// See [`Run::started_at`].
    pub started_at: Time,
    /// See [`Run::running_at`].
    pub running_at: Option<Time>,
    /// See [`Run::updated_at`].
    pub updated_at: Time,
    /// See [`Run::completed_at`].
    pub completed_at: Option<Time>,
    /// See [`Supervision::presumed`].
    pub presumed: bool,
    /// See [`Ending::reason_code`].
    pub reason_code: Option<String>,
    /// The first 512 bytes of [`Ending::failure_reason`], cut at a character.
    pub failure_reason: Option<String>,
}
