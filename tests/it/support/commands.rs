//! Commands in one line: `update("run-1").agent("a").revision(3)`.

use std::collections::BTreeSet;

use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::domain::{Changes, Command, MaxRunning, Metadata, Operation, Principal, Request, RunKey, Terms};
use serde_json::Value;

/// The task thread of every run that a test does not give another one.
pub(crate) const THREAD: &str = "thread-1";

/// The ttl of every lease that a test does not give another one, in milliseconds.
pub(crate) const TTL_MS: u64 = 30_000;

pub(crate) fn key(run_id: &str) -> RunKey {
    RunKey { namespace: DEFAULT_NAMESPACE.to_owned(), run_id: run_id.to_owned() }
}

pub(crate) fn command(run_id: &str, operation: Operation) -> Command {
    let changes = match operation {
        Operation::Start { .. } => Changes { task_thread_id: Some(THREAD.to_owned()), ..Changes::default() },
        Operation::Fail => Changes { failure_reason: Some("it broke".to_owned()), ..Changes::default() },
        Operation::Update
        | Operation::Complete
        | Operation::Abort
        | Operation::Claim
        | Operation::Release
        | Operation::RequestAbort
        | Operation::Sweep => Changes::default(),
    };
    let terms = match operation {
        Operation::Claim => Terms { lease_ttl_ms: Some(TTL_MS), ..Terms::default() },
        Operation::Start { .. }
        | Operation::Update
        | Operation::Complete
        | Operation::Abort
        | Operation::Fail
        | Operation::Release
        | Operation::RequestAbort
        | Operation::Sweep => Terms::default(),
    };
    Command {
        key: key(run_id),
        operation,
        changes,
        terms,
        expected_revision: None,
        request: None,
        principal: Principal::anonymous(),
    }
}

pub(crate) fn start(run_id: &str) -> Command {
    command(run_id, Operation::Start { deferred: false })
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

pub(crate) fn request_abort(run_id: &str) -> Command {
    command(run_id, Operation::RequestAbort)
}

pub(crate) fn sweep(run_id: &str) -> Command {
    Command { principal: Principal::authority(), ..command(run_id, Operation::Sweep) }
}

pub(crate) fn metadata(value: &Value) -> Metadata {
    Metadata::from(value.as_object().expect("metadata is an object").clone())
}

/// What a test says about a command besides its operation. Say [`request`](Asking::request) last: it takes the digest.
pub(crate) trait Asking: Sized {
    fn changing(self, change: impl FnOnce(&mut Changes)) -> Self;
    fn by(self, agent_id: &str) -> Self;
    fn revision(self, expected: u64) -> Self;
    fn request(self, id: &str) -> Self;

    fn on(self, terms: impl FnOnce(&mut Terms)) -> Self;

    /// Under the lease of this epoch.
    fn epoch(self, epoch: u64) -> Self {
        self.on(|terms| terms.lease_epoch = Some(epoch))
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
    fn changing(mut self, change: impl FnOnce(&mut Changes)) -> Self {
        change(&mut self.changes);
        self
    }

    fn on(mut self, terms: impl FnOnce(&mut Terms)) -> Self {
        terms(&mut self.terms);
        self
    }

    fn by(mut self, agent_id: &str) -> Self {
        self.principal = Principal::claimed(agent_id.to_owned());
        self
    }

    fn revision(mut self, expected: u64) -> Self {
        self.expected_revision = Some(expected);
        self
    }

    fn request(mut self, id: &str) -> Self {
        self.request = Some(Request { id: id.to_owned(), digest: self.digest() });
        self
    }
}
