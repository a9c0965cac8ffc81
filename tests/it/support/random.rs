//! Random commands over a few runs, agents and request ids, so that they collide.

use std::hash::{BuildHasher as _, RandomState};

use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use runledger::domain::{
    Ask, Command, Content, LeaseEpoch, LifecycleName, LimitThen, Link, MaxRunning, Priority, RedactedPath, Request,
    Revision, Route, RunId, Take, TimeoutThen, Update,
};
use serde_json::{Value, json};

use super::commands::{Asking as _, Fields, Operation, TTL_MS, Terms, command, metadata};

/// A source of random values. It prints its seed, which is shown where the test fails: with `PROPTEST_RNG_SEED` set to
/// it, the same values are drawn.
pub(crate) fn source() -> TestRunner {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(RandomState::new().hash_one(()));
    }
    println!("PROPTEST_RNG_SEED={}", config.rng_seed);
    TestRunner::new(config)
}

/// What redactions take out.
const PATHS: [&[&str]; 6] = [
    &["/metadata", "/links"],
    &["/metadata/a", "/input"],
    &["/metadata/deep/er/y", "/reason"],
    &["/metadata/b/1", "/result"],
    &["/links/b"],
    &["/input", "/result", "/links/a"],
];

/// What a command brings beside its run.
#[derive(Clone, Debug)]
struct Beside {
    content: Option<Content>,
    links: Vec<Link>,
    parent: Option<RunId>,
    standing: Standing,
}

/// Where a command says that its run stands.
#[derive(Clone, Debug)]
struct Standing {
    lifecycle: Option<&'static str>,
    phase: Option<&'static str>,
    iteration: Option<u32>,
    max: Option<(u32, LimitThen)>,
    priority: Option<i32>,
    /// How long a suspension may last, and how long the run may be ready then: longer than any test.
    timeout_ms: Option<u64>,
}

fn standing() -> impl Strategy<Value = Standing> {
    let lifecycle = prop_oneof![6 => Just("loop"), 3 => Just("loop@1"), 1 => Just("loop@2"), 1 => Just("none")];
    let phase = prop_oneof![4 => Just("plan"), 4 => Just("act"), 4 => Just("stop"), 2 => Just("ask"), 1 => Just("paused"), 1 => Just("other")];
    let then = prop_oneof![Just(LimitThen::Refuse), Just(LimitThen::Abort), Just(LimitThen::Suspend)];
    let limits = (weighted(0.1, 0..4_u32), weighted(0.1, (1..3_u32, then)));
    let waits = (weighted(0.2, -2..3_i32), weighted(0.3, 10_000_000..10_000_003_u64));
    let drawn = (weighted(0.6, lifecycle), weighted(0.4, phase), limits, waits);
    drawn.prop_map(|(lifecycle, phase, (iteration, max), (priority, timeout_ms))| Standing {
        lifecycle,
        phase,
        iteration,
        max,
        priority,
        timeout_ms,
    })
}

impl Beside {
    /// Puts into an ask what it can carry.
    fn put_into(self, ask: &mut Ask) {
        let Self { content, links, parent, standing } = self;
        let Standing { lifecycle, phase, iteration, max, priority, timeout_ms } = standing;
        let priority = priority.and_then(Priority::of);
        let phase = phase.map(str::to_owned);
        match ask {
            Ask::Start(start) => {
                (start.input, start.origin.parent_run_id) = (content, parent);
                start.position.lifecycle = lifecycle.and_then(LifecycleName::parse);
                // Most begin where they may.
                start.position.phase = phase.filter(|phase| phase == "plan");
                (start.position.max_iterations, start.position.max_iterations_then) = max.unzip();
                start.priority = priority;
                start.max_attempts = iteration.map(|iteration| iteration + 1);
                start.attempt_timeout_ms = timeout_ms;
            }
            Ask::Update(update) if priority.is_some() => *update = Update { priority, ..Update::default() },
            Ask::Update(update) => {
                (update.result, update.added) = (content, links);
                (update.position.phase, update.position.iteration) = (phase, iteration);
            }
            Ask::Complete(complete) => {
                (complete.result, complete.added, complete.position.phase) = (content, links, phase);
            }
            Ask::Fail(end) => {
                (end.result, end.position.phase, end.is_final) = (content, phase, iteration.is_some());
            }
            Ask::Abort(end) => (end.result, end.position.phase) = (content, phase),
            Ask::Suspend(suspend) => {
                let kinds = ["HELP", "PAUSED", "BUDGET"];
                kinds[links.len() % kinds.len()].clone_into(&mut suspend.kind);
                suspend.keep_slot = content.is_some();
                (suspend.terms.timeout_ms, suspend.ready_timeout_ms) = (timeout_ms, timeout_ms);
                suspend.terms.timeout_then = timeout_ms.and_then(|timeout| match timeout % 3 {
                    0 => None,
                    1 => Some(TimeoutThen::Resume),
                    _ => Some(TimeoutThen::Fail),
                });
                suspend.position.phase = phase;
            }
            Ask::Resume(resume) => {
                (resume.position.phase, resume.position.max_iterations) = (phase, max.map(|(max, _)| max + 2));
                resume.reason = resume.reason.take().filter(|_| parent.is_none());
            }
            Ask::RequestAbort(_)
            | Ask::Claim(_)
            | Ask::Release(_)
            | Ask::GiveBack(_)
            | Ask::Sweep
            | Ask::Archive
            | Ask::Restore
            | Ask::Redact(_) => {}
        }
    }
}

fn beside() -> impl Strategy<Value = Beside> {
    let content = (0..2_u8).prop_map(|number| Content::from(&metadata(&json!({ "n": number }))));
    let target = prop_oneof![4 => Just("1"), 4 => Just("2"), 1 => Just("[redacted]")];
    let link = (prop_oneof![Just("a"), Just("b")], target, of(Just("for people".to_owned())));
    let link = link.prop_map(|(rel, target, summary)| Link {
        rel: rel.to_owned(),
        target: target.to_owned(),
        sha256: None,
        media_type: None,
        summary,
    });
    let parent = Just(RunId::from("run-0"));
    (weighted(0.3, content), vec(link, 0..3), weighted(0.2, parent), standing())
        .prop_map(|(content, links, parent, standing)| Beside { content, links, parent, standing })
}

/// Commands over three runs, in batches of up to eight.
pub(crate) fn batches(count: usize) -> impl Strategy<Value = Vec<Vec<Command>>> {
    vec(vec(commands(), 1..8), 1..count)
}

pub(crate) fn commands() -> impl Strategy<Value = Command> {
    let asked = (0..3_u8, operation(), weighted(0.1, 0..6_u64), weighted(0.3, 0..4_u8), weighted(0.3, agent()));
    (asked, fields(), terms(), beside()).prop_map(
        |((run, operation, revision, request, agent), drawn, terms, beside)| {
            let command = command(&format!("run-{run}"), operation);
            let command = command.changing(|fields| *fields = sound(operation, drawn));
            let mut command = command.on(|said| *said = allowed(operation, terms));
            beside.put_into(&mut command.ask);
            if let Ask::Redact(redaction) = &mut command.ask {
                // Some take out one thing, some all of it.
                let number = usize::from(run) + request.map_or(0, usize::from);
                redaction.paths =
                    PATHS[number % PATHS.len()].iter().map(|path| RedactedPath::parse(path).unwrap()).collect();
            }
            command.expected_revision = revision.map(Revision::from);
            if let Some(agent) = agent {
                command = command.by(agent);
            }
            match request {
                Some(request) => command.request(&format!("request-{request}")),
                None => command,
            }
        },
    )
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
        1 => Just(Operation::GiveBack),
        1 => Just(Operation::RequestAbort),
        3 => Just(Operation::Suspend),
        3 => Just(Operation::Resume),
        3 => Just(Operation::Sweep),
        2 => Just(Operation::Archive),
        1 => Just(Operation::Restore),
        2 => Just(Operation::Redact),
    ]
}

fn terms() -> impl Strategy<Value = Terms> {
    let short = || weighted(0.2, 0..50_u64);
    let of_claims = (weighted(0.3, 1..3_u32), any::<bool>(), take(), weighted(0.3, (0..4_u8, 0..2_u8)));
    (weighted(0.3, 0..4_u64), any::<bool>(), short(), short(), short(), of_claims).prop_map(
        |(lease_epoch, leased, start_timeout_ms, run_timeout_ms, grace_ms, of_claims)| {
            let (limit, not_begun, only, claim_request) = of_claims;
            let lease_ttl_ms = leased.then_some(TTL_MS);
            let max_running = limit.map(|limit| MaxRunning { label: "a".to_owned(), limit });
            let claim_request = claim_request.map(|(id, digest)| Request { id: id.to_string(), digest: [digest; 32] });
            Terms {
                lease_epoch: lease_epoch.map(LeaseEpoch::from),
                lease_ttl_ms,
                start_timeout_ms,
                run_timeout_ms,
                grace_ms,
                max_running,
                not_begun,
                only,
                claim_request,
                claim_replays: 0,
            }
        },
    )
}

fn take() -> impl Strategy<Value = Option<Take>> {
    of(prop_oneof![Just(Take::Pending), Just(Take::Ready), Just(Take::Both)])
}

/// Leaves out what no caller may say together.
fn allowed(operation: Operation, terms: Terms) -> Terms {
    match operation {
        Operation::Start { deferred: true } => Terms { lease_ttl_ms: None, ..terms },
        Operation::Start { deferred: false } => Terms { start_timeout_ms: None, ..terms },
        Operation::Claim => {
            let lease_epoch = terms.lease_epoch.filter(|_| terms.only.is_none());
            Terms { lease_epoch, lease_ttl_ms: Some(TTL_MS), ..terms }
        }
        Operation::Abort => Terms { lease_epoch: None, ..terms },
        Operation::Update
        | Operation::Complete
        | Operation::Fail
        | Operation::Release
        | Operation::GiveBack
        | Operation::RequestAbort
        | Operation::Suspend
        | Operation::Resume
        | Operation::Sweep
        | Operation::Archive
        | Operation::Restore
        | Operation::Redact => terms,
    }
}

fn agent() -> impl Strategy<Value = &'static str> {
    prop_oneof![9 => Just("agent-a"), 1 => Just("agent-b")]
}

fn fields() -> impl Strategy<Value = Fields> {
    let links = (weighted(0.05, Just("thread-2")), weighted(0.2, agent()), of(link()), of(link()), of(link()));
    let flags = (of(route()), any::<bool>(), of("[a-z]{0,8}"));
    let labels = (vec(("[a-d]", "[x-z]{0,2}"), 0..3), vec("[a-d]", 0..2));
    (links, flags, labels, patch()).prop_map(|(links, (route, fallback_used, reason), (labels, removed), patch)| {
        let (thread, agent, tab, audit, workflow) = links;
        let labels: std::collections::BTreeMap<_, _> = labels.into_iter().collect();
        Fields {
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
            ..Fields::default()
        }
    })
}

/// Drawn fields, completed to those of a sound command.
fn sound(operation: Operation, drawn: Fields) -> Fields {
    match operation {
        // A failure has a reason.
        Operation::Fail => Fields {
            reason_code: drawn.failure_reason.map(|_| "TIMEOUT".to_owned()),
            failure_reason: Some("it broke".to_owned()),
            ..Fields::default()
        },
        Operation::Start { .. }
        | Operation::Update
        | Operation::Complete
        | Operation::Abort
        | Operation::Claim
        | Operation::Release
        | Operation::GiveBack
        | Operation::RequestAbort
        | Operation::Suspend
        | Operation::Resume
        | Operation::Sweep
        | Operation::Archive
        | Operation::Restore
        | Operation::Redact => drawn,
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
