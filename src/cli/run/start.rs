//! `runledger run start`.

use std::time::Duration;

use clap::{Args, Command};

use super::mutation::{Mutation, once, tell_dropped};
use super::parts::attempts::Attempts;
use super::parts::bindings::Bindings;
use super::parts::deadlines::Timeouts;
use super::parts::origin::Origin;
use super::parts::position::Position;
use crate::cli::exit::{Stop, exit_codes, say};
use crate::cli::fields::{self, JsonSource, Label};
use crate::text::{seconds_or_duration, within};
use runledger_proto::fields::unlike;
use runledger_proto::{duration, v1};

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger run start --task-thread-id thread-1\n  \
    runledger run start --task-thread-id thread-1 --run-id try-1 --route mcp --label team=search\n  \
    runledger run start --task-thread-id thread-1 --deferred --metadata '{\"page\": \"a\"}'\n  \
    echo '{\"url\": \"https://example.com\"}' | runledger run start --task-thread-id thread-1 --input -\n\n\
    A run that is already running stays as it is, and the command succeeds: see the disposition.\n",
    once!(),
    exit_codes!()
);

#[derive(Args, Debug)]
pub(super) struct StartArgs {
    /// The orchestration task that the run belongs to
    #[arg(long, visible_alias = "task-thread", value_name = "ID")]
    task_thread_id: String,
    /// The run's id [default: the authority makes one]
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Create it pending, to be started later
    #[arg(long)]
    deferred: bool,
    #[command(flatten)]
    bindings: Bindings,
    /// A label; repeat it for more
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Label>,
    /// The run's own data
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    metadata: Option<JsonSource>,
    /// Hold a lease on it: without a heartbeat for so long, it ends as failed
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    lease_ttl: Option<Duration>,
    #[command(flatten)]
    timeouts: Timeouts,
    #[command(flatten)]
    attempts: Attempts,
    /// What whoever executes the run must know, kept beside the run
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    input: Option<JsonSource>,
    #[command(flatten)]
    origin: Origin,
    /// Priority among the runs that wait for a claim, -100 to 100: the higher one comes first
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = within(-100..=100_i32))]
    priority: Option<i32>,
    #[command(flatten)]
    position: Position,
    #[command(flatten)]
    mutation: Mutation,
}

impl StartArgs {
    pub(super) fn request(self) -> Result<(v1::StartRunRequest, Mutation), Stop> {
        let mut request = v1::StartRunRequest {
            task_thread_id: self.task_thread_id,
            run_id: self.run_id.unwrap_or_default(),
            deferred: self.deferred,
            metadata: fields::json("--metadata", self.metadata.as_ref())?,
            labels: fields::labels(self.labels)?,
            lease_ttl: self.lease_ttl.map(duration),
            input: fields::json("--input", self.input.as_ref())?,
            priority: self.priority.unwrap_or_default(),
            ..v1::StartRunRequest::default()
        };
        self.bindings.put(&mut request);
        self.timeouts.put(&mut request);
        self.attempts.put(&mut request);
        self.origin.put(&mut request);
        self.position.put(&mut request);
        Ok((request, self.mutation))
    }
}

/// Says which flags were not taken by a run that was there already.
pub(super) fn tell((request, answer): &(v1::StartRunRequest, v1::StartRunResponse)) {
    if answer.disposition() == v1::Disposition::Unchanged {
        let flags = StartArgs::augment_args(Command::new("start"));
        let flag = |field: &String| flags.get_arguments().find(|arg| arg.get_id() == field)?.get_long();
        let dropped = dropped(request, answer.run.as_ref().unwrap_or(&v1::Run::default()));
        let dropped: Vec<_> = dropped.iter().filter_map(flag).map(|flag| format!("--{flag}")).collect();
        tell_dropped("the run was there already", &dropped);
        if request.lease_ttl.is_some() {
            say("the run was running already: no lease was granted, and the one that it shows may be somebody else's");
        }
    }
}

/// The fields of which nothing is dropped without a word: the ids of the call and of the run, and those that have a
/// sentence of their own.
const OTHERS: [&str; 6] = ["task_thread_id", "run_id", "deferred", "lease_ttl", "request_id", "expected_revision"];

/// The order in which the flags of fields are told. Those of other fields come last.
const ORDER: &str = "route fallback_used agent_id tab_group_id audit_session_id workflow_id labels metadata input \
                     start_timeout run_timeout parent_run_id continues_run_id lifecycle phase max_iterations \
                     max_iterations_then priority max_attempts attempt_timeout";

/// The fields of a start that were not taken by a run that was there: those of which it says something else, or does not
/// show what it has.
fn dropped(asked: &v1::StartRunRequest, run: &v1::Run) -> Vec<String> {
    let is_pinned = run.lifecycle.starts_with(&format!("{}@", asked.lifecycle));
    let mut dropped = unlike(asked, run);
    dropped.retain(|field| !(OTHERS.contains(&field.as_str()) || is_pinned && field == "lifecycle"));
    dropped.sort_by_key(|field| ORDER.split(' ').position(|it| it == field).unwrap_or(ORDER.len()));
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_says_otherwise_was_dropped_and_a_pin_of_the_same_name_was_not() {
        let asked = v1::StartRunRequest {
            run_id: "r".to_owned(),
            request_id: "q".to_owned(),
            lifecycle: "a".to_owned(),
            priority: 1,
            metadata: Some(runledger_proto::json::structure(
                serde_json::json!({"a": 1}).as_object().expect("it is an object"),
            )),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            run_timeout: Some(duration(Duration::ZERO)),
            ..v1::StartRunRequest::default()
        };
        let pinned = v1::Run { lifecycle: "a@2".to_owned(), ..v1::Run::default() };
        assert_eq!(dropped(&asked, &pinned), ["labels", "metadata", "run_timeout", "priority"]);
        assert_eq!(dropped(&asked, &v1::Run::default())[3..], ["lifecycle", "priority"]);
        assert!(dropped(&v1::StartRunRequest::default(), &pinned).is_empty());
    }
}
