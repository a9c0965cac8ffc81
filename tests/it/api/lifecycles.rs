//! Lifecycles in the users' own words, as callers see them.

use futures_util::future::{join, join_all};
use prost_types::Struct;
use prost_types::value::Kind as Value;
use runledger_proto::v1::lifecycle_service_client::LifecycleServiceClient;
use runledger_proto::v1::{
    self, CheckTransitionRequest, CompletionIncompleteError, CountRunsRequest, Disposition, GetLifecycleRequest,
    IterationLimitError, LimitThen, Link, ListLifecyclesRequest, ListRunsRequest, PhaseError, PutLifecycleRequest,
    PutLifecycleResponse, RunFilter, RunStatus, StartRunRequest, UpdateRunRequest,
};
use serde_json::json;
use tonic::{Code, Status};

use super::caller::{Ask, abort, complete, deferred, fail, fresh, start, update};
use super::place::{Kind, Own, Place};
use super::refused::Refused;
use super::values::{nested, one, structure};
use super::watching::Watch;
use crate::support::patient::Patient;

type Lifecycles = LifecycleServiceClient<Patient>;

async fn clients(place: &Place) -> (Lifecycles, Lifecycles) {
    let [one, other] = place.channels().await;
    (LifecycleServiceClient::new(one), LifecycleServiceClient::new(other))
}

/// A lifecycle of a name of its own.
fn review(name: &str) -> String {
    format!(
        "name: {name}
phases:
  drafting:  {{initial: true, next: [reviewing]}}
  reviewing: {{next: [drafting, approved]}}
  approved:  {{may_complete: true}}
iterates: {{from: reviewing, to: drafting}}
max_iterations: 1
completion_requires: [\"LINK:evidence\"]
redact_keys: [\"*password*\"]
words:
  - {{status: FAILED, reason_code: BLOCKED, word: blocked}}
  - {{status: RUNNING, word_from: phase}}
"
    )
}

async fn put(client: &mut Lifecycles, declaration: &str) -> Result<PutLifecycleResponse, Status> {
    let request = PutLifecycleRequest { declaration: declaration.to_owned() };
    Ok(client.put_lifecycle(request).await?.into_inner())
}

/// The version that a put made, or met.
async fn version(client: &mut Lifecycles, declaration: &str) -> (u32, Disposition) {
    let answer = put(client, declaration).await.unwrap();
    (answer.lifecycle.as_ref().unwrap().version, answer.disposition())
}

async fn get(client: &mut Lifecycles, lifecycle: &str) -> Result<v1::Lifecycle, Status> {
    let request = GetLifecycleRequest { lifecycle: lifecycle.to_owned() };
    Ok(client.get_lifecycle(request).await?.into_inner().lifecycle.unwrap())
}

async fn list(client: &mut Lifecycles, name: &str, page_size: i32, page_token: &str) -> v1::ListLifecyclesResponse {
    let (name, page_token) = (name.to_owned(), page_token.to_owned());
    client.list_lifecycles(ListLifecyclesRequest { name, page_size, page_token }).await.unwrap().into_inner()
}

fn with(run_id: &str, lifecycle: &str) -> StartRunRequest {
    StartRunRequest { lifecycle: lifecycle.to_owned(), ..start(run_id) }
}

fn to(run_id: &str, phase: &str) -> UpdateRunRequest {
    UpdateRunRequest { phase: phase.to_owned(), ..update(run_id) }
}

pub(crate) async fn a_lifecycle_is_put_read_and_listed_and_the_newest_is_pinned(place: Place) {
    let (mut one, mut other) = clients(&place).await;
    let (caller, name) = (place.other().await, fresh("put"));
    let first = review(&name);
    let second = first.replace("max_iterations: 1", "max_iterations: 2");
    assert_eq!(version(&mut one, &first).await, (1, Disposition::Applied));
    assert_eq!(version(&mut other, &format!("# the same\n{first}")).await, (1, Disposition::Unchanged));
    assert_eq!(version(&mut other, &second).await, (2, Disposition::Applied));
    assert_eq!(version(&mut one, &first).await, (3, Disposition::Applied), "what it said before is new again");
    let run = caller.apply(with(&fresh("run"), &name)).await;
    assert_eq!((run.lifecycle, run.max_iterations), (format!("{name}@3"), 1));
    let run = caller.apply(with(&fresh("run"), &format!("{name}@2"))).await;
    assert_eq!((run.lifecycle, run.max_iterations), (format!("{name}@2"), 2));
    for n in 4..9 {
        let next = first.replace("max_iterations: 1", &format!("max_iterations: {n}"));
        assert_eq!(version(&mut one, &next).await, (n, Disposition::Applied));
        // Whoever starts after the answer gets it, whatever the other server remembers.
        assert_eq!(caller.apply(with(&fresh("run"), &name)).await.max_iterations, n);
    }

    let read = get(&mut other, &name).await.unwrap();
    assert_eq!((read.name.as_str(), read.version), (name.as_str(), 8));
    assert!(read.created_at.is_some() && read.created_by.is_some() && read.declaration.contains("max_iterations: 8"));
    assert_eq!(get(&mut one, &format!("{name}@1")).await.unwrap().declaration, first);
    for missing in [format!("{name}@9"), fresh("never-put")] {
        Refused::from(get(&mut one, &missing).await.unwrap_err()).is(Code::NotFound, "LIFECYCLE_NOT_FOUND");
        caller.refused(with(&fresh("run"), &missing)).await.is(Code::NotFound, "LIFECYCLE_NOT_FOUND");
    }
    let (mut versions, mut token) = (Vec::new(), String::new());
    loop {
        let page = list(&mut one, &name, 3, &token).await;
        versions.extend(page.lifecycles.iter().map(|lifecycle| lifecycle.version));
        assert!(page.lifecycles.iter().all(|lifecycle| lifecycle.declaration.is_empty()));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert!(versions.into_iter().eq((1..9).rev()));
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let page = list(&mut other, "", 2, &token).await;
        names.extend(page.lifecycles.into_iter().map(|lifecycle| (lifecycle.name, lifecycle.version)));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert!(names.contains(&(name, 8)) && names.is_sorted_by(|one, other| one.0 < other.0), "{names:?}");
}

pub(crate) async fn of_puts_at_once_each_is_a_version_or_unchanged(place: Place) {
    let (mut one, mut other) = clients(&place).await;
    let name = fresh("race");
    let (first, second) = (review(&name), review(&name).replace("max_iterations: 1", "max_iterations: 2"));
    let (a, b) = join(version(&mut one, &first), version(&mut other, &second)).await;
    let mut versions = [a.0, b.0];
    versions.sort_unstable();
    assert_eq!(versions, [1, 2]);
    let name = fresh("race");
    let same = review(&name);
    let puts = (0..6).map(|n| {
        let (mut client, same) = (if n % 2 == 0 { one.clone() } else { other.clone() }, same.clone());
        async move { version(&mut client, &same).await }
    });
    let answers = join_all(puts).await;
    assert!(answers.iter().all(|(version, _)| *version == 1), "{answers:?}");
    let applied = answers.iter().filter(|(_, disposition)| *disposition == Disposition::Applied).count();
    assert_eq!(applied, 1, "{answers:?}");
}

pub(crate) async fn a_run_is_walked_to_its_end_and_refused_on_the_way(place: Place) {
    let (mut client, _) = clients(&place).await;
    let (caller, other, name) = (place.caller().await, place.other().await, fresh("walk"));
    put(&mut client, &review(&name)).await.unwrap();
    let lifecycle = format!("{name}@1");
    let metadata = structure(json!({"userPassword": "hunter2", "page": 1}));
    let run = caller.apply(StartRunRequest { metadata, ..with(&fresh("run"), &name) }).await;
    let id = run.run_id.clone();
    assert_eq!((run.phase.as_str(), run.word.as_str(), &run.lifecycle), ("drafting", "drafting", &lifecycle));
    assert_eq!((run.phase_started_at, run.iteration, run.max_iterations), (run.started_at, 0, 1));
    assert_eq!(run.metadata, structure(json!({"userPassword": "[redacted]", "page": 1})));
    let mut watch: Watch = other.watch(&id, None).await;

    for asked in [
        Ask::from(to(&id, "approved")),
        v1::CompleteRunRequest { phase: "approved".into(), ..complete(&id) }.into(),
        v1::AbortRunRequest { phase: "approved".into(), ..abort(&id) }.into(),
        v1::FailRunRequest { phase: "approved".into(), ..fail(&id) }.into(),
    ] {
        let refused = other.refused(asked).await.is(Code::FailedPrecondition, "INVALID_PHASE");
        let error = refused.detail::<PhaseError>("runledger.v1.PhaseError");
        assert_eq!((error.from.as_str(), error.to.as_str()), ("drafting", "approved"));
        assert_eq!((error.allowed, error.more, error.completes), (vec!["reviewing".to_owned()], 0, false));
        assert_eq!((error.lifecycle, error.run.unwrap().run_id), (lifecycle.clone(), id.clone()));
    }
    let refused = caller.refused(complete(&id)).await.is(Code::FailedPrecondition, "INVALID_PHASE");
    let error = refused.detail::<PhaseError>("runledger.v1.PhaseError");
    assert_eq!((error.to.as_str(), error.allowed, error.completes), ("drafting", vec!["approved".to_owned()], true));

    let check = |to: RunStatus, phase: &str| {
        let asked = CheckTransitionRequest {
            run_id: id.clone(),
            to: to.into(),
            to_phase: phase.to_owned(),
            ..CheckTransitionRequest::default()
        };
        caller.check(asked)
    };
    let answer = check(RunStatus::Unspecified, "reviewing").await.unwrap();
    assert_eq!((answer.allowed, answer.disposition(), answer.reason.as_str()), (true, Disposition::Applied, ""));
    assert_eq!(answer.allowed_phases, ["reviewing"]);
    let answer = check(RunStatus::Unspecified, "approved").await.unwrap();
    assert_eq!((answer.allowed, answer.reason.as_str()), (false, "INVALID_PHASE"));
    let answer = check(RunStatus::Completed, "reviewing").await.unwrap();
    assert_eq!((answer.allowed, answer.reason.as_str()), (false, "INVALID_PHASE"), "the matrix alone does");
    assert_eq!(check(RunStatus::Failed, "").await.unwrap().disposition(), Disposition::Applied);

    let reviewing = other.apply(to(&id, "reviewing")).await;
    assert!(
        reviewing.phase_started_at.map(|at| (at.seconds, at.nanos))
            > run.phase_started_at.map(|at| (at.seconds, at.nanos))
    );
    other.unchanged(to(&id, "reviewing")).await;
    assert_eq!(other.apply(to(&id, "drafting")).await.iteration, 1);
    other.apply(to(&id, "reviewing")).await;
    let refused = other.refused(to(&id, "drafting")).await.is(Code::FailedPrecondition, "ITERATION_LIMIT");
    let error = refused.detail::<IterationLimitError>("runledger.v1.IterationLimitError");
    assert_eq!((error.iteration, error.max_iterations), (2, 1));
    let named = other.refused(UpdateRunRequest { iteration: Some(2), ..update(&id) }).await;
    assert_eq!(named.fields(), ["iteration"]);
    other.apply(to(&id, "approved")).await;
    let refused = other.refused(complete(&id)).await.is(Code::FailedPrecondition, "COMPLETION_INCOMPLETE");
    let error = refused.detail::<CompletionIncompleteError>("runledger.v1.CompletionIncompleteError");
    assert_eq!(error.missing, ["LINK:evidence"]);
    let link = Link { rel: "evidence".into(), target: "s3://e".into(), ..Link::default() };
    let ended = other.apply(v1::CompleteRunRequest { links: vec![link], ..complete(&id) }).await;
    assert_eq!(
        (ended.word.as_str(), ended.phase.as_str(), ended.status()),
        ("completed", "approved", RunStatus::Completed)
    );

    let events = caller.events(&id).await;
    let said: Vec<(String, Option<String>)> = events
        .iter()
        .map(|event| event.changes.clone().unwrap())
        .map(|changes| (changes.phase, changes.word))
        .collect();
    let same = |phase: &str| (phase.to_owned(), Some(phase.to_owned()));
    let walked = ["drafting", "reviewing", "drafting", "reviewing", "approved"].map(same);
    assert_eq!(said[..5], walked);
    assert_eq!(said[5], (String::new(), Some(String::new())));
    assert_eq!(events[5].changes.as_ref().unwrap().requirements_met, ["LINK:evidence"]);
    assert_eq!(events[0].changes.as_ref().unwrap().lifecycle, lifecycle);
    let (snapshot, changes) = watch.until_the_end().await;
    assert_eq!(snapshot.word, "drafting");
    let words: Vec<String> = changes.into_iter().map(|run| run.word).collect();
    assert_eq!(words, ["reviewing", "drafting", "reviewing", "approved", "completed"]);
}

/// Nothing looks at a value that is masked, and no refusal names what is in it.
pub(crate) async fn a_masked_value_may_be_none_that_json_has(place: Place) {
    let (mut client, _) = clients(&place).await;
    let (caller, name) = (place.caller().await, fresh("masks"));
    put(&mut client, &review(&name)).await.unwrap();
    let under = |key: &str, inner: Option<Struct>| one(key, Value::StructValue(inner.unwrap()));
    for inner in [
        one("n", Value::NumberValue(f64::NAN)),
        one("t", Value::StringValue("\0".to_owned())),
        one("\0", Value::BoolValue(true)),
        nested(32),
    ] {
        let metadata = under("password", inner.clone());
        let run = caller.apply(StartRunRequest { metadata, ..with(&fresh("run"), &name) }).await;
        assert_eq!(run.metadata, structure(json!({"password": "[redacted]"})));
        let patch = UpdateRunRequest { metadata: under("my_password", inner.clone()), ..update(&run.run_id) };
        let run = caller.apply(patch).await;
        assert_eq!(run.metadata, structure(json!({"password": "[redacted]", "my_password": "[redacted]"})));
        let kept = UpdateRunRequest { metadata: under("kept", inner.clone()), ..update(&run.run_id) };
        let fields = caller.refused(kept).await.fields();
        assert!(fields.len() == 1 && fields[0].starts_with("metadata.kept"), "{fields:?}");
        // Whoever cannot know what is masked names nothing that may be in it.
        let both = UpdateRunRequest { metadata: under("password", inner), ..update("a b") };
        assert_eq!(caller.refused(both).await.fields(), ["metadata.password", "run_id"]);
    }
}

pub(crate) async fn runs_are_listed_and_counted_by_phase(place: Place) {
    let (mut client, _) = clients(&place).await;
    let (caller, name, thread) = (place.caller().await, fresh("count"), fresh("thread"));
    put(&mut client, &review(&name)).await.unwrap();
    for (n, phase) in ["", "reviewing", "reviewing"].into_iter().enumerate() {
        let asked = StartRunRequest { task_thread_id: thread.clone(), ..with(&format!("{name}-{n}"), &name) };
        let run = caller.apply(asked).await;
        if !phase.is_empty() {
            caller.apply(to(&run.run_id, phase)).await;
        }
    }
    let plain = StartRunRequest { task_thread_id: thread.clone(), ..start(&format!("{name}-plain")) };
    caller.apply(StartRunRequest { phase: "own".into(), ..plain.clone() }).await;
    caller.apply(StartRunRequest { run_id: format!("{name}-none"), ..plain }).await;
    let filter = |phase: &str, lifecycle: &str| RunFilter {
        task_thread_id: thread.clone(),
        phase: phase.to_owned(),
        lifecycle: lifecycle.to_owned(),
        ..RunFilter::default()
    };
    for (phase, lifecycle, wanted) in [
        ("", "", 5),
        ("reviewing", "", 2),
        ("own", "", 1),
        ("", &name, 3),
        ("drafting", &name, 1),
        ("own", &name, 0),
        ("", "other", 0),
    ] {
        let asked = ListRunsRequest { filter: Some(filter(phase, lifecycle)), ..ListRunsRequest::default() };
        let listed = caller.grpc.clone().list_runs(caller.request(asked)).await.unwrap().into_inner().runs;
        assert_eq!(listed.len(), wanted, "{phase} {lifecycle}");
        let asked = CountRunsRequest { filter: Some(filter(phase, lifecycle)), by_phase: false, by_suspension: false };
        let counted = caller.grpc.clone().count_runs(caller.request(asked)).await.unwrap().into_inner();
        assert_eq!(counted.counts.iter().map(|count| count.count).sum::<u64>(), wanted as u64);
        assert!(counted.phases.is_empty());
    }
    let statuses = vec![RunStatus::Running.into()];
    for filter in [filter("", ""), RunFilter { statuses, ..filter("", "") }] {
        let asked = CountRunsRequest { filter: Some(filter), by_phase: true, by_suspension: false };
        let counted = caller.grpc.clone().count_runs(caller.request(asked)).await.unwrap().into_inner();
        let phases: Vec<(&str, u64)> = counted.phases.iter().map(|it| (it.phase.as_str(), it.count)).collect();
        assert_eq!(phases, [("", 1), ("drafting", 1), ("own", 1), ("reviewing", 2)]);
        assert_eq!(counted.other_phases, 0);
        assert_eq!(counted.counts.iter().find(|it| it.status() == RunStatus::Running).unwrap().count, 5);
    }
}

pub(crate) async fn what_is_wrong_with_a_declaration_is_named_with_its_place(place: Place) {
    let (mut client, _) = clients(&place).await;
    let yaml = "name: Wrong\nphases:\n  a: {initial: true, next: [nowhere]}\nwords: 7\n";
    let json = "{\n  \"name\": \"Wrong\",\n  \"phases\": {\"a\": {\"initial\": true, \"next\": [\"nowhere\"]}},\n  \"words\": 7}";
    for (text, places) in [
        (yaml, ["line 1, column 7", "line 3, column 29", "line 4, column 8"]),
        (json, ["line 2, column 11", "line 3, column 46", "line 4, column 12"]),
    ] {
        let refused = Refused::from(put(&mut client, text).await.unwrap_err());
        assert_eq!(refused.fields(), ["declaration.name", "declaration.phases.a.next[0]", "declaration.words"]);
        let listed = refused.detail::<tonic_types::pb::BadRequest>("google.rpc.BadRequest").field_violations;
        for (violation, place) in listed.iter().zip(places) {
            assert!(violation.description.starts_with(place), "{violation:?} is not at {place}");
        }
    }
    for (declaration, field) in
        [("", "declaration"), ("a: [", "declaration"), (&"x".repeat(16_385), "declaration"), ("a\0", "declaration")]
    {
        assert_eq!(Refused::from(put(&mut client, declaration).await.unwrap_err()).fields()[0], field);
    }
    for wrong in ["", "A", "a@0", "a@x", &"a".repeat(65)] {
        assert_eq!(Refused::from(get(&mut client, wrong).await.unwrap_err()).fields(), ["lifecycle"]);
    }
    let asked = ListLifecyclesRequest { name: "É".into(), page_size: -1, page_token: String::new() };
    let refused = Refused::from(client.list_lifecycles(asked).await.unwrap_err());
    assert_eq!(refused.fields(), ["name", "page_size"]);
    for (name, page_token) in [("", "É"), ("a", "x"), ("", "a"), ("a", "2")] {
        let (name, page_token) = (name.to_owned(), page_token.to_owned());
        let asked = ListLifecyclesRequest { name, page_size: 0, page_token };
        let refused = Refused::from(client.list_lifecycles(asked).await.unwrap_err());
        refused.is(Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    }
    let caller = place.caller().await;
    let wrong =
        StartRunRequest { lifecycle: "a@".into(), phase: "P".into(), max_iterations_then: 9, ..start(&fresh("wrong")) };
    assert_eq!(caller.refused(wrong).await.fields(), ["lifecycle", "phase", "max_iterations_then"]);
    let wrong = CheckTransitionRequest { to_phase: "p".into(), ..CheckTransitionRequest::default() };
    assert_eq!(Refused::from(caller.check(wrong).await.unwrap_err()).fields(), ["to_phase", "from", "run_id"]);
}

pub(crate) async fn a_lifecycle_that_is_built_in_is_put_by_the_first_start(place: Place) {
    let kind = if place.kind == Kind::Sqlite { Kind::Sqlite } else { Kind::Replicas };
    let own = Own::start(kind).await;
    let (caller, other) = (own.caller().await, own.other().await);
    let mut client =
        LifecycleServiceClient::new(Patient::new(crate::support::server::channel(own.servers[0].address()).await));
    let before = get(&mut client, "openchrome.task").await.unwrap();
    assert_eq!((before.version, before.created_at), (0, None));
    assert!(list(&mut client, "", 0, "").await.lifecycles.is_empty());
    let starts = (0..6).map(|n| {
        let (caller, id) = (if n % 2 == 0 { &caller } else { &other }, format!("first-{n}"));
        async move { caller.apply(StartRunRequest { deferred: true, ..with(&id, "openchrome.task") }).await }
    });
    for run in join_all(starts).await {
        assert_eq!(
            (run.lifecycle.as_str(), run.word.as_str(), run.phase.as_str()),
            ("openchrome.task@1", "PENDING", "work")
        );
    }
    let after = get(&mut client, "openchrome.task").await.unwrap();
    assert_eq!((after.version, &after.declaration), (1, &before.declaration));
    assert_eq!(after.created_by.unwrap().kind(), v1::PrincipalKind::Authority);
    // One that has another version already is left as it is.
    put(&mut client, "name: comet.browser_run\nphases: {mine: {initial: true}}").await.unwrap();
    assert_eq!(caller.apply(with("mine", "comet.browser_run")).await.phase, "mine");
    caller.refused(with("second", "browser_control.task@2")).await.is(Code::NotFound, "LIFECYCLE_NOT_FOUND");
    let refused = caller.refused(with("later", "openviber.task")).await;
    let refused = refused.is(Code::FailedPrecondition, "LIFECYCLE_UNSUPPORTED");
    assert!(refused.message.contains("report_every") && refused.info["fields"].contains("budgets"), "{refused:?}");
}

pub(crate) async fn a_lifecycle_belongs_to_its_namespace(place: Place) {
    let (mut client, _) = clients(&place).await;
    let name = fresh("walled");
    put(&mut client, &review(&name)).await.unwrap();
    let team = fresh("team");
    let mut namespaces = v1::namespace_service_client::NamespaceServiceClient::new(place.channel().await);
    namespaces
        .create_namespace(v1::CreateNamespaceRequest { name: team.clone(), ..v1::CreateNamespaceRequest::default() })
        .await
        .unwrap();
    let within = |message| {
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("runledger-namespace", team.parse().unwrap());
        request
    };
    let asked = within(GetLifecycleRequest { lifecycle: name.clone() });
    Refused::from(client.get_lifecycle(asked).await.unwrap_err()).is(Code::NotFound, "LIFECYCLE_NOT_FOUND");
    let inside = place.caller().await.header("runledger-namespace", team.as_bytes());
    inside.refused(with(&fresh("run"), &name)).await.is(Code::NotFound, "LIFECYCLE_NOT_FOUND");
    let mut own = tonic::Request::new(PutLifecycleRequest { declaration: review(&name) });
    own.metadata_mut().insert("runledger-namespace", team.parse().unwrap());
    let answer = client.put_lifecycle(own).await.unwrap().into_inner();
    assert_eq!(answer.lifecycle.unwrap().version, 1);
    assert_eq!(inside.apply(with(&fresh("run"), &name)).await.lifecycle, format!("{name}@1"));
}

pub(crate) async fn words_and_rules_outlive_a_crash_of_every_server(place: Place) {
    let kind = if place.kind == Kind::Sqlite { Kind::Sqlite } else { Kind::Replicas };
    let mut own = Own::start(kind).await;
    let mut client =
        LifecycleServiceClient::new(Patient::new(crate::support::server::channel(own.servers[0].address()).await));
    put(&mut client, &review("review")).await.unwrap();
    let caller = own.caller().await;
    let begun = Ask::from(with("run", "review")).request_id("r-1");
    caller.apply(begun.clone()).await;
    caller.apply(to("run", "reviewing")).await;
    put(&mut client, &review("review").replace("max_iterations: 1", "max_iterations: 9")).await.unwrap();
    own.crash_and_restart().await;
    for caller in [own.caller().await, own.other().await] {
        let again = caller.must(begun.clone()).await;
        assert_eq!((again.disposition, again.run.word.as_str()), (Disposition::Replayed, "drafting"));
        let mut watch = caller.watch("run", Some(0)).await;
        assert_eq!(watch.words(2).await, ["drafting", "reviewing"], "no lifecycle is remembered, and none is needed");
    }
    let other = own.other().await;
    other.apply(to("run", "drafting")).await;
    other.apply(to("run", "reviewing")).await;
    other.refused(to("run", "drafting")).await.is(Code::FailedPrecondition, "ITERATION_LIMIT");
    let ended = other.apply(v1::FailRunRequest { reason_code: "BLOCKED".into(), ..fail("run") }).await;
    assert_eq!((ended.word.as_str(), ended.phase.as_str()), ("blocked", "reviewing"));
}

pub(crate) async fn a_limit_that_aborts_keeps_what_the_call_said(place: Place) {
    let caller = place.caller().await;
    let begin = StartRunRequest {
        max_iterations: 3,
        max_iterations_then: LimitThen::Abort.into(),
        phase: "one".into(),
        ..start(&fresh("limit"))
    };
    let run = caller.apply(begin).await;
    assert_eq!((run.word.as_str(), run.lifecycle.as_str()), ("", ""), "without a lifecycle, there is no word");
    let id = run.run_id;
    let iterate = |iteration| UpdateRunRequest { iteration: Some(iteration), ..to(&id, "two") };
    assert_eq!(caller.apply(iterate(3)).await.iteration, 3);
    assert_eq!(caller.refused(iterate(2)).await.fields(), ["iteration"]);
    let last = UpdateRunRequest { metadata: structure(json!({"last": 1})), phase: "three".into(), ..iterate(4) };
    let ended = caller.apply(last).await;
    assert_eq!((ended.status(), ended.reason_code.as_str()), (RunStatus::Aborted, "ITERATION_LIMIT"));
    assert_eq!((ended.phase.as_str(), ended.iteration, ended.presumed), ("two", 3, false));
    assert_eq!(ended.metadata, structure(json!({"last": 1})));
    caller.refused(iterate(5)).await.is(Code::FailedPrecondition, "RUN_NOT_RUNNING");
    let pending = caller.apply(StartRunRequest { max_iterations: 1, ..deferred(&fresh("limit")) }).await;
    let other = StartRunRequest { max_iterations: 2, ..start(&pending.run_id) };
    caller.refused(other).await.is(Code::AlreadyExists, "RUN_ID_CONFLICT");
}
