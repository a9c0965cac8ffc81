//! The calls and runs that are measured: of the size that `runledger bench` sends, and as large as the contract allows.

use std::sync::Arc;

use runledger::auth::{Caller, Rights};
use runledger::domain::batch::decide_batch;
use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::domain::{Agents, Command, Event, LedgerEpoch, Loaded, Principal, Run, Sides, Steady, Time};
use runledger::store::{Ledger, SealKey};
use runledger::wire::request;
use runledger_proto::{json::structure, v1};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// 2026-01-01T00:00:00Z: times have their usual width.
const NOW_MICROS: i64 = 1_767_225_600_123_456;

/// The sizes of metadata that are measured: as a bridge keeps it, and near the limit.
pub(super) const SIZES: [(&str, usize); 2] = [("200_bytes", 200), ("60_kb", 60 * 1024)];

/// A run as one event left it.
pub(super) struct Sample {
    pub(super) run: Run,
    pub(super) event: Event,
}

pub(super) fn ledger() -> Ledger {
    Ledger {
        id: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        epoch: LedgerEpoch::FIRST,
        shard_count: 4,
        seal_key: SealKey::new([7; 32]),
    }
}

pub(super) fn now() -> Time {
    Time::from_micros(NOW_MICROS)
}

pub(super) fn caller() -> Caller {
    Caller {
        namespace: DEFAULT_NAMESPACE.into(),
        principal: Principal::claimed("agent-1".to_owned()),
        agents: Agents::All,
        rights: Rights::all(),
    }
}

/// A `StartRun` whose metadata is about so large.
pub(super) fn start_request(number: usize, metadata_bytes: usize) -> v1::StartRunRequest {
    v1::StartRunRequest {
        task_thread_id: format!("thread-{number}"),
        run_id: format!("run-00000000-{number:08}"),
        agent_id: "agent-1".to_owned(),
        labels: [("team".to_owned(), "web".to_owned())].into(),
        metadata: Some(structure(&metadata(metadata_bytes))),
        ..v1::StartRunRequest::default()
    }
}

/// An `UpdateRun` that sets a label.
pub(super) fn update_request(number: usize) -> v1::UpdateRunRequest {
    v1::UpdateRunRequest {
        run_id: start_request(number, 0).run_id,
        labels: [("step".to_owned(), "checkout".to_owned())].into(),
        ..v1::UpdateRunRequest::default()
    }
}

/// An `UpdateRun` of run 0 whose label differs from every other step's, so that each makes an event.
pub(super) fn update_step(step: usize) -> Command {
    let labels = [("step".to_owned(), step.to_string())].into();
    let message = v1::UpdateRunRequest { labels, ..update_request(0) };
    request::update_run(message, &caller()).expect("a sound request")
}

pub(super) fn complete_request(number: usize) -> v1::CompleteRunRequest {
    v1::CompleteRunRequest { run_id: start_request(number, 0).run_id, ..v1::CompleteRunRequest::default() }
}

/// The command of [`start_request`].
pub(super) fn start(number: usize, metadata_bytes: usize) -> Command {
    request::start_run(start_request(number, metadata_bytes), &caller(), ledger().id).expect("a sound request")
}

/// The command of [`complete_request`].
pub(super) fn complete(number: usize) -> Command {
    request::complete_run(complete_request(number), &caller()).expect("a sound request")
}

/// A shard's end as a commit finds it, with these runs.
pub(super) fn loaded(runs: Vec<Run>) -> Loaded {
    let runs = runs.into_iter().map(Arc::new).collect();
    Loaded {
        last: 1_000_000,
        now: now(),
        steady: Steady::always(now()),
        runs,
        requests: Vec::new(),
        sides: Sides::default(),
        ledger_epoch: LedgerEpoch::FIRST,
    }
}

/// A run right after its start.
pub(super) fn started(number: usize, metadata_bytes: usize) -> Sample {
    of(start(number, metadata_bytes), Vec::new())
}

/// A run right after the completion that followed its start.
pub(super) fn completed(number: usize, metadata_bytes: usize) -> Sample {
    of(complete(number), vec![started(number, metadata_bytes).run])
}

fn of(command: Command, runs: Vec<Run>) -> Sample {
    let mut decided = decide_batch(&[Arc::new(command)], loaded(runs));
    let event = decided.events.pop().expect("the command makes its event").event;
    let run = decided.runs.pop().expect("the command changes its run").run;
    Sample { run: Arc::unwrap_or_clone(run), event }
}

/// Steps of a browser session, until they are about so many bytes as compact JSON.
fn metadata(bytes: usize) -> Map<String, Value> {
    let mut steps = Vec::new();
    let mut filled = 0;
    while filled < bytes.saturating_sub(100) {
        let step = json!({"url": "https://example.com/checkout", "clicks": 3, "note": "the cart was full", "ok": true});
        filled += step.to_string().len() + 1;
        steps.push(step);
    }
    Map::from_iter([("agent".to_owned(), json!("agent-1")), ("steps".to_owned(), Value::Array(steps))])
}
