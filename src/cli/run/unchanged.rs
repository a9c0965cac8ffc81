//! What a call that changed nothing has dropped: who asked for it hears so.

use crate::cli::exit::say;
use runledger_proto::v1;

/// Says which flags of a start were not taken by a run that was there: those of which it says something else, or does not
/// show what it has.
pub(super) fn tell_of_start(asked: &v1::StartRunRequest, run: &v1::Run) {
    tell("the run was there already", &of_start(asked, run));
}

/// Says which flags of the call that ends a run were not taken, since it had ended.
pub(super) fn tell_of_end(disposition: v1::Disposition, given: &[(&'static str, bool)]) {
    if disposition == v1::Disposition::Unchanged {
        let dropped: Vec<_> = given.iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| *flag).collect();
        tell("the run had ended already, and stays as it is", &dropped);
    }
}

/// Whether a reason and its code are others than those of the run.
pub(super) fn other_reasons(reason: &str, code: &str, run: Option<&v1::Run>) -> [bool; 2] {
    let has = |own: fn(&v1::Run) -> &str| run.map_or("", own);
    [
        !reason.is_empty() && reason != has(|run| &run.failure_reason),
        !code.is_empty() && code != has(|run| &run.reason_code),
    ]
}

fn tell(why: &str, dropped: &[&str]) {
    match dropped {
        [] => {}
        [one] => say(&format!("{why}: {one} was not taken")),
        several => say(&format!("{why}: {} were not taken", several.join(", "))),
    }
}

fn of_start(asked: &v1::StartRunRequest, run: &v1::Run) -> Vec<&'static str> {
    let is_text = |asked: &str, has: &str| !asked.is_empty() && asked != has;
    let is_number = |asked: i32, has: i32| asked != 0 && asked != has;
    let metadata = asked.metadata.clone().unwrap_or_default() != run.metadata.clone().unwrap_or_default();
    let is_pinned = run.lifecycle == asked.lifecycle || run.lifecycle.starts_with(&format!("{}@", asked.lifecycle));
    let flags = [
        ("--route", is_number(asked.route, run.route)),
        ("--fallback-used", asked.fallback_used && !run.fallback_used),
        ("--agent-id", is_text(&asked.agent_id, &run.agent_id)),
        ("--tab-group-id", is_text(&asked.tab_group_id, &run.tab_group_id)),
        ("--audit-session-id", is_text(&asked.audit_session_id, &run.audit_session_id)),
        ("--workflow-id", is_text(&asked.workflow_id, &run.workflow_id)),
        ("--label", asked.labels.iter().any(|(key, value)| run.labels.get(key) != Some(value))),
        ("--metadata", asked.metadata.is_some() && metadata),
        ("--input", asked.input.is_some()),
        ("--start-timeout", asked.start_timeout.is_some()),
        ("--run-timeout", asked.run_timeout.is_some()),
        ("--parent", is_text(&asked.parent_run_id, &run.parent_run_id)),
        ("--continues", is_text(&asked.continues_run_id, &run.continues_run_id)),
        ("--lifecycle", !asked.lifecycle.is_empty() && !is_pinned),
        ("--phase", is_text(&asked.phase, &run.phase)),
        ("--max-iterations", asked.max_iterations != 0 && asked.max_iterations != run.max_iterations),
        ("--max-iterations-then", is_number(asked.max_iterations_then, run.max_iterations_then)),
        ("--priority", is_number(asked.priority, run.priority)),
    ];
    flags.into_iter().filter(|(_, is_dropped)| *is_dropped).map(|(flag, _)| flag).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    /// Flags of a start of which nothing is dropped without a word: the ids of the call and of the run, and those that
    /// have a sentence of their own.
    const OTHERS: [&str; 6] =
        ["--task-thread-id", "--run-id", "--deferred", "--lease-ttl", "--request-id", "--expected-revision"];

    #[test]
    fn every_flag_of_a_start_is_said_where_it_is_dropped() {
        let asked = v1::StartRunRequest {
            route: 1,
            fallback_used: true,
            agent_id: "a".to_owned(),
            tab_group_id: "a".to_owned(),
            audit_session_id: "a".to_owned(),
            workflow_id: "a".to_owned(),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            metadata: Some(runledger_proto::json::structure(
                serde_json::json!({"a": 1}).as_object().expect("it is an object"),
            )),
            input: Some(runledger_proto::Struct::default()),
            start_timeout: Some(runledger_proto::duration(Duration::ZERO)),
            run_timeout: Some(runledger_proto::duration(Duration::ZERO)),
            parent_run_id: "a".to_owned(),
            continues_run_id: "a".to_owned(),
            lifecycle: "a".to_owned(),
            phase: "a".to_owned(),
            max_iterations: 1,
            max_iterations_then: 1,
            priority: 1,
            ..v1::StartRunRequest::default()
        };
        let dropped = of_start(&asked, &v1::Run::default());
        let mut root = Cli::command();
        root.build();
        let start = root.find_subcommand("run").and_then(|run| run.find_subcommand("start")).expect("there is one");
        for flag in start.get_arguments().filter(|flag| flag.get_help_heading() != Some("Connection")) {
            let name = format!("--{}", flag.get_long().unwrap_or_default());
            let is_of_output = ["--output", "--quiet", "--help"].contains(&name.as_str());
            assert!(is_of_output || OTHERS.contains(&&*name) || dropped.contains(&&*name), "{name}");
        }
        assert!(of_start(&v1::StartRunRequest::default(), &v1::Run::default()).is_empty());
        let pinned = v1::StartRunRequest { lifecycle: "a".to_owned(), ..v1::StartRunRequest::default() };
        assert!(of_start(&pinned, &v1::Run { lifecycle: "a@2".to_owned(), ..v1::Run::default() }).is_empty());
    }
}
