//! Random commands over a few runs, agents and request ids, so that they collide.

use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use runledger::domain::{Changes, Command, MaxRunning, Operation, Request, Route, Terms};
use serde_json::{Value, json};

use super::commands::{Asking as _, TTL_MS, command, metadata};

/// Commands over three runs, in batches of up to eight.
pub(crate) fn batches(count: usize) -> impl Strategy<Value = Vec<Vec<Command>>> {
    vec(vec(commands(), 1..8), 1..count)
}

pub(crate) fn commands() -> impl Strategy<Value = Command> {
    let asked = (0..3_u8, operation(), weighted(0.1, 0..6_u64), weighted(0.3, 0..4_u8), weighted(0.3, agent()));
    (asked, changes(), terms()).prop_map(|((run, operation, revision, request, agent), changes, terms)| {
        let mut command = command(&format!("run-{run}"), operation).changing(|base| merge(base, changes, operation));
        command.expected_revision = revision;
        command.terms = asked_by(operation, terms);
        if let Some(agent) = agent {
            command = command.by(agent);
        }
        match request {
            Some(request) => command.request(&format!("request-{request}")),
            None => command,
        }
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => Just(Operation::Start { deferred: false }),
        2 => Just(Operation::Start { deferred: true }),
        8 => Just(Operation::Update),
        1 => Just(Operation::Complete),
        1 => Just(Operation::Abort),
        1 => Just(Operation::Fail),
        2 => Just(Operation::Claim),
        2 => Just(Operation::Release),
        1 => Just(Operation::RequestAbort),
        3 => Just(Operation::Sweep),
    ]
}

fn terms() -> impl Strategy<Value = Terms> {
    let short = || weighted(0.2, 0..50_u64);
    let of_claims = (weighted(0.3, 1..3_u32), any::<bool>(), any::<bool>(), weighted(0.3, (0..4_u8, 0..2_u8)));
    (weighted(0.3, 0..4_u64), any::<bool>(), short(), short(), short(), of_claims).prop_map(
        |(lease_epoch, leased, start_timeout_ms, run_timeout_ms, grace_ms, of_claims)| {
            let (limit, not_begun, only_waiting, claim_request) = of_claims;
            let lease_ttl_ms = leased.then_some(TTL_MS);
            let max_running = limit.map(|limit| MaxRunning { label: "a".to_owned(), limit });
            let claim_request = claim_request.map(|(id, digest)| Request { id: id.to_string(), digest: [digest; 32] });
            Terms {
                lease_epoch,
                lease_ttl_ms,
                start_timeout_ms,
                run_timeout_ms,
                grace_ms,
                max_running,
                not_begun,
                only_waiting,
                claim_request,
                claim_replays: 0,
            }
        },
    )
}

/// Takes what the operation's request can carry.
fn asked_by(operation: Operation, terms: Terms) -> Terms {
    let Terms {
        lease_epoch,
        lease_ttl_ms,
        start_timeout_ms,
        run_timeout_ms,
        grace_ms,
        max_running,
        not_begun,
        only_waiting,
        claim_request,
        claim_replays: _,
    } = terms;
    match operation {
        Operation::Start { deferred: true } => Terms { start_timeout_ms, run_timeout_ms, ..Terms::default() },
        Operation::Start { deferred: false } => Terms { lease_ttl_ms, run_timeout_ms, ..Terms::default() },
        Operation::Update | Operation::Complete | Operation::Fail => Terms { lease_epoch, ..Terms::default() },
        Operation::Release => {
            Terms { lease_epoch, not_begun, claim_request: claim_request.filter(|_| not_begun), ..Terms::default() }
        }
        Operation::Claim => Terms {
            lease_epoch: lease_epoch.filter(|_| !only_waiting),
            lease_ttl_ms: Some(TTL_MS),
            max_running,
            only_waiting,
            claim_request,
            ..Terms::default()
        },
        Operation::RequestAbort => Terms { grace_ms, ..Terms::default() },
        Operation::Abort | Operation::Sweep => Terms::default(),
    }
}

fn agent() -> impl Strategy<Value = &'static str> {
    prop_oneof![9 => Just("agent-a"), 1 => Just("agent-b")]
}

fn changes() -> impl Strategy<Value = Changes> {
    let links = (weighted(0.05, Just("thread-2")), weighted(0.2, agent()), of(link()), of(link()), of(link()));
    let flags = (of(route()), any::<bool>(), of("[a-z]{0,8}"));
    let labels = (vec(("[a-d]", "[x-z]{0,2}"), 0..3), vec("[a-d]", 0..2));
    (links, flags, labels, patch()).prop_map(|(links, (route, fallback_used, reason), (labels, removed), patch)| {
        let (thread, agent, tab, audit, workflow) = links;
        let labels: std::collections::BTreeMap<_, _> = labels.into_iter().collect();
        Changes {
            task_thread_id: thread.map(str::to_owned),
            agent_id: agent.map(str::to_owned),
            route,
            fallback_used,
            tab_group_id: tab,
            audit_session_id: audit,
            workflow_id: workflow,
            failure_reason: reason,
            reason_code: None,
            remove_labels: removed.into_iter().filter(|key| !labels.contains_key(key)).collect(),
            labels,
            metadata: metadata(&patch),
            ..Changes::default()
        }
    })
}

/// Takes what the operation's request can carry.
fn merge(base: &mut Changes, asked: Changes, operation: Operation) {
    match operation {
        Operation::Start { .. } => {
            let task_thread_id = asked.task_thread_id.clone().or(base.task_thread_id.take());
            *base = Changes {
                task_thread_id,
                failure_reason: None,
                remove_labels: std::collections::BTreeSet::new(),
                ..asked
            };
        }
        Operation::Update => {
            *base = Changes { task_thread_id: None, agent_id: None, failure_reason: None, ..asked };
        }
        Operation::Complete => base.metadata = asked.metadata,
        Operation::Abort | Operation::RequestAbort => base.failure_reason = asked.failure_reason,
        Operation::Claim | Operation::Release | Operation::Sweep => {}
        Operation::Fail => base.reason_code = asked.failure_reason.map(|_| "TIMEOUT".to_owned()),
    }
}

fn link() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just("link-1".to_owned()), Just("link-2".to_owned())]
}

fn route() -> impl Strategy<Value = Route> {
    prop_oneof![Just(Route::Mcp), Just(Route::Cli), Just(Route::Http)]
}

fn patch() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => Just(json!({})),
        1 => Just(json!({"a": 1, "b": [1, {"c": null}]})),
        1 => Just(json!({"a": null})),
        1 => Just(json!({"deep": {"er": {"x": 1.5}}})),
        1 => Just(json!({"deep": {"er": {"x": null, "y": "é\"\\"}}})),
        1 => Just(json!({"deep": "replaced"})),
        1 => (0..3_u32).prop_map(|n| json!({"n": n, "big": 1e300})),
    ]
}
