//! The rules, without a database.

mod attempts;
mod changes;
mod checks;
mod clocks;
mod desk;
mod histories;
mod identity;
mod leases;
mod lifecycles;
mod masking;
mod matrix;
mod model;
mod suspension;
mod timeouts;

use runledger::domain::decide::{Context, Decision, decide};
use runledger::domain::{Command, Event, Refusal, Run, Status, Time};

use crate::support::commands::{Asking as _, abort, complete, deferred, fail, start};
use crate::support::model::Model;

/// A moment after everything that [`run_in`] did.
fn now() -> Time {
    Time::from_micros(1_000_000)
}

/// Decides a command that was never applied before.
fn decided(run: Option<&Run>, command: &Command) -> Result<Decision, Refusal> {
    decide(run, command, &Context::at(now()))
}

/// The event that the command makes, and the run after it.
fn applied(run: Option<&Run>, command: &Command) -> (Event, Run) {
    match decided(run, command) {
        Ok(Decision::Apply(event, run)) => (*event, *run),
        other => panic!("{command:?} made no event: {other:?}"),
    }
}

/// The reason of the command's refusal.
fn refused(run: Option<&Run>, command: &Command) -> &'static str {
    decided(run, command).expect_err("a refusal").reason()
}

/// `run-1`, owned by `owner`, led to a status by the shortest way.
fn run_in(status: Status) -> Run {
    let id = "run-1";
    let begin = if status == Status::Pending { deferred(id) } else { start(id) };
    let end = match status {
        Status::Pending | Status::Running => None,
        Status::Completed => Some(complete(id)),
        Status::Aborted => Some(abort(id).reason("enough")),
        Status::Failed => Some(fail(id).reason("it broke first")),
    };
    let mut model = Model::default();
    for (command, at) in [begin.owner("owner").label("kept", "yes")].into_iter().chain(end).zip(1..) {
        model.ask(&command, Time::from_micros(at)).unwrap();
    }
    let run = model.runs.into_values().next().unwrap();
    assert_eq!(run.status, status);
    run
}
