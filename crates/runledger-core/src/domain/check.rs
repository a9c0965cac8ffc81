//! Checks: a transition is tried on a run without making it.

use super::context::Context;
use super::decide::{ITERATION_LIMIT, decide};
use super::decision::Decision;
use super::evolve::evolve;
use super::{
    Agents, Ask, Cause, Changes, Command, Complete, Disposition, End, Event, EventType, Found, Lifecycle,
    LifecycleFound, Namespace, PositionAsk, Principal, Refusal, Revision, Run, RunId, RunKey, Start, Status, Time,
    Update,
};

/// The result that the RPC which leads to a status would have on a run as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The status that would be left; none: the run does not exist.
    pub from: Option<Status>,
    /// Whether the matrix allows the transition, and the run's lifecycle.
    pub allowed: bool,
    /// The effect that the call would have; or its refusal.
    pub outcome: Result<Disposition, Refusal>,
}

/// A transition that is tried: to a status, to a phase, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transition {
    /// The status; none: the run's own, by an update.
    pub to: Option<Status>,
    pub phase: Option<String>,
}

/// Tries the transition on a run, or on none.
#[must_use]
pub fn check_run(
    key: &RunKey,
    run: Option<&Run>,
    transition: Transition,
    lifecycle: LifecycleFound<'_>,
    principal: Principal,
    agents: Agents,
) -> Check {
    let Transition { to, phase } = transition;
    let position = PositionAsk { phase, ..PositionAsk::default() };
    // The check asks as the lease's holder would, since only a real request says who calls.
    let lease_epoch = run.map(|run| run.supervision.epoch());
    let start = |deferred| {
        // The check takes the identity from an existing run, so that no conflict is found there.
        let task_thread_id = run.map(|run| run.task_thread_id.clone()).unwrap_or_default();
        Ask::Start(Start { deferred, task_thread_id, position: position.clone(), ..Start::default() })
    };
    let mut command = Command {
        key: key.clone(),
        ask: match to {
            None => Ask::Update(Update { lease_epoch, position, ..Update::default() }),
            Some(Status::Pending) => start(true),
            Some(Status::Running) => start(false),
            Some(Status::Completed) => Ask::Complete(Complete { lease_epoch, position, ..Complete::default() }),
            Some(Status::Aborted) => Ask::Abort(End { position, ..End::default() }),
            // The one that leads to the status: of a run with attempts left, another failure leaves it RUNNING.
            Some(Status::Failed) => Ask::Fail(End { lease_epoch, position, is_final: true, ..End::default() }),
        },
        oversize: Vec::new(),
        prepared: crate::domain::Prepared::default(),
        expected_revision: None,
        request: None,
        principal,
        trace: None,
        agents,
    };
    let now = run.map_or(Time::from_micros(0), |run| run.updated_at);
    let context = Context { sides: Found { lifecycle, ..Found::default() }, ..Context::at(now) };
    let mut decision = decide(run, &command, &context);
    let is_suspended = run.and_then(Run::suspension).is_some();
    if let (Err(_), Ask::Complete(Complete { lease_epoch, .. }) | Ask::Update(Update { lease_epoch, .. }), true) =
        (&decision, &mut command.ask, is_suspended)
    {
        // Who approves a run that waits, or moves it from phase to phase, holds no lease.
        *lease_epoch = None;
        decision = decide(run, &command, &context).or(decision);
    }
    let outcome = decision.and_then(|decision| match decision {
        // An update that ends its run at its limit makes no step.
        Decision::Apply(event, _) if to.is_none() && is_at_limit(run, &event) => Err(above_limit(run)),
        Decision::Apply(event, _) => Ok(Disposition::of(&event)),
        Decision::Unchanged | Decision::Replayed { .. } => Ok(Disposition::Unchanged),
    });
    let from = run.map(|run| run.status);
    let allowed = to.map_or(matches!(outcome, Ok(Disposition::Applied)), |to| {
        Status::allows(from, to) && !outcome.as_ref().is_err_and(|refusal| refusal.cause() == Cause::Lifecycle)
    });
    Check { from, allowed, outcome }
}

/// Whether a step above a limit of iterations ends the run, or suspends it.
fn is_at_limit(run: Option<&Run>, event: &Event) -> bool {
    let was_suspended = run.and_then(Run::suspension).is_some();
    let suspension = event.changes.refinements.as_ref().and_then(|change| change.rest.suspension.as_ref());
    let is_ended = event.changes.ending.reason_code.as_deref() == Some(ITERATION_LIMIT);
    is_ended || (!was_suspended && suspension.is_some_and(|suspension| suspension.by_limit))
}

/// The refusal of a step above a limit of iterations that ends or suspends the run instead.
fn above_limit(run: Option<&Run>) -> Refusal {
    let run = run.expect("a run ends that is there");
    let stands = run.position();
    let max_iterations = stands.and_then(|stands| stands.max_iterations).unwrap_or_default();
    let iteration = stands.map_or(0, |stands| stands.iteration).saturating_add(1);
    Refusal::IterationLimit { iteration, max_iterations, run: run.summary() }
}

/// The phases that may follow a run's by its lifecycle, without the one that would begin an iteration above its limit.
#[must_use]
pub fn next_phases(run: &Run, lifecycle: &Lifecycle) -> Vec<String> {
    let stands = run.position();
    let phase = stands.and_then(|stands| stands.phase.as_deref());
    let is_at_limit = stands.is_some_and(|stands| stands.max_iterations.is_some_and(|max| stands.iteration >= max));
    let may = |to: &&str| !(is_at_limit && lifecycle.iterates(phase, to));
    lifecycle.allowed(phase).filter(may).map(str::to_owned).collect()
}

/// Tries the transition from a status, or from none, on a run that has nothing else.
#[must_use]
pub fn check_matrix(from: Option<Status>, to: Status) -> Check {
    let key = RunKey { namespace: Namespace::default(), run_id: RunId::default() };
    let run = from.map(|status| {
        let event = Event {
            key: key.clone(),
            revision: Revision::FIRST,
            at: Time::from_micros(0),
            steady_ahead_micros: 0,
            request_id: None,
            event_type: EventType::Created,
            from: None,
            to: status,
            principal: Principal::anonymous(),
            trace: None,
            changes: Changes::default(),
        };
        evolve(None, &event)
    });
    let transition = Transition { to: Some(to), phase: None };
    check_run(&key, run.as_ref(), transition, LifecycleFound::NotAsked, Principal::anonymous(), Agents::All)
}
