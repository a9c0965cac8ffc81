//! Refusals: the reasons for which a command was not applied. A refusal carries the values that were asked for and the
//! values that were found.

use super::lifecycle::{LifecycleId, LifecycleName, Requirement};
use super::{
    Claimed, LeaseEpoch, MaxRunning, Namespace, Revision, Run, RunId, RunKey, Status, Summary, Suspension, Time,
    Violation,
};

/// A command's typed refusal. A refused command changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The run has this `request_id` from a different request.
    RequestIdReused {
        /// The run.
        key: RunKey,
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
        /// Whether the run is suspended: its lease rests.
        suspended: bool,
        /// Whether it is ready to go on all the same: the next claim takes it.
        ready: bool,
        /// Whether the caller's own word was that the attempt has failed, and nobody has begun the next one.
        attempt_failed: bool,
        run: Summary,
    },
    /// Another worker holds the run, and it cannot be claimed; or it waits for a claim, and is not resumed once more.
    LeaseHeld {
        /// The run's epoch; [`LeaseEpoch::NONE`]: it runs without a lease.
        epoch: LeaseEpoch,
        /// The time at which the lease is over unless it is renewed; none: never.
        expires_at: Option<Time>,
        /// Whether nobody holds the run, and a claim takes it.
        ready: bool,
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
        run: Summary,
        /// The status that was asked for.
        to: Status,
    },
    /// An update or a heartbeat of a run that is not running.
    RunNotRunning { run: Summary },
    /// The priority of a run that does not wait to be started is not changed.
    RunNotPending { run: Summary },
    /// A run that has not ended is not archived.
    RunNotTerminal { run: Summary },
    /// A claim cannot be given back as not begun: an event was made under it, or the run had been executed before.
    RunBegun { run: Summary },
    /// The claimer's own request was applied before, perhaps to another run. The answer is that claim.
    ClaimedBefore { claimed: Claimed },
    /// The run would be created in a namespace that does not exist, or not any more.
    NamespaceNotFound { namespace: Namespace },
    /// The run would be created above a quota of its namespace.
    QuotaExceeded {
        namespace: Namespace,
        /// The quota's name, as the settings have it.
        quota: &'static str,
        /// The quota.
        limit: u64,
        /// The part of it that is used.
        used: u64,
    },
    /// There is no such lifecycle, or no such version of it; or that of the run is gone, and the command cannot be
    /// decided without it.
    LifecycleNotFound {
        /// The run.
        key: RunKey,
        lifecycle: LifecycleName,
        /// Whether the run is pinned to it, and it was deleted by hand.
        is_pinned: bool,
    },
    /// The lifecycle says what this release keeps and does not enforce yet: no run starts with it.
    LifecycleUnsupported {
        lifecycle: LifecycleId,
        /// The fields of its declaration.
        fields: Vec<&'static str>,
    },
    /// The phase may not follow the run's, or the run may not complete in it.
    InvalidPhase {
        /// The run.
        key: RunKey,
        lifecycle: LifecycleId,
        /// The run's phase; none: it is in none yet.
        from: Option<String>,
        /// The phase that was asked for; of a completion, the one in which the run would complete.
        to: String,
        /// Whether it is the completion that is refused.
        completes: bool,
        /// Whether it is a resumption, which leaves for a phase that does not suspend.
        resumes: bool,
        /// The phases that may follow; of a completion, those in which the run may complete.
        allowed: Vec<String>,
        /// The run as it is; none when it does not exist.
        run: Option<Summary>,
    },
    /// The run would begin an iteration above its limit.
    IterationLimit {
        iteration: u32,
        /// The limit.
        max_iterations: u32,
        run: Summary,
    },
    /// The run is suspended, and the command would go on with it.
    RunSuspended {
        /// What the run waits for.
        suspension: Box<Suspension>,
        /// Whether the next claim takes it.
        ready: bool,
        run: Summary,
    },
    /// The run's own agent would raise a limit of the run.
    SelfRaise { run: Summary },
    /// The run was suspended by a limit that it has reached, and that the resumption does not raise above what is spent.
    BudgetExceeded {
        /// The limit's name.
        budget: &'static str,
        /// What is spent of it.
        spent: u64,
        /// The limit, as the resumption leaves it.
        limit: u64,
        run: Summary,
    },
    /// The run does not have what its completion requires.
    CompletionIncomplete {
        lifecycle: LifecycleId,
        /// What it lacks.
        missing: Vec<Requirement>,
        /// Whether it once went on from a suspension, so that what it brought before does not count.
        went_on: bool,
        run: Summary,
    },
    /// The command would take the run beyond its limits.
    InvalidFields(Vec<Violation>),
}

impl Refusal {
    /// The refusal of a caller of `rpc` that named this epoch and does not hold the run's lease.
    #[must_use]
    pub fn lease_lost(rpc: &'static str, asked: LeaseEpoch, run: &Run) -> Self {
        let released = run.supervision.lease.is_some_and(|lease| lease.released);
        let (epoch, suspended, ready) = (run.supervision.epoch(), run.suspension().is_some(), run.is_ready());
        let failure = run.refinements.as_ref().and_then(|all| all.attempts.as_ref()?.last_failure.as_ref());
        let attempt_failed = run.is_between_attempts() && failure.is_some_and(|failure| !failure.presumed);
        Self::LeaseLost { rpc, asked, epoch, released, suspended, ready, attempt_failed, run: run.summary() }
    }

    /// The refusal of what would go on with a suspended run.
    #[must_use]
    pub fn run_suspended(run: &Run) -> Self {
        let suspension = run.suspension().expect("the run is suspended");
        Self::RunSuspended { suspension: Box::new(suspension.clone()), ready: run.is_ready(), run: run.summary() }
    }

    /// The refusal of whatever is asked of a run that was purged.
    #[must_use]
    pub fn expired(run: &Run) -> Option<Self> {
        run.purged_at.map(|purged_at| Self::RunExpired { run: run.summary(), purged_at })
    }

    /// The reason, for programs: never changes.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.facts().0
    }

    /// What it is that refuses.
    #[must_use]
    pub fn cause(&self) -> Cause {
        self.facts().1
    }

    #[rustfmt::skip]
    fn facts(&self) -> (&'static str, Cause) {
        match self {
            Self::RequestIdReused { .. }        => ("REQUEST_ID_REUSED",      Cause::Call),
            Self::RunNotFound { .. }            => ("RUN_NOT_FOUND",          Cause::Run),
            Self::RunExpired { .. }             => ("RUN_EXPIRED",            Cause::Run),
            Self::RunIdConflict { .. }          => ("RUN_ID_CONFLICT",        Cause::Call),
            Self::NotOwner { .. }               => ("NOT_OWNER",              Cause::Run),
            Self::LeaseLost { .. }              => ("LEASE_LOST",             Cause::Run),
            Self::LeaseHeld { .. }              => ("LEASE_HELD",             Cause::Run),
            Self::MaxRunning { .. }             => ("MAX_RUNNING",            Cause::Call),
            Self::RevisionMismatch { .. }       => ("REVISION_MISMATCH",      Cause::Run),
            Self::InvalidTransition { .. }      => ("INVALID_TRANSITION",     Cause::Run),
            Self::RunNotRunning { .. }          => ("RUN_NOT_RUNNING",        Cause::Run),
            Self::RunNotPending { .. }          => ("RUN_NOT_PENDING",        Cause::Run),
            Self::RunNotTerminal { .. }         => ("RUN_NOT_TERMINAL",       Cause::Run),
            Self::RunBegun { .. }               => ("RUN_BEGUN",              Cause::Run),
            Self::ClaimedBefore { .. }          => ("CLAIMED_BEFORE",         Cause::Call),
            Self::NamespaceNotFound { .. }      => ("NAMESPACE_NOT_FOUND",    Cause::Call),
            Self::QuotaExceeded { .. }          => ("QUOTA_EXCEEDED",         Cause::Call),
            Self::LifecycleNotFound { .. }      => ("LIFECYCLE_NOT_FOUND",    Cause::Lifecycle),
            Self::LifecycleUnsupported { .. }   => ("LIFECYCLE_UNSUPPORTED",  Cause::Lifecycle),
            Self::InvalidPhase { .. }           => ("INVALID_PHASE",          Cause::Lifecycle),
            Self::IterationLimit { .. }         => ("ITERATION_LIMIT",        Cause::Lifecycle),
            Self::RunSuspended { .. }           => ("RUN_SUSPENDED",          Cause::Run),
            Self::SelfRaise { .. }              => ("SELF_RAISE",             Cause::Call),
            Self::BudgetExceeded { .. }         => ("BUDGET_EXCEEDED",        Cause::Call),
            Self::CompletionIncomplete { .. }   => ("COMPLETION_INCOMPLETE",  Cause::Call),
            Self::InvalidFields(_)              => ("INVALID_FIELD",          Cause::Call),
        }
    }
}

/// What it is that refuses a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// How the run stands, or who has it: another caller may have been quicker.
    Run,
    /// The run's lifecycle, whoever asks and whatever else the call says.
    Lifecycle,
    /// What the call says, or brings too little of; or the room that other runs leave.
    Call,
}
