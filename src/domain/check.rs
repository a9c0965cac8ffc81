//! Checks: a transition is tried on a run without making it.

use super::decide::decide;
use super::decision::{Context, Decision};
use super::evolve::evolve;
use super::{
    Agents, Ask, Changes, Command, Complete, End, Event, EventType, Namespace, Principal, Refusal, Revision, Run,
    RunId, RunKey, Start, Status, Time,
};

/// The result that the RPC which leads to a status would have on a run as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The status that would be left; none: the run does not exist.
    pub from: Option<Status>,
    /// Whether the matrix allows the transition.
    pub allowed: bool,
    /// The effect that the call would have; or its refusal.
    pub outcome: Result<Outcome, Refusal>,
}

/// The effect that a call would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Make the transition.
    Applied,
    /// No change.
    Unchanged,
    /// Keep the call's report beside the run.
    RecordedLate,
}

/// Tries the transition on a run, or on none.
#[must_use]
pub fn check_run(key: &RunKey, run: Option<&Run>, to: Status, principal: Principal, agents: Agents) -> Check {
    // The check asks as the lease's holder would, since only a real request says who calls.
    let lease_epoch = run.map(|run| run.supervision.epoch());
    let start = |deferred| {
        // The check takes the identity from an existing run, so that no conflict is found there.
        let task_thread_id = run.map(|run| run.task_thread_id.clone()).unwrap_or_default();
        Ask::Start(Start { deferred, task_thread_id, ..Start::default() })
    };
    let command = Command {
        key: key.clone(),
        ask: match to {
            Status::Pending => start(true),
            Status::Running => start(false),
            Status::Completed => Ask::Complete(Complete { lease_epoch, ..Complete::default() }),
            Status::Aborted => Ask::Abort(End::default()),
            Status::Failed => Ask::Fail(End { lease_epoch, ..End::default() }),
        },
        expected_revision: None,
        request: None,
        principal,
        trace: None,
        agents,
    };
    let now = run.map_or(Time::from_micros(0), |run| run.updated_at);
    let context = Context::at(now);
    let outcome = decide(run, &command, &context).map(|decision| match decision {
        Decision::Apply(event, _) if event.event_type == EventType::LateReported => Outcome::RecordedLate,
        Decision::Apply(..) => Outcome::Applied,
        Decision::Unchanged | Decision::Replayed { .. } => Outcome::Unchanged,
    });
    let from = run.map(|run| run.status);
    Check { from, allowed: Status::allows(from, to), outcome }
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
    check_run(&key, run.as_ref(), to, Principal::anonymous(), Agents::All)
}
