//! Lifecycles for tests: declared in the text that users write.

use runledger::declaration;
use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::domain::{
    Ask, Command, Content, Declared, Lifecycle, LifecycleId, LifecycleName, LimitThen, Principal, PutLifecycle,
    PutOutcome,
};
use runledger::store::Store;
use serde_json::Value;

use super::commands::metadata;

/// The lifecycle of random commands: every rule of it is met often.
pub(crate) const RANDOM: &str = r#"
name: loop
phases:
  plan: {initial: true, next: [act]}
  act: {next: [plan, stop, ask]}
  stop: {may_complete: true, next: [plan]}
  ask: {next: [act, paused], suspends: FEEDBACK, may_complete: true}
  paused: {next: [ask, plan], suspends: PAUSED}
on_suspend: {PAUSED: paused}
iterates: {from: act, to: plan}
max_iterations: 2
max_iterations_then: ABORT
at_end: stop
completion_requires: ["LINK:a"]
redact_keys: [er, "N*"]
words:
  - {status: FAILED, reason_code: TIMEOUT, word: late}
  - {ready: true, word: idle}
  - {suspended: HELP, word: stuck}
  - {suspended: true, word: waiting}
  - {status: RUNNING, word_from: phase}
"#;

/// The loop of an agent, as it ships, but for the suspension at its limit.
pub(crate) fn agent_loop(then: &str) -> String {
    shipped("craik.task_run").replace("max_iterations_then: SUSPEND", &format!("max_iterations_then: {then}"))
}

/// A lifecycle that ships with the authority.
pub(crate) fn shipped(name: &str) -> String {
    declaration::built_in(name).expect("it ships").to_owned()
}

pub(crate) fn read(source: &str) -> Lifecycle {
    declaration::read(source).unwrap_or_else(|findings| panic!("{findings:?}"))
}

pub(crate) fn declared(source: &str, version: u32) -> Declared {
    let lifecycle = read(source);
    Declared::new(LifecycleId { name: lifecycle.name.clone(), version }, lifecycle)
}

/// A put in the namespace `default`.
pub(crate) fn put_of(source: &str) -> PutLifecycle {
    PutLifecycle {
        namespace: DEFAULT_NAMESPACE.into(),
        lifecycle: read(source),
        source: source.to_owned(),
        by: Principal::anonymous(),
        only_new: false,
    }
}

/// Puts a declaration; its version.
pub(crate) async fn put(store: &dyn Store, source: &str) -> PutOutcome {
    store.put_lifecycle(&put_of(source)).await.unwrap()
}

/// The fields of a command that say where its run stands.
pub(crate) trait Standing: Sized {
    fn with(self, lifecycle: &str) -> Self;
    fn phase(self, phase: &str) -> Self;
    fn iteration(self, iteration: u32) -> Self;
    fn max_iterations(self, max: u32, then: LimitThen) -> Self;
    fn input(self, input: &Value) -> Self;
    fn result(self, result: &Value) -> Self;
}

impl Standing for Command {
    fn with(mut self, lifecycle: &str) -> Self {
        let Ask::Start(start) = &mut self.ask else { panic!("no start") };
        start.position.lifecycle = Some(LifecycleName::parse(lifecycle).expect("a lifecycle"));
        self
    }

    fn phase(mut self, phase: &str) -> Self {
        let to = match &mut self.ask {
            Ask::Start(start) => &mut start.position.phase,
            Ask::Update(update) => &mut update.position.phase,
            Ask::Complete(complete) => &mut complete.position.phase,
            Ask::Abort(end) | Ask::Fail(end) => &mut end.position.phase,
            Ask::Suspend(suspend) => &mut suspend.position.phase,
            Ask::Resume(resume) => &mut resume.position.phase,
            Ask::Claim(_) | Ask::Release(_) | Ask::GiveBack(_) | Ask::RequestAbort(_) | Ask::Redact(_) => {
                panic!("no phase")
            }
            Ask::Sweep | Ask::Archive | Ask::Restore => panic!("no phase"),
        };
        *to = Some(phase.to_owned());
        self
    }

    fn iteration(mut self, iteration: u32) -> Self {
        let Ask::Update(update) = &mut self.ask else { panic!("no update") };
        update.position.iteration = Some(iteration);
        self
    }

    fn max_iterations(mut self, max: u32, then: LimitThen) -> Self {
        let Ask::Start(start) = &mut self.ask else { panic!("no start") };
        (start.position.max_iterations, start.position.max_iterations_then) = (Some(max), Some(then));
        self
    }

    fn input(mut self, input: &Value) -> Self {
        let Ask::Start(start) = &mut self.ask else { panic!("no start") };
        start.input = Some(Content::from(&metadata(input)));
        self
    }

    fn result(mut self, result: &Value) -> Self {
        let to = match &mut self.ask {
            Ask::Update(update) => &mut update.result,
            Ask::Complete(complete) => &mut complete.result,
            Ask::Abort(end) | Ask::Fail(end) => &mut end.result,
            Ask::Start(_)
            | Ask::Claim(_)
            | Ask::Suspend(_)
            | Ask::Resume(_)
            | Ask::Release(_)
            | Ask::GiveBack(_)
            | Ask::RequestAbort(_)
            | Ask::Redact(_)
            | Ask::Sweep
            | Ask::Archive
            | Ask::Restore => panic!("no result"),
        };
        *to = Some(Content::from(&metadata(result)));
        self
    }
}
