//! Commands in one line: `update("run-1").agent("a").revision(3)`.

use std::collections::{BTreeMap, BTreeSet};

use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::domain::{
    Agents, Ask, BindingsChange, Claim, Command, Complete, Content, End, Ending, GiveBack, LabelsChange, LeaseEpoch,
    Link, MaxRunning, Metadata, Principal, RedactedPath, Redaction, Release, Request, RequestAbort, Resume, Revision,
    Route, RunId, RunKey, Start, Suspend, SuspensionTerms, Take, Update,
};
use serde_json::Value;

/// The task thread of every run that a test does not give another one.
pub(crate) const THREAD: &str = "thread-1";

/// The ttl of every lease that a test does not give another one, in milliseconds.
pub(crate) const TTL_MS: u64 = 30_000;

pub(crate) fn key(run_id: &str) -> RunKey {
    RunKey { namespace: DEFAULT_NAMESPACE.into(), run_id: run_id.into() }
}

/// The call of a command: an [`Ask`] without its fields, for tables of all asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Start { deferred: bool },
    Update,
    Complete,
    Abort,
    Fail,
    Claim,
    Release,
    GiveBack,
    RequestAbort,
    Suspend,
    Resume,
    Sweep,
    Archive,
    Restore,
    Redact,
}

impl Operation {
    pub(crate) const ALL: [Self; 16] = [
        Self::Start { deferred: false },
        Self::Start { deferred: true },
        Self::Update,
        Self::Complete,
        Self::Abort,
        Self::Fail,
        Self::Claim,
        Self::Release,
        Self::GiveBack,
        Self::RequestAbort,
        Self::Suspend,
        Self::Resume,
        Self::Sweep,
        Self::Archive,
        Self::Restore,
        Self::Redact,
    ];
}

pub(crate) fn command(run_id: &str, operation: Operation) -> Command {
    let ask = match operation {
        Operation::Start { deferred } => {
            Ask::Start(Start { deferred, task_thread_id: THREAD.to_owned(), ..Start::default() })
        }
        Operation::Update => Ask::Update(Update::default()),
        Operation::Complete => Ask::Complete(Complete::default()),
        Operation::Abort => Ask::Abort(End::default()),
        Operation::Fail => {
            let why = Ending { failure_reason: Some("it broke".to_owned()), reason_code: None };
            Ask::Fail(End { why, ..End::default() })
        }
        Operation::Claim => Ask::Claim(Claim { lease_ttl_ms: TTL_MS, ..Claim::default() }),
        Operation::Release => Ask::Release(Release::default()),
        Operation::GiveBack => Ask::GiveBack(GiveBack::default()),
        Operation::RequestAbort => Ask::RequestAbort(RequestAbort::default()),
        Operation::Suspend => {
            let terms = SuspensionTerms { reason: Some("which one?".to_owned()), ..SuspensionTerms::default() };
            Ask::Suspend(Suspend { kind: "HELP".to_owned(), terms, ..Suspend::default() })
        }
        Operation::Resume => Ask::Resume(Resume { reason: Some("that one".to_owned()), ..Resume::default() }),
        Operation::Sweep => Ask::Sweep,
        Operation::Archive => Ask::Archive,
        Operation::Restore => Ask::Restore,
        Operation::Redact => Ask::Redact(redaction(&["/metadata/a", "/metadata/deep/er", "/reason"])),
    };
    Command {
        key: key(run_id),
        ask,
        expected_revision: None,
        request: None,
        principal: Principal::anonymous(),
        agents: Agents::All,
        oversize: Vec::new(),
        prepared: runledger::domain::Prepared::default(),
        trace: None,
    }
}

/// Every field that some call may ask to set, so that a test says the same of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    pub(crate) task_thread_id: Option<String>,
    pub(crate) agent_id: Option<String>,
    pub(crate) route: Option<Route>,
    pub(crate) fallback_used: bool,
    pub(crate) tab_group_id: Option<String>,
    pub(crate) audit_session_id: Option<String>,
    pub(crate) workflow_id: Option<String>,
    pub(crate) failure_reason: Option<String>,
    pub(crate) reason_code: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) remove_labels: BTreeSet<String>,
    pub(crate) metadata: Metadata,
    pub(crate) parent_run_id: Option<RunId>,
    pub(crate) continues_run_id: Option<RunId>,
    pub(crate) phase: Option<String>,
    /// Bindings that have no field here.
    pub(crate) bindings: BindingsChange,
}

impl Fields {
    fn of_bindings(bindings: BindingsChange) -> Self {
        let BindingsChange { route, fallback_used, tab_group_id, audit_session_id, workflow_id, .. } = bindings.clone();
        Self { route, fallback_used, tab_group_id, audit_session_id, workflow_id, bindings, ..Self::default() }
    }

    fn of_why(why: Ending) -> Self {
        let Ending { failure_reason, reason_code } = why;
        Self { failure_reason, reason_code, ..Self::default() }
    }

    /// The fields of an ask.
    fn of(ask: &Ask) -> Self {
        match ask.clone() {
            Ask::Start(start) => Self {
                task_thread_id: Some(start.task_thread_id),
                agent_id: start.agent_id,
                labels: start.labels,
                metadata: start.metadata,
                parent_run_id: start.origin.parent_run_id,
                continues_run_id: start.origin.continues_run_id,
                phase: start.position.phase,
                ..Self::of_bindings(start.bindings)
            },
            Ask::Update(update) => Self {
                labels: update.labels.set,
                remove_labels: update.labels.remove,
                metadata: update.metadata,
                phase: update.position.phase,
                ..Self::of_bindings(update.bindings)
            },
            Ask::Complete(complete) => {
                Self { metadata: complete.metadata, phase: complete.position.phase, ..Self::default() }
            }
            Ask::Abort(end) | Ask::Fail(end) => Self { phase: end.position.phase, ..Self::of_why(end.why) },
            Ask::RequestAbort(request) => Self { failure_reason: request.reason, ..Self::default() },
            Ask::Claim(_)
            | Ask::Suspend(_)
            | Ask::Resume(_)
            | Ask::Release(_)
            | Ask::GiveBack(_)
            | Ask::Sweep
            | Ask::Archive
            | Ask::Restore
            | Ask::Redact(_) => Self::default(),
        }
    }

    /// Puts into an ask what it can carry.
    #[allow(clippy::needless_update, unused_variables, reason = "one may come later that no test sets by its name")]
    pub(crate) fn put_into(self, ask: &mut Ask) {
        let Self { route, fallback_used, tab_group_id, audit_session_id, workflow_id, bindings, .. } = self;
        let bindings = BindingsChange { route, fallback_used, tab_group_id, audit_session_id, workflow_id, ..bindings };
        let why = Ending { failure_reason: self.failure_reason, reason_code: self.reason_code };
        match ask {
            Ask::Start(start) => {
                start.task_thread_id = self.task_thread_id.unwrap_or_else(|| THREAD.to_owned());
                (start.agent_id, start.bindings) = (self.agent_id, bindings);
                (start.labels, start.metadata) = (self.labels, self.metadata);
                (start.origin.parent_run_id, start.origin.continues_run_id) =
                    (self.parent_run_id, self.continues_run_id);
                start.position.phase = self.phase;
            }
            Ask::Update(update) => {
                update.bindings = bindings;
                update.labels = LabelsChange { set: self.labels, remove: self.remove_labels };
                (update.metadata, update.position.phase) = (self.metadata, self.phase);
            }
            Ask::Complete(complete) => (complete.metadata, complete.position.phase) = (self.metadata, self.phase),
            Ask::Abort(end) | Ask::Fail(end) => (end.why, end.position.phase) = (why, self.phase),
            Ask::RequestAbort(request) => request.reason = why.failure_reason,
            Ask::Claim(_)
            | Ask::Suspend(_)
            | Ask::Resume(_)
            | Ask::Release(_)
            | Ask::GiveBack(_)
            | Ask::Sweep
            | Ask::Archive
            | Ask::Restore
            | Ask::Redact(_) => {}
        }
    }
}

/// The fields of calls about leases and time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) lease_epoch: Option<LeaseEpoch>,
    pub(crate) lease_ttl_ms: Option<u64>,
    pub(crate) start_timeout_ms: Option<u64>,
    pub(crate) run_timeout_ms: Option<u64>,
    pub(crate) grace_ms: Option<u64>,
    pub(crate) max_running: Option<MaxRunning>,
    pub(crate) not_begun: bool,
    pub(crate) only: Option<Take>,
    pub(crate) claim_request: Option<Request>,
    pub(crate) claim_replays: u64,
}

impl Terms {
    /// The terms of an ask.
    fn of(ask: &Ask) -> Self {
        let held = |lease_epoch| Self { lease_epoch, ..Self::default() };
        match ask.clone() {
            Ask::Start(start) => Self {
                lease_ttl_ms: start.lease_ttl_ms,
                start_timeout_ms: start.start_timeout_ms,
                run_timeout_ms: start.run_timeout_ms,
                ..Self::default()
            },
            Ask::Update(update) => held(update.lease_epoch),
            Ask::Complete(complete) => held(complete.lease_epoch),
            Ask::Abort(end) | Ask::Fail(end) => held(end.lease_epoch),
            Ask::Claim(claim) => Self {
                lease_ttl_ms: Some(claim.lease_ttl_ms),
                max_running: claim.max_running,
                only: claim.only,
                claim_request: claim.request,
                ..held(claim.expected_epoch)
            },
            Ask::Release(release) => Self { not_begun: release.not_begun, ..held(release.lease_epoch) },
            Ask::GiveBack(claim) => {
                Self { claim_request: claim.request, claim_replays: claim.replays, ..held(Some(claim.lease_epoch)) }
            }
            Ask::RequestAbort(request) => Self { grace_ms: request.grace_ms, ..Self::default() },
            Ask::Suspend(suspend) => held(suspend.lease_epoch),
            Ask::Resume(resume) => {
                Self { lease_ttl_ms: resume.lease_ttl_ms, max_running: resume.max_running, ..Self::default() }
            }
            Ask::Sweep | Ask::Archive | Ask::Restore | Ask::Redact(_) => Self::default(),
        }
    }

    /// Puts into an ask what it can carry.
    pub(crate) fn put_into(self, ask: &mut Ask) {
        match ask {
            Ask::Start(start) => {
                start.lease_ttl_ms = self.lease_ttl_ms;
                start.start_timeout_ms = self.start_timeout_ms;
                start.run_timeout_ms = self.run_timeout_ms;
            }
            Ask::Update(update) => update.lease_epoch = self.lease_epoch,
            Ask::Complete(complete) => complete.lease_epoch = self.lease_epoch,
            Ask::Abort(end) | Ask::Fail(end) => end.lease_epoch = self.lease_epoch,
            Ask::Claim(claim) => {
                *claim = Claim {
                    expected_epoch: self.lease_epoch,
                    lease_ttl_ms: self.lease_ttl_ms.unwrap_or(TTL_MS),
                    max_running: self.max_running,
                    only: self.only,
                    request: self.claim_request,
                };
            }
            Ask::Release(release) => {
                *release = Release { lease_epoch: self.lease_epoch, not_begun: self.not_begun };
            }
            Ask::GiveBack(claim) => {
                *claim = GiveBack {
                    lease_epoch: self.lease_epoch.unwrap_or(LeaseEpoch::NONE),
                    request: self.claim_request,
                    replays: self.claim_replays,
                };
            }
            Ask::RequestAbort(request) => request.grace_ms = self.grace_ms,
            Ask::Suspend(suspend) => suspend.lease_epoch = self.lease_epoch,
            Ask::Resume(resume) => (resume.lease_ttl_ms, resume.max_running) = (self.lease_ttl_ms, self.max_running),
            Ask::Sweep | Ask::Archive | Ask::Restore | Ask::Redact(_) => {}
        }
    }
}

pub(crate) fn start(run_id: &str) -> Command {
    command(run_id, Operation::Start { deferred: false })
}

/// A start of a run that is given something, by another run.
pub(crate) fn given(run_id: &str, input: &Value, parent: &str) -> Command {
    let mut command = start(run_id);
    if let Ask::Start(start) = &mut command.ask {
        start.input = Some(Content::from(&metadata(input)));
        start.origin.parent_run_id = Some(parent.into());
    }
    command
}

/// An update that leaves a result and links.
pub(crate) fn left(run_id: &str, result: &Value, links: &[(&str, &str)]) -> Command {
    let mut command = update(run_id);
    if let Ask::Update(update) = &mut command.ask {
        update.result = Some(Content::from(&metadata(result)));
        let link = |(rel, target): &(&str, &str)| Link {
            rel: (*rel).to_owned(),
            target: (*target).to_owned(),
            sha256: None,
            media_type: None,
            summary: None,
        };
        update.added = links.iter().map(link).collect();
    }
    command
}

/// Suspends a run.
pub(crate) fn suspend(run_id: &str, kind: &str, reason: &str) -> Command {
    let mut command = command(run_id, Operation::Suspend);
    if let Ask::Suspend(suspend) = &mut command.ask {
        (suspend.kind, suspend.terms.reason) = (kind.to_owned(), Some(reason.to_owned()));
    }
    command
}

/// Lets a suspended run go on, for a reason.
pub(crate) fn resume(run_id: &str) -> Command {
    command(run_id, Operation::Resume)
}

pub(crate) fn deferred(run_id: &str) -> Command {
    command(run_id, Operation::Start { deferred: true })
}

pub(crate) fn update(run_id: &str) -> Command {
    command(run_id, Operation::Update)
}

pub(crate) fn complete(run_id: &str) -> Command {
    command(run_id, Operation::Complete)
}

pub(crate) fn abort(run_id: &str) -> Command {
    command(run_id, Operation::Abort)
}

pub(crate) fn fail(run_id: &str) -> Command {
    command(run_id, Operation::Fail)
}

/// Starts a run and holds a lease on it.
pub(crate) fn leased(run_id: &str) -> Command {
    start(run_id).lease_ttl_ms(TTL_MS)
}

pub(crate) fn claim(run_id: &str) -> Command {
    command(run_id, Operation::Claim)
}

pub(crate) fn release(run_id: &str) -> Command {
    command(run_id, Operation::Release)
}

/// The authority's command that gives back an unreceived claim.
pub(crate) fn give_back(run_id: &str, epoch: u64) -> Command {
    Command { principal: Principal::authority(), ..command(run_id, Operation::GiveBack) }.epoch(epoch)
}

pub(crate) fn request_abort(run_id: &str) -> Command {
    command(run_id, Operation::RequestAbort)
}

pub(crate) fn sweep(run_id: &str) -> Command {
    Command { principal: Principal::authority(), ..command(run_id, Operation::Sweep) }
}

pub(crate) fn archive(run_id: &str) -> Command {
    command(run_id, Operation::Archive)
}

pub(crate) fn restore(run_id: &str) -> Command {
    command(run_id, Operation::Restore)
}

fn redaction(paths: &[&str]) -> Redaction {
    let paths = paths.iter().map(|path| RedactedPath::parse(path).expect("a path of a redaction")).collect();
    Redaction { paths, reason: Some("a secret".to_owned()) }
}

pub(crate) fn metadata(value: &Value) -> Metadata {
    Metadata::from(value.as_object().expect("metadata is an object").clone())
}

/// The fields of a command that a test sets besides its operation. Set [`request`](Asking::request) last: it takes the
/// digest.
pub(crate) trait Asking: Sized {
    fn changing(self, change: impl FnOnce(&mut Fields)) -> Self;
    fn by(self, agent_id: &str) -> Self;
    fn revision(self, expected: impl Into<Revision>) -> Self;
    fn request(self, id: &str) -> Self;

    fn on(self, terms: impl FnOnce(&mut Terms)) -> Self;

    /// Under the lease of this epoch.
    fn epoch(self, epoch: impl Into<LeaseEpoch>) -> Self {
        self.on(|terms| terms.lease_epoch = Some(epoch.into()))
    }

    fn lease_ttl_ms(self, ms: u64) -> Self {
        self.on(|terms| terms.lease_ttl_ms = Some(ms))
    }

    fn start_timeout_ms(self, ms: u64) -> Self {
        self.on(|terms| terms.start_timeout_ms = Some(ms))
    }

    fn run_timeout_ms(self, ms: u64) -> Self {
        self.on(|terms| terms.run_timeout_ms = Some(ms))
    }

    fn grace_ms(self, ms: u64) -> Self {
        self.on(|terms| terms.grace_ms = Some(ms))
    }

    fn max_running(self, label: &str, limit: u32) -> Self {
        self.on(|terms| terms.max_running = Some(MaxRunning { label: label.to_owned(), limit }))
    }

    fn thread(self, id: &str) -> Self {
        self.changing(|changes| changes.task_thread_id = Some(id.to_owned()))
    }

    fn owner(self, agent_id: &str) -> Self {
        self.changing(|changes| changes.agent_id = Some(agent_id.to_owned()))
    }

    fn label(self, key: &str, value: &str) -> Self {
        self.changing(|changes| {
            changes.labels.insert(key.to_owned(), value.to_owned());
        })
    }

    fn without_label(self, key: &str) -> Self {
        self.changing(|changes| changes.remove_labels.extend(BTreeSet::from([key.to_owned()])))
    }

    fn metadata(self, patch: &Value) -> Self {
        self.changing(|changes| changes.metadata = metadata(patch))
    }

    fn reason(self, reason: &str) -> Self {
        self.changing(|changes| changes.failure_reason = Some(reason.to_owned()))
    }

    fn workflow(self, id: &str) -> Self {
        self.changing(|changes| changes.workflow_id = Some(id.to_owned()))
    }
}

impl Asking for Command {
    fn changing(mut self, change: impl FnOnce(&mut Fields)) -> Self {
        let mut fields = Fields::of(&self.ask);
        change(&mut fields);
        fields.put_into(&mut self.ask);
        self
    }

    fn on(mut self, change: impl FnOnce(&mut Terms)) -> Self {
        let mut terms = Terms::of(&self.ask);
        change(&mut terms);
        terms.put_into(&mut self.ask);
        self
    }

    fn by(mut self, agent_id: &str) -> Self {
        self.principal = Principal::claimed(agent_id.to_owned());
        self
    }

    fn revision(mut self, expected: impl Into<Revision>) -> Self {
        self.expected_revision = Some(expected.into());
        self
    }

    fn request(mut self, id: &str) -> Self {
        self.request = Some(Request { id: id.to_owned(), digest: self.digest() });
        self
    }
}
