//! What a caller asks for.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{AbortRequest, LateReport, Lease, MaxRunning, Metadata, Ready, Route, RunKey, Status, Time, Unbegun};

/// One mutation, validated as far as it can be without the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The run that it is for.
    pub key: RunKey,
    /// What it does.
    pub operation: Operation,
    /// The fields that it brings.
    pub changes: Changes,
    /// What it says of leases and of time.
    pub terms: Terms,
    /// The revision that the run must have; 0: it must not exist.
    pub expected_revision: Option<u64>,
    /// What makes it safe to retry.
    pub request: Option<Request>,
    /// Who asks.
    pub principal: Principal,
}

impl Command {
    /// Whether it is decided on the lease as it is kept, besides the run.
    #[must_use]
    pub fn looks_at_lease(&self) -> bool {
        match self.operation {
            Operation::Claim | Operation::Sweep => true,
            Operation::Release => self.gives_back_unreceived(),
            Operation::Start { .. }
            | Operation::Update
            | Operation::Complete
            | Operation::Abort
            | Operation::Fail
            | Operation::RequestAbort => false,
        }
    }

    /// Whether the authority gives a claim back that it takes for one that nobody received.
    #[must_use]
    pub fn gives_back_unreceived(&self) -> bool {
        self.operation == Operation::Release && self.principal.kind == PrincipalKind::Authority
    }

    /// The digest of everything that a retry must repeat: the RPC's name and every set field in canonical JSON, with
    /// the acting agent, without the `request_id`. Frozen: it is compared with digests in the ledger.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Asked<'a> {
            rpc: &'static str,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            deferred: bool,
            run_id: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            expected_revision: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            acting_agent: Option<&'a str>,
            #[serde(skip_serializing_if = "Terms::is_empty")]
            terms: &'a Terms,
            changes: &'a Changes,
        }
        let asked = Asked {
            rpc: self.operation.rpc(),
            deferred: self.operation == Operation::Start { deferred: true },
            run_id: &self.key.run_id,
            expected_revision: self.expected_revision,
            acting_agent: self.principal.agent_id.as_deref(),
            terms: &self.terms,
            changes: &self.changes,
        };
        let json = serde_json::to_vec(&asked).expect("strings and numbers serialize");
        Sha256::digest(json).into()
    }

    /// Whether repeating it, with nothing to recognise it by, still has one effect at most, and its answer tells as much. A
    /// lease that was granted to a lost answer is not known from the next one.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        // Its own revision would refuse the repetition.
        self.operation.is_idempotent() && self.terms.lease_ttl_ms.is_none() && self.expected_revision.is_none()
    }

    /// About how many bytes the command takes in memory: for bounds on queues and batches.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.key.run_id.len() + self.changes.weight()
    }
}

/// What a command says of leases and of time. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Terms {
    /// The lease that the caller holds; for a claim, the one that the run must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_epoch: Option<u64>,
    /// How long the lease lasts that it asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ttl_ms: Option<u64>,
    /// How long a new run may be pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout_ms: Option<u64>,
    /// How long the run may be running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// How long after a request to abort it the run may go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// How many runs with its value of a label may be running when a pending run is claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running: Option<MaxRunning>,
    /// A release: the claim was not begun, so the run becomes ready.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub not_begun: bool,
    /// A claim: only of a run that [waits for one](super::Run::awaits_claim), not of one whose lease is over.
    #[serde(skip)]
    pub only_waiting: bool,
    /// The claimer's own request, by which its claim is remembered [apart from any run](super::Claimed). A claim writes
    /// it; a release that nobody asked for takes it back, unless the claimer has been answered meanwhile.
    #[serde(skip)]
    pub claim_request: Option<Request>,
    /// A release that takes a claim back: how often the claimer had asked again when it was seen to have gone.
    #[serde(skip)]
    pub claim_replays: u64,
}

impl Terms {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Creates a run, or starts a pending one.
    Start {
        /// Creates it pending.
        deferred: bool,
    },
    /// Changes links, labels or metadata.
    Update,
    /// Ends it successfully.
    Complete,
    /// Ends it on purpose.
    Abort,
    /// Ends it with an error.
    Fail,
    /// Takes its lease: of a pending run, or where nobody holds it any more.
    Claim,
    /// Gives its lease up.
    Release,
    /// Asks who executes it to abort it.
    RequestAbort,
    /// The authority's own: ends it if its time is over.
    Sweep,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 10] = [
        Self::Start { deferred: false },
        Self::Start { deferred: true },
        Self::Update,
        Self::Complete,
        Self::Abort,
        Self::Fail,
        Self::Claim,
        Self::Release,
        Self::RequestAbort,
        Self::Sweep,
    ];

    /// The RPC that asks for it; a sweep has none.
    #[must_use]
    pub fn rpc(self) -> &'static str {
        match self {
            Self::Start { .. } => "StartRun",
            Self::Update => "UpdateRun",
            Self::Complete => "CompleteRun",
            Self::Abort => "AbortRun",
            Self::Fail => "FailRun",
            Self::Claim => "ClaimRun",
            Self::Release => "ReleaseRun",
            Self::RequestAbort => "RequestAbort",
            Self::Sweep => "Sweep",
        }
    }

    /// The status that it leads to; none where that is the run's own, or depends on it.
    #[must_use]
    pub fn leads_to(self) -> Option<Status> {
        match self {
            Self::Start { deferred: true } => Some(Status::Pending),
            Self::Start { deferred: false } | Self::Claim => Some(Status::Running),
            Self::Update | Self::Release | Self::RequestAbort | Self::Sweep => None,
            Self::Complete => Some(Status::Completed),
            Self::Abort => Some(Status::Aborted),
            Self::Fail => Some(Status::Failed),
        }
    }

    /// Whether repeating the call, with nothing to recognise it by, still has one effect at most.
    #[must_use]
    pub fn is_idempotent(self) -> bool {
        match self {
            Self::Start { .. } | Self::Complete | Self::Abort | Self::Fail | Self::RequestAbort | Self::Sweep => true,
            // A claim or a release that was applied makes its own repetition fail.
            Self::Update | Self::Claim | Self::Release => false,
        }
    }
}

/// The fields that a command asks to set, and that an event set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Changes {
    /// Set at creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_thread_id: Option<String>,
    /// Set at creation, or when a pending run without an owner starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Route>,
    /// Turns it on; false leaves it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fallback_used: bool,
    /// The new value; empty clears.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tab_group_id: Option<String>,
    /// The new value; empty clears.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_session_id: Option<String>,
    /// The new value; empty clears.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    /// Set when a run is aborted or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Set when a run is aborted or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<String>,
    /// Labels to set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Keys of labels to drop.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub remove_labels: BTreeSet<String>,
    /// Merge patch on the metadata; empty changes nothing.
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// The lease that was granted or given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// See [`Supervision::start_deadline`](super::Supervision::start_deadline).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_deadline: Option<Time>,
    /// See [`Supervision::run_timeout_ms`](super::Supervision::run_timeout_ms).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// The request to abort the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_request: Option<Box<AbortRequest>>,
    /// The authority concluded it by itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub presumed: bool,
    /// What was reported late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_report: Option<Box<LateReport>>,
    /// The run became ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<Box<Ready>>,
    /// The lease was granted by a claim, which may be given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unbegun: Option<Box<Unbegun>>,
}

impl Changes {
    /// About how many bytes it takes in memory, beside its own size.
    pub(super) fn weight(&self) -> usize {
        let texts =
            [&self.task_thread_id, &self.agent_id, &self.tab_group_id, &self.audit_session_id, &self.workflow_id];
        texts.iter().filter_map(|text| text.as_ref().map(String::len)).sum::<usize>()
            + self.failure_reason.as_ref().map_or(0, String::len)
            + self.labels.iter().map(|(key, value)| 64 + key.len() + value.len()).sum::<usize>()
            + self.metadata.weight()
    }
}

/// What the authority remembers of an applied call, to recognise its retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller's `request_id`.
    pub id: String,
    /// See [`Command::digest`].
    pub digest: [u8; 32],
}

/// How far the authority knows who made a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrincipalKind {
    /// The caller named nobody.
    Anonymous,
    /// The caller named an agent; nothing proved it.
    Claimed,
    /// The caller proved who it is.
    Authenticated,
    /// Nobody called: the authority itself.
    Authority,
}

/// Who makes a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Principal {
    /// How far it is known.
    pub kind: PrincipalKind,
    /// The acting agent; none when anonymous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

impl Principal {
    /// A caller that named nobody.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { kind: PrincipalKind::Anonymous, agent_id: None }
    }

    /// The authority itself.
    #[must_use]
    pub fn authority() -> Self {
        Self { kind: PrincipalKind::Authority, agent_id: None }
    }

    /// A caller that named an agent, unproven.
    #[must_use]
    pub fn claimed(agent_id: String) -> Self {
        Self { kind: PrincipalKind::Claimed, agent_id: Some(agent_id) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Digests are compared with those in the ledger: if this fails after an upgrade of a dependency, retries of calls
    /// that were applied before it would be refused.
    #[test]
    fn a_digest_never_changes() {
        let metadata = json!({"b": [1, -2.5, 1e300, null, {"ü": "\u{1}\"/"}], "a": 0.1, "c": {"deleted": null}});
        let command = Command {
            key: RunKey { namespace: "default".into(), run_id: "run-1".into() },
            operation: Operation::Start { deferred: true },
            changes: Changes {
                task_thread_id: Some("task".into()),
                agent_id: Some("agent".into()),
                route: Some(Route::Mcp),
                fallback_used: true,
                tab_group_id: Some("tabs".into()),
                audit_session_id: Some("audit".into()),
                workflow_id: Some("workflow".into()),
                failure_reason: Some("because".into()),
                reason_code: Some("TIMEOUT".into()),
                labels: [("z".into(), "1".into()), ("a".into(), "🦀".into())].into(),
                remove_labels: ["old".into(), "gone".into()].into(),
                metadata: Metadata::from(metadata.as_object().unwrap().clone()),
                ..Changes::default()
            },
            terms: Terms::default(),
            expected_revision: Some(0),
            request: Some(Request { id: "not part of it".into(), digest: [0; 32] }),
            principal: Principal::claimed("acting".into()),
        };
        let digest = command.digest().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        assert_eq!(digest, "69a4c9ba91f59c1bfbd9b3ecee9465241926e61bdbab3f2c299aaf214d10a52f");
    }
}
