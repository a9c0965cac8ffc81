//! What would happen: a transition tried on a run without making it.

use super::decide::{Context, Decision, decide};
use super::evolve::evolve;
use super::{
    Ask, Changes, Command, Complete, End, Event, EventType, Namespace, Principal, Refusal, Run, RunId, RunKey, Start,
    Status, Time,
};

/// What the RPC that leads to a status would come to on a run as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The status that would be left; none: the run does not exist.
    pub from: Option<Status>,
    /// Whether the matrix allows the transition.
    pub allowed: bool,
    /// What the call would do; or its refusal.
    pub outcome: Result<Outcome, Refusal>,
}

/// What a call would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Make the transition.
    Applied,
    /// Nothing.
    Unchanged,
    /// Keep what it reports beside the run.
    RecordedLate,
}

/// Tries the transition on a run, or on none.
#[must_use]
pub fn check_run(key: &RunKey, run: Option<&Run>, to: Status, principal: Principal) -> Check {
    // As its holder would ask, or for an abort anybody: who that is, the request alone can say.
    let lease_epoch = run.map(|run| run.supervision.epoch());
    let start = |deferred| {
        // Where there is a run, its identity is not in question.
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
            revision: 1,
            at: Time::from_micros(0),
            request_id: None,
            event_type: EventType::Created,
            from: None,
            to: status,
            principal: Principal::anonymous(),
            changes: Changes::default(),
        };
        evolve(None, &event)
    });
    check_run(&key, run.as_ref(), to, Principal::anonymous())
}
