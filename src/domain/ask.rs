//! What a caller asks for: one form for each call, with what it needs and no more. Times are in milliseconds.

use super::run::labels_weight;
use super::{Ending, Labels, LabelsChange, LinksChange, MaxRunning, Metadata, Request, Status};

/// What a command asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Creates a run, or starts a pending one.
    Start(Start),
    /// Changes links, labels or metadata.
    Update(Update),
    /// Ends it successfully.
    Complete(Complete),
    /// Ends it on purpose.
    Abort(End),
    /// Ends it with an error.
    Fail(End),
    /// Takes its lease: of a run that waits for a claim, or where nobody holds it any more.
    Claim(Claim),
    /// Gives its lease up.
    Release(Release),
    /// The authority's own: gives a claim back that it takes for one that nobody received.
    GiveBack(GiveBack),
    /// Asks who executes it to abort it.
    RequestAbort(RequestAbort),
    /// The authority's own: ends it if its time is over.
    Sweep,
}

/// What a start brings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Start {
    /// Creates the run pending.
    pub deferred: bool,
    /// The orchestration task that the run belongs to.
    pub task_thread_id: String,
    /// The owner; none: the acting agent.
    pub agent_id: Option<String>,
    /// How the run is executed, and its links.
    pub links: LinksChange,
    /// The labels.
    pub labels: Labels,
    /// The bridge's own data.
    pub metadata: Metadata,
    /// How long the lease lasts that it asks for.
    pub lease_ttl_ms: Option<u64>,
    /// How long the new run may be pending.
    pub start_timeout_ms: Option<u64>,
    /// How long the run may be running.
    pub run_timeout_ms: Option<u64>,
}

/// What an update brings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// The lease that the caller holds.
    pub lease_epoch: Option<u64>,
    /// How the run is executed, and its links.
    pub links: LinksChange,
    /// The labels.
    pub labels: LabelsChange,
    /// Merge patch on the metadata.
    pub metadata: Metadata,
}

/// What a completion brings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Complete {
    /// The lease that the caller holds.
    pub lease_epoch: Option<u64>,
    /// Merge patch on the metadata.
    pub metadata: Metadata,
}

/// What an abort or a failure brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The lease that the caller holds.
    pub lease_epoch: Option<u64>,
    /// Why.
    pub why: Ending,
}

/// What a claim brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The epoch that the run must have.
    pub expected_epoch: Option<u64>,
    /// How long the lease lasts.
    pub lease_ttl_ms: u64,
    /// How many runs with its value of a label may be running when the run is claimed.
    pub max_running: Option<MaxRunning>,
    /// Only of a run that [waits for a claim](super::Run::awaits_claim), not of one whose lease is over.
    pub only_waiting: bool,
    /// The claimer's own request, by which its claim is remembered [apart from any run](super::Claimed).
    pub request: Option<Request>,
}

/// What a release brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The lease that the caller holds.
    pub lease_epoch: Option<u64>,
    /// The claim was not begun, so the run becomes ready.
    pub not_begun: bool,
}

/// The claim that is given back for its claimer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GiveBack {
    /// The lease that was granted.
    pub lease_epoch: u64,
    /// The claimer's own request: what is remembered of it is forgotten, unless the claimer has been answered meanwhile.
    pub request: Option<Request>,
    /// How often the claimer had asked again when it was seen to have gone.
    pub replays: u64,
}

/// What a request to abort brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestAbort {
    /// Why, for people.
    pub reason: Option<String>,
    /// How long the run may go on; none: as long as it likes.
    pub grace_ms: Option<u64>,
}

impl Ask {
    /// One of each, which brings nothing.
    #[must_use]
    pub fn each() -> [Self; 11] {
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
            Self::Sweep,
        ]
    }

    /// The RPC that asks for it; the authority's own have none, and the name of what they do.
    #[must_use]
    pub fn rpc(&self) -> &'static str {
        match self {
            Self::Start(_) => "StartRun",
            Self::Update(_) => "UpdateRun",
            Self::Complete(_) => "CompleteRun",
            Self::Abort(_) => "AbortRun",
            Self::Fail(_) => "FailRun",
            Self::Claim(_) => "ClaimRun",
            Self::Release(_) | Self::GiveBack(_) => "ReleaseRun",
            Self::RequestAbort(_) => "RequestAbort",
            Self::Sweep => "Sweep",
        }
    }

    /// The status that it leads to; none where that is the run's own, or depends on it.
    #[must_use]
    pub fn leads_to(&self) -> Option<Status> {
        match self {
            Self::Start(Start { deferred: true, .. }) => Some(Status::Pending),
            Self::Start(Start { deferred: false, .. }) | Self::Claim(_) => Some(Status::Running),
            Self::Update(_) | Self::Release(_) | Self::GiveBack(_) | Self::RequestAbort(_) | Self::Sweep => None,
            Self::Complete(_) => Some(Status::Completed),
            Self::Abort(_) => Some(Status::Aborted),
            Self::Fail(_) => Some(Status::Failed),
        }
    }

    /// Whether repeating the call, with nothing to recognise it by, still has one effect at most, and its answer tells as
    /// much.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        match self {
            // A lease that was granted to a lost answer is not known from the next one.
            Self::Start(start) => start.lease_ttl_ms.is_none(),
            Self::Complete(_) | Self::Abort(_) | Self::Fail(_) | Self::RequestAbort(_) | Self::Sweep => true,
            // A claim or a release that was applied makes its own repetition fail.
            Self::Update(_) | Self::Claim(_) | Self::Release(_) | Self::GiveBack(_) => false,
        }
    }

    /// The merge patch on the metadata; none where there can be none.
    #[must_use]
    pub fn metadata(&self) -> Option<&Metadata> {
        let metadata = match self {
            Self::Start(start) => &start.metadata,
            Self::Update(update) => &update.metadata,
            Self::Complete(complete) => &complete.metadata,
            Self::Abort(_)
            | Self::Fail(_)
            | Self::Claim(_)
            | Self::Release(_)
            | Self::GiveBack(_)
            | Self::RequestAbort(_)
            | Self::Sweep => return None,
        };
        Some(metadata).filter(|metadata| !metadata.is_empty())
    }

    /// Why the run is to end; none where no reason is given.
    #[must_use]
    pub fn why(&self) -> Option<&Ending> {
        match self {
            Self::Abort(end) | Self::Fail(end) => Some(&end.why),
            Self::Start(_)
            | Self::Update(_)
            | Self::Complete(_)
            | Self::Claim(_)
            | Self::Release(_)
            | Self::GiveBack(_)
            | Self::RequestAbort(_)
            | Self::Sweep => None,
        }
    }

    /// About how many bytes it takes in memory, beside its own size.
    pub(super) fn weight(&self) -> usize {
        let metadata = self.metadata().map_or(0, Metadata::weight);
        metadata
            + match self {
                Self::Start(start) => {
                    start.task_thread_id.len()
                        + start.agent_id.as_ref().map_or(0, String::len)
                        + start.links.weight()
                        + labels_weight(&start.labels)
                }
                Self::Update(update) => update.links.weight() + labels_weight(&update.labels.set),
                Self::Abort(end) | Self::Fail(end) => end.why.weight(),
                Self::RequestAbort(request) => request.reason.as_ref().map_or(0, String::len),
                Self::Complete(_) | Self::Claim(_) | Self::Release(_) | Self::GiveBack(_) | Self::Sweep => 0,
            }
    }
}
