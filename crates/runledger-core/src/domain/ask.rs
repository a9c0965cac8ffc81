//! The asks of callers and of the authority itself, each with the fields that it needs and no more. Times are in
//! milliseconds.

mod brought;
mod facts;
mod suspension;

pub use self::brought::{Brought, Terms};
pub use self::facts::{Asker, Basis, Facts, LeaseRow};
pub use self::suspension::{Resume, Suspend, SuspensionTerms};
use super::{
    BindingsChange, Content, Ending, Labels, LabelsChange, LeaseEpoch, Link, MaxRunning, Metadata, Origin, PositionAsk,
    Priority, Redaction, Request, Take,
};

/// The ask of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Creates a run, or starts a pending one.
    Start(Start),
    /// Changes links, labels or metadata.
    Update(Update),
    /// Ends the run successfully.
    Complete(Complete),
    /// Ends the run on purpose.
    Abort(End),
    /// Ends the run with an error.
    Fail(End),
    /// Takes the lease of a run that waits for a claim or has no holder any more.
    Claim(Claim),
    /// Gives the run's lease up.
    Release(Release),
    /// The authority's own ask: gives back a claim that it takes for unreceived.
    GiveBack(GiveBack),
    /// Asks the worker to abort the run.
    RequestAbort(RequestAbort),
    /// Lets the run wait, without anybody who executes it.
    Suspend(Suspend),
    /// Lets a suspended run go on.
    Resume(Resume),
    /// The authority's own ask: ends the run if its time is over.
    Sweep,
    /// Hides the run, which has ended, from lists and counts.
    Archive,
    /// Shows an archived run again.
    Restore,
    /// Takes out of the run and its history what should not have been written.
    Redact(Redaction),
}

/// The fields of a start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Start {
    /// Creates the run pending.
    pub deferred: bool,
    /// The orchestration task that the run belongs to.
    pub task_thread_id: String,
    /// The owner; none: the acting agent.
    pub agent_id: Option<String>,
    /// What the run is bound to outside the ledger.
    pub bindings: BindingsChange,
    pub labels: Labels,
    /// The bridge's own data.
    pub metadata: Metadata,
    /// The duration of the lease that the start asks for.
    pub lease_ttl_ms: Option<u64>,
    /// The time that the new run may be pending.
    pub start_timeout_ms: Option<u64>,
    /// The time that the run may be running.
    pub run_timeout_ms: Option<u64>,
    /// How many attempts at the run there may be.
    pub max_attempts: Option<u32>,
    /// The time that one attempt may be running.
    pub attempt_timeout_ms: Option<u64>,
    /// What whoever executes the run must know.
    pub input: Option<Content>,
    /// The runs that the run comes from.
    pub origin: Origin,
    /// Where the run is to stand.
    pub position: PositionAsk,
    /// The run's priority among those that wait for a claim.
    pub priority: Option<Priority>,
}

/// The fields of an update.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// The lease that the caller holds.
    pub lease_epoch: Option<LeaseEpoch>,
    /// What the run is bound to outside the ledger.
    pub bindings: BindingsChange,
    pub labels: LabelsChange,
    /// Merge patch on the metadata.
    pub metadata: Metadata,
    /// What came of the run, so far.
    pub result: Option<Content>,
    /// Links to be added.
    pub added: Vec<Link>,
    /// Where the run is to stand.
    pub position: PositionAsk,
    /// What is said of the suspension that the phase brings.
    pub suspension: SuspensionTerms,
    /// The run's priority among those that wait for a claim.
    pub priority: Option<Priority>,
}

impl Update {
    /// Whether it sets the priority and nothing else: then it is for a run that is pending.
    #[must_use]
    pub fn is_of_priority_alone(&self) -> bool {
        self.priority.is_some() && Self { priority: None, ..self.clone() } == Self::default()
    }
}

/// The fields of a completion.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Complete {
    /// The lease that the caller holds.
    pub lease_epoch: Option<LeaseEpoch>,
    /// Merge patch on the metadata.
    pub metadata: Metadata,
    /// What came of the run.
    pub result: Option<Content>,
    /// Links to be added.
    pub added: Vec<Link>,
    /// Where the run is to stand.
    pub position: PositionAsk,
}

/// The fields of an abort or a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The lease that the caller holds.
    pub lease_epoch: Option<LeaseEpoch>,
    /// The reason of the end.
    pub why: Ending,
    /// What came of the run until then.
    pub result: Option<Content>,
    /// Where the run is to stand.
    pub position: PositionAsk,
    /// Of a failure: no further attempt is made, whatever is left.
    pub is_final: bool,
}

/// The fields of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The epoch that the run must have.
    pub expected_epoch: Option<LeaseEpoch>,
    /// The duration of the lease.
    pub lease_ttl_ms: u64,
    /// The limit on running runs with the run's value of a label. The claim is refused where it is reached.
    pub max_running: Option<MaxRunning>,
    /// Only of a run that [waits for a claim](super::Run::awaits_claim), and of those that the claimer takes; none: also
    /// of one whose lease is over.
    pub only: Option<Take>,
    /// The claimer's own request, by which its claim is remembered [apart from any run](super::Claimed).
    pub request: Option<Request>,
}

/// The fields of a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The lease that the caller holds.
    pub lease_epoch: Option<LeaseEpoch>,
    /// The claim was not begun, so the run becomes ready.
    pub not_begun: bool,
}

/// The claim that is given back for its claimer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GiveBack {
    /// The lease that was granted.
    pub lease_epoch: LeaseEpoch,
    /// The claimer's own request: what is remembered of it is forgotten, unless the claimer has been answered
    /// meanwhile.
    pub request: Option<Request>,
    /// The number of times that the claimer had asked again when it was seen to have gone.
    pub replays: u64,
}

/// The fields of a request to abort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestAbort {
    /// The reason, for people.
    pub reason: Option<String>,
    /// The time that the run may go on; none: without a bound.
    pub grace_ms: Option<u64>,
}

impl Ask {
    /// One ask of each kind, with default fields.
    #[must_use]
    pub fn each() -> [Self; 16] {
        [
            Self::Start(Start::default()),
            Self::Start(Start { deferred: true, ..Start::default() }),
            Self::Update(Update::default()),
            Self::Complete(Complete::default()),
            Self::Abort(End::default()),
            Self::Fail(End::default()),
            Self::Claim(Claim::default()),
            Self::Release(Release::default()),
            Self::GiveBack(GiveBack::default()),
            Self::RequestAbort(RequestAbort::default()),
            Self::Suspend(Suspend::default()),
            Self::Resume(Resume::default()),
            Self::Sweep,
            Self::Archive,
            Self::Restore,
            Self::Redact(Redaction::default()),
        ]
    }
}
