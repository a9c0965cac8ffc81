//! Why a command was not applied. A refusal carries what was asked and what was found.

use super::{Operation, RunKey, Status, Summary};

/// A command's typed refusal. Nothing was changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The run has this `request_id` from a different request.
    RequestIdReused {
        /// The run.
        key: RunKey,
        /// The `request_id`.
        request_id: String,
    },
    /// There is no such run.
    RunNotFound {
        /// The run that was asked for.
        key: RunKey,
    },
    /// Another run has this id.
    RunIdConflict {
        /// The identity field that differs.
        field: &'static str,
        /// What the command said.
        requested: String,
        /// What the run has.
        actual: String,
        /// The run as it is.
        run: Summary,
    },
    /// The acting agent is not the run's owner.
    NotOwner {
        /// The acting agent.
        agent_id: String,
        /// The run's owner.
        owner_agent_id: String,
        /// The run's tab group.
        tab_group_id: Option<String>,
        /// What was asked.
        operation: Operation,
        /// The run.
        key: RunKey,
    },
    /// The run is not at the expected revision.
    RevisionMismatch {
        /// The run that was asked for.
        key: RunKey,
        /// What the command expected; 0 is "must not exist".
        expected: u64,
        /// The run as it is; none when it does not exist.
        run: Option<Summary>,
    },
    /// The run's status does not allow the transition.
    InvalidTransition {
        /// The run as it is.
        run: Summary,
        /// The status that was asked for.
        to: Status,
    },
    /// An update of a run that is not running.
    RunNotRunning {
        /// The run as it is.
        run: Summary,
    },
    /// The command would take the run beyond its limits.
    InvalidFields(Vec<Violation>),
}

impl Refusal {
    /// The reason, for programs: never changes.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::RequestIdReused { .. } => "REQUEST_ID_REUSED",
            Self::RunNotFound { .. } => "RUN_NOT_FOUND",
            Self::RunIdConflict { .. } => "RUN_ID_CONFLICT",
            Self::NotOwner { .. } => "NOT_OWNER",
            Self::RevisionMismatch { .. } => "REVISION_MISMATCH",
            Self::InvalidTransition { .. } => "INVALID_TRANSITION",
            Self::RunNotRunning { .. } => "RUN_NOT_RUNNING",
            Self::InvalidFields(_) => "INVALID_FIELD",
        }
    }
}

/// One thing that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The request's field, such as `labels["key"]`.
    pub field: String,
    /// What is wrong, with the limit.
    pub description: String,
}

impl Violation {
    /// A violation of a field's rule.
    pub fn new(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self { field: field.into(), description: description.into() }
    }
}
