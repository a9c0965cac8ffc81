//! Many commands in one call: each is what its own call is.

use std::time::Duration;

use futures_util::future::join_all;
use prost::Message as _;
use runledger_proto::v1::run_command::Command;
use runledger_proto::v1::{
    ClaimRunRequest, CommandResult, CompleteRunRequest, Disposition, ReleaseRunRequest, RequestAbortRequest,
    RunCommand, RunStatus, RunView, StartRunRequest, SuspendRunRequest, UpdateRunRequest,
};
use serde_json::json;
use tonic::{Code, Request};
use tonic_types::pb::ErrorInfo;

use super::caller::{Ask, Caller, complete, deferred, fail, fresh, start, update, update_something};
use super::place::Place;
use super::refused::Refused;
use super::values::structure;

/// The most commands that a list may have.
const MOST: usize = 1_000;

fn command(command: Command) -> RunCommand {
    RunCommand { command: Some(command) }
}

/// The reason for which a command was refused; `OK` of one that was not.
fn reason(result: &CommandResult) -> String {
    let Some(error) = &result.error else { return "OK".to_owned() };
    let info = ErrorInfo::decode(error.details[0].value.as_slice()).unwrap();
    assert_eq!((info.domain.as_str(), result.disposition, result.revision), ("runledger", 0, 0));
    info.reason
}

fn reasons(results: &[CommandResult]) -> Vec<String> {
    results.iter().map(reason).collect()
}

async fn applied(caller: &Caller, commands: Vec<RunCommand>) -> Vec<CommandResult> {
    let count = commands.len();
    let answer = caller.apply_commands(commands, None).await.unwrap();
    assert_eq!((answer.results.len(), answer.runs_left_out), (count, 0));
    assert!(answer.results.iter().all(|result| result.run.is_none()), "nobody asked for the runs");
    answer.results
}

pub(crate) async fn each_command_has_the_answer_of_its_own_call(place: Place) {
    let caller = place.caller().await;
    let [run, pending, held, other] = ["done", "claimed", "held", "none"].map(fresh);
    let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let of = |ask: Ask| RunCommand::from(ask);
    let commands = vec![
        of(start(&run).into()),
        of(update_something(&run).into()),
        of(update_something(&run).into()),
        of(complete(&run).into()),
        of(complete(&run).into()),
        of(fail(&run).into()),
        of(update_something(&run).into()),
        of(update_something(&other).into()),
        of(start("no good").into()),
        RunCommand::default(),
        of(deferred(&pending).into()),
        command(Command::Claim(ClaimRunRequest { run_id: pending.clone(), lease_ttl: ttl, ..Default::default() })),
        command(Command::RequestAbort(RequestAbortRequest { run_id: pending.clone(), ..Default::default() })),
        of(update_something(&pending).into()),
        command(Command::Release(ReleaseRunRequest { run_id: pending.clone(), lease_epoch: 1, ..Default::default() })),
        of(start(&held).into()),
        command(Command::Suspend(SuspendRunRequest {
            run_id: held.clone(),
            kind: "HELP".into(),
            reason: "which account?".into(),
            ..Default::default()
        })),
        of(Ask::from(complete(&held)).expecting(9)),
    ];
    let results = applied(&caller, commands).await;
    assert_eq!(
        reasons(&results),
        [
            "OK",
            "OK",
            "OK",
            "OK",
            "OK",
            "OK",
            "RUN_NOT_RUNNING",
            "RUN_NOT_FOUND",
            "INVALID_FIELD",
            "INVALID_FIELD",
            "OK",
            "OK",
            "OK",
            "LEASE_LOST",
            "OK",
            "OK",
            "OK",
            "REVISION_MISMATCH"
        ]
    );
    let facts = |result: &CommandResult| (result.disposition(), result.revision, result.status(), result.lease_epoch);
    let (applied, unchanged) = (Disposition::Applied, Disposition::Unchanged);
    let ended = RunStatus::Completed;
    assert_eq!(facts(&results[0]), (applied, 1, RunStatus::Running, 0));
    assert_eq!(facts(&results[1]), (applied, 2, RunStatus::Running, 0));
    assert_eq!(facts(&results[2]), (unchanged, 2, RunStatus::Running, 0));
    assert_eq!(facts(&results[3]), (applied, 3, ended, 0));
    assert_eq!(facts(&results[4]), (unchanged, 3, ended, 0));
    assert_eq!(facts(&results[5]), (unchanged, 3, ended, 0));
    assert_eq!(facts(&results[11]), (applied, 2, RunStatus::Running, 1));
    assert!(!results[11].abort_requested && results[12].abort_requested && results[14].abort_requested);
    let named: Vec<&str> = results.iter().map(|result| result.run_id.as_str()).collect();
    assert_eq!((named[0], named[6], named[7], named[8], named[9]), (&*run, &*run, &*other, "", ""));
    assert_eq!(caller.get(&run).await.revision, 3);
    let refused: Refused = super::caller::done(results[7].clone()).unwrap_err().into();
    assert_eq!(refused.code, Code::NotFound, "with all that its own call would tell");
}

pub(crate) async fn commands_on_one_run_are_decided_in_their_order(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("many");
    let step = |revision: u64| {
        let step = UpdateRunRequest { metadata: structure(json!({ "step": revision })), ..update(&run_id) };
        Ask::from(step).expecting(revision).into()
    };
    let commands: Vec<RunCommand> =
        std::iter::once(Ask::from(start(&run_id)).into()).chain((1..MOST as u64).map(step)).collect();
    let results = applied(&caller, commands).await;
    for (revision, result) in (1..).zip(&results) {
        let found = (reason(result), result.disposition(), result.revision);
        assert_eq!(found, ("OK".to_owned(), Disposition::Applied, revision));
    }
    assert_eq!(caller.get(&run_id).await.metadata, structure(json!({ "step": MOST - 1 })));
    assert_eq!(caller.events(&run_id).await.len(), MOST);
}

pub(crate) async fn of_a_thousand_commands_five_hundred_may_be_refused_for_each_reason(place: Place) {
    let (caller, owner) = (place.caller().await, place.caller().await.agent("owner"));
    let (ended, running, taken) = (fresh("ended"), fresh("running"), fresh("taken"));
    caller.apply(start(&ended)).await;
    caller.apply(complete(&ended)).await;
    caller.apply(start(&running)).await;
    owner.apply(start(&taken)).await;
    let first = Ask::from(update_something(&running)).request_id("once");
    caller.apply(first).await;
    let stranger = caller.agent("stranger");
    let other = StartRunRequest { task_thread_id: "another".into(), ..start(&running) };
    let refusals: [(&Caller, &str, Ask); 9] = [
        (&caller, "RUN_NOT_FOUND", complete(&fresh("nobody")).into()),
        (&caller, "RUN_NOT_RUNNING", update_something(&ended).into()),
        (&caller, "INVALID_TRANSITION", start(&ended).into()),
        (&caller, "RUN_ID_CONFLICT", other.into()),
        (&caller, "REVISION_MISMATCH", Ask::from(complete(&running)).expecting(77)),
        (&caller, "REQUEST_ID_REUSED", Ask::from(complete(&running)).request_id("once")),
        (&caller, "LEASE_LOST", CompleteRunRequest { lease_epoch: 5, ..complete(&running) }.into()),
        (&caller, "INVALID_FIELD", start("no good").into()),
        (&stranger, "NOT_OWNER", fail(&taken).into()),
    ];
    for (caller, expected, ask) in refusals {
        let new = |n: usize| if n.is_multiple_of(2) { Ask::from(start(&fresh("beside"))) } else { ask.clone() };
        let results = applied(caller, (0..MOST).map(|n| new(n).into()).collect()).await;
        for (n, result) in results.iter().enumerate() {
            assert_eq!(reason(result), if n % 2 == 0 { "OK" } else { expected }, "command {n}");
        }
        let bytes: usize =
            results.iter().filter_map(|result| result.error.as_ref()).map(prost::Message::encoded_len).sum();
        assert!(bytes < 2 * 1024 * 1024, "{expected}: {bytes} bytes of errors");
    }
    assert_eq!(caller.get(&running).await.revision, 2, "what was refused has changed nothing");
}

pub(crate) async fn of_two_lists_on_the_same_runs_each_command_is_decided_once(place: Place) {
    let callers = [place.caller().await, place.other().await];
    let runs: Vec<String> = (0..100).map(|_| fresh("both")).collect();
    let list = |end: fn(&str) -> Ask| -> Vec<RunCommand> {
        runs.iter().flat_map(|run_id| [start(run_id).into(), end(run_id)]).map(Into::into).collect()
    };
    let lists = [list(|run_id| complete(run_id).into()), list(|run_id| fail(run_id).into())];
    let calls = callers.iter().zip(lists).map(|(caller, list)| caller.apply_commands(list, None));
    let answers: Vec<_> = join_all(calls).await.into_iter().map(|answer| answer.unwrap().results).collect();
    for (n, run_id) in runs.iter().enumerate() {
        let of = |place: usize| answers.iter().map(move |results| &results[2 * n + place]);
        let applied = |place| of(place).filter(|result| result.disposition() == Disposition::Applied).count();
        assert_eq!((applied(0), applied(1)), (1, 1), "{run_id}: {:?}", of(0).chain(of(1)).collect::<Vec<_>>());
        let events = callers[0].events(run_id).await;
        assert_eq!(events.len(), 2, "{run_id}");
    }
}

/// A life of so many runs, each call with an id.
fn lives(runs: usize) -> Vec<RunCommand> {
    let life = |run_id: String| [start(&run_id).into(), update_something(&run_id).into(), complete(&run_id).into()];
    let asks = (0..runs).flat_map(|_| life(fresh("life")));
    asks.zip(0..).map(|(ask, n): (Ask, u32)| ask.request_id(&format!("request-{n}")).into()).collect()
}

pub(crate) async fn a_list_that_is_sent_again_is_replayed_command_by_command(place: Place) {
    let list = lives(30);
    let first = applied(&place.caller().await, list.clone()).await;
    assert!(first.iter().all(|result| result.disposition() == Disposition::Applied));
    let again = applied(&place.other().await, list).await;
    for (first, again) in first.iter().zip(&again) {
        assert_eq!(again.disposition(), Disposition::Replayed);
        assert_eq!((again.revision, again.current_revision, again.status), (first.revision, 3, first.status));
    }
}

pub(crate) async fn what_a_list_whose_caller_is_gone_has_done_is_told_by_the_same_list(place: Place) {
    let caller = place.caller().await;
    for micros in [0, 300, 1_000, 3_000, 10_000, 30_000] {
        let list = lives(60);
        let mut request =
            Request::new(runledger_proto::v1::ApplyCommandsRequest { commands: list.clone(), view: None });
        request.set_timeout(Duration::from_secs(30));
        let mut grpc = caller.grpc.clone();
        let cut = tokio::time::timeout(Duration::from_micros(micros), grpc.apply_commands(request)).await;
        let results = applied(&caller, list).await;
        let dispositions: Vec<_> = results.iter().map(CommandResult::disposition).collect();
        assert!(cut.is_err() || dispositions.iter().all(|it| *it == Disposition::Replayed), "it was answered");
        // What follows what was not done on a run was not done before it either.
        for run in dispositions.chunks(3) {
            let replayed = run.iter().filter(|it| **it == Disposition::Replayed).count();
            assert!(run[..replayed].iter().all(|it| *it == Disposition::Replayed), "{run:?}");
            assert!(run[replayed..].iter().all(|it| *it == Disposition::Applied), "{run:?}");
        }
        assert!(results.chunks(3).all(|run| run[2].status() == RunStatus::Completed));
    }
}

pub(crate) async fn runs_are_shown_as_far_as_an_answer_has_room(place: Place) {
    let caller = place.caller().await;
    let large = structure(json!({ "text": "x".repeat(60_000) }));
    let runs: Vec<String> = (0..70).map(|_| fresh("large")).collect();
    for run_id in &runs {
        caller.apply(StartRunRequest { metadata: large.clone(), ..start(run_id) }).await;
    }
    let asked = || runs.iter().map(|run_id| Ask::from(complete(run_id)));
    let basic = caller.apply_commands(asked(), Some(RunView::Basic)).await.unwrap();
    assert_eq!(basic.runs_left_out, 0);
    assert!(basic.results.iter().all(|result| result.run.as_ref().is_some_and(|run| run.metadata.is_none())));
    let full = caller.apply_commands(asked(), Some(RunView::Full)).await.unwrap();
    let bytes = full.encoded_len();
    assert!(bytes <= 3 * 1024 * 1024 && bytes > 2_800_000, "{bytes}");
    let shown = full.results.iter().take_while(|result| result.run.is_some()).count();
    assert!(full.results[shown..].iter().all(|result| result.run.is_none() && reason(result) == "OK"));
    assert_eq!(full.runs_left_out as usize, runs.len() - shown);
    assert_eq!(full.results[0].run.as_ref(), Some(&caller.get(&runs[0]).await));
}

pub(crate) async fn a_lifecycle_that_is_built_in_is_put_before_the_commands_that_need_it(place: Place) {
    let namespace = fresh("commands");
    let admin = place.channel().await;
    let mut namespaces = runledger_proto::v1::namespace_service_client::NamespaceServiceClient::new(admin);
    let create = runledger_proto::v1::CreateNamespaceRequest { name: namespace.clone(), ..Default::default() };
    namespaces.create_namespace(create).await.unwrap();
    let caller = place.caller().await.header("runledger-namespace", namespace.as_bytes());
    let name = "openchrome.task";
    let life = |run_id: String| {
        let started = StartRunRequest { lifecycle: name.to_owned(), ..start(&run_id) };
        [Ask::from(started), update_something(&run_id).into()]
    };
    let list = (0..50).flat_map(|_| life(fresh("built-in"))).map(Into::into).collect();
    let results = applied(&caller, list).await;
    assert!(results.iter().all(|result| result.disposition() == Disposition::Applied), "{:?}", reasons(&results));
    // One that this release does not enforce is the start's own error.
    let other = StartRunRequest { lifecycle: "browser_control.task".into(), ..start(&fresh("not-yet")) };
    let list = [Ask::from(other), start(&fresh("beside")).into()].map(Into::into).to_vec();
    assert_eq!(reasons(&applied(&caller, list).await), ["LIFECYCLE_UNSUPPORTED", "OK"]);
}

pub(crate) async fn a_list_of_commands_is_validated_whole(place: Place) {
    let caller = place.caller().await;
    let list = |count: usize| vec![RunCommand::from(Ask::from(start(&fresh("list")))); count];
    for (commands, view, fields) in [
        (list(0), None, vec!["commands"]),
        (list(MOST + 1), None, vec!["commands"]),
        (list(1), Some(RunView::Whole), vec!["view"]),
        (list(0), Some(RunView::Whole), vec!["commands", "view"]),
    ] {
        let refused: Refused = caller.apply_commands(commands, view).await.unwrap_err().into();
        assert_eq!(refused.fields(), fields);
    }
    // Each command may be large, and all of them together no more than a request may be.
    let heavy = |n| UpdateRunRequest {
        run_id: format!("heavy-{n}"),
        remove_labels: vec!["k".into(); 40],
        ..Default::default()
    };
    let many: Vec<_> = (0..MOST).map(|n| RunCommand::from(Ask::from(heavy(n)))).collect();
    let refused: Refused = caller.apply_commands(many, None).await.unwrap_err().into();
    assert_eq!(refused.fields(), ["request"]);
}
