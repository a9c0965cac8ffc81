//! Refusals: the reasons for which a command was not applied. A refusal carries the values that were asked for and the
//! values that were found.

use super::{Claimed, LeaseEpoch, MaxRunning, Namespace, Revision, Run, RunId, RunKey, Status, Summary, Time};

/// A command's typed refusal. A refused command changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The run has this `request_id` from a different request.
    RequestIdReused {
        /// The run.
        key: RunKey,
        /// The `request_id`.
        request_id: String,
    },
    /// The run does not exist.
    RunNotFound {
        /// The run that was asked for.
        key: RunKey,
    },
    /// The run has ended, was kept for as long as its namespace wants, and is gone.
    RunExpired {
        /// What is left of the run.
        run: Summary,
        /// The time at which it was purged.
        purged_at: Time,
    },
    /// Another run has this id.
    RunIdConflict {
        /// The identity field that differs.
        field: &'static str,
        /// The value in the command.
        requested: String,
        /// The run's value.
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
        /// The RPC that was called.
        rpc: &'static str,
        /// The run.
        key: RunKey,
    },
    /// The caller does not hold the run's lease, or not any more.
    LeaseLost {
        /// The RPC that was called.
        rpc: &'static str,
        /// The epoch that the command named.
        asked: LeaseEpoch,
        /// The run's epoch.
        epoch: LeaseEpoch,
        /// Whether the lease was given up and no claim has followed it.
        released: bool,
        /// The run as it is.
        run: Summary,
    },
    /// Another worker holds the run, and it cannot be claimed.
    LeaseHeld {
        /// The run's epoch; [`LeaseEpoch::NONE`]: it runs without a lease.
        epoch: LeaseEpoch,
        /// The time at which the lease is over unless it is renewed; none: never.
        expires_at: Option<Time>,
        /// The run as it is.
        run: Summary,
    },
    /// As many runs with the same value of a label are running as the claim allows.
    MaxRunning {
        /// The claim's limit.
        max: MaxRunning,
        /// The run's value of the label.
        value: String,
        /// The runs that count, by id: as many as the claim allows, or more.
        running: Vec<RunId>,
        /// The run as it is.
        run: Summary,
    },
    /// The run is not at the expected revision.
    RevisionMismatch {
        /// The run that was asked for.
        key: RunKey,
        /// The revision that the command expected; [`Revision::NONE`] is "must not exist".
        expected: Revision,
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
    /// An update or a heartbeat of a run that is not running.
    RunNotRunning {
        /// The run as it is.
        run: Summary,
    },
    /// A run that has not ended is not archived.
    RunNotTerminal {
        /// The run as it is.
        run: Summary,
    },
    /// A claim cannot be given back as not begun: an event was made under it, or the run had been executed before.
    RunBegun {
        /// The run as it is.
        run: Summary,
    },
    /// The claimer's own request was applied before, perhaps to another run. The answer is that claim.
    ClaimedBefore {
        /// The claim.
        claimed: Claimed,
    },
    /// The run would be created in a namespace that does not exist, or not any more.
    NamespaceNotFound {
        /// The namespace.
        namespace: Namespace,
    },
    /// The run would be created above a quota of its namespace.
    QuotaExceeded {
        /// The namespace.
        namespace: Namespace,
        /// The quota's name, as the settings have it.
        quota: &'static str,
        /// The quota.
        limit: u64,
        /// The part of it that is used.
        used: u64,
    },
    /// The command would take the run beyond its limits.
    InvalidFields(Vec<Violation>),
}

impl Refusal {
    /// The refusal of a caller of `rpc` that named this epoch and does not hold the run's lease.
    #[must_use]
    pub fn lease_lost(rpc: &'static str, asked: LeaseEpoch, run: &Run) -> Self {
        let released = run.supervision.lease.is_some_and(|lease| lease.released);
        Self::LeaseLost { rpc, asked, epoch: run.supervision.epoch(), released, run: run.summary() }
    }

    /// The refusal of whatever is asked of a run that was purged.
    #[must_use]
    pub fn expired(run: &Run) -> Option<Self> {
        run.purged_at.map(|purged_at| Self::RunExpired { run: run.summary(), purged_at })
    }

    /// The reason, for programs: never changes.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::RequestIdReused { .. } => "REQUEST_ID_REUSED",
            Self::RunNotFound { .. } => "RUN_NOT_FOUND",
            Self::RunExpired { .. } => "RUN_EXPIRED",
            Self::RunIdConflict { .. } => "RUN_ID_CONFLICT",
            Self::NotOwner { .. } => "NOT_OWNER",
            Self::LeaseLost { .. } => "LEASE_LOST",
            Self::LeaseHeld { .. } => "LEASE_HELD",
            Self::MaxRunning { .. } => "MAX_RUNNING",
            Self::RevisionMismatch { .. } => "REVISION_MISMATCH",
            Self::InvalidTransition { .. } => "INVALID_TRANSITION",
            Self::RunNotRunning { .. } => "RUN_NOT_RUNNING",
            Self::RunNotTerminal { .. } => "RUN_NOT_TERMINAL",
            Self::RunBegun { .. } => "RUN_BEGUN",
            Self::ClaimedBefore { .. } => "CLAIMED_BEFORE",
            Self::NamespaceNotFound { .. } => "NAMESPACE_NOT_FOUND",
            Self::QuotaExceeded { .. } => "QUOTA_EXCEEDED",
            Self::InvalidFields(_) => "INVALID_FIELD",
        }
    }
}

/// A violation: one field that is wrong in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The request's field, such as `labels["key"]`.
    pub field: String,
    /// The fault, with the limit.
    pub description: String,
}

impl Violation {
    /// A violation of a field's rule.
    pub fn new(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self { field: field.into(), description: description.into() }
    }
}
