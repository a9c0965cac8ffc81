//! Namespaces: how they are made, and the wall: a run elsewhere does not exist.

use runledger_proto::v1::namespace_service_client::NamespaceServiceClient;
use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::{
    CheckTransitionRequest, ClaimNextRunRequest, ClaimRunRequest, CountRunsRequest, CreateNamespaceRequest,
    DeleteNamespaceRequest, Disposition, GetNamespaceRequest, GetRunRequest, HeartbeatRunRequest,
    ListNamespacesRequest, ListRunEventsRequest, ListRunsRequest, MaxRunning, Namespace, NamespaceQuotas,
    QuotaExceededError, ReleaseRunRequest, RequestAbortRequest, RevisionMismatchError, RunFilter, RunStatus,
    StartRunRequest, UpdateNamespaceRequest, WaitRunRequest, WatchRunRequest, WatchRunsRequest,
};
use tonic::{Code, Status};

use super::caller::{Ask, Caller, complete, deferred, fresh, start};
use super::place::Place;
use super::refused::Refused;
use super::watch_runs::Watch;
use crate::support::patient::Patient;

async fn admin(place: &Place) -> NamespaceServiceClient<Patient> {
    NamespaceServiceClient::new(place.channel().await)
}

/// A caller in a namespace of its own.
async fn made(place: &Place, name: &str, max_active_runs: u64) -> (String, Caller) {
    let name = fresh(name);
    let quotas = Some(NamespaceQuotas { max_active_runs, ..NamespaceQuotas::default() });
    let asked = CreateNamespaceRequest { name: name.clone(), quotas, ..CreateNamespaceRequest::default() };
    let answer = admin(place).await.create_namespace(asked).await.unwrap().into_inner();
    assert_eq!(answer.disposition(), Disposition::Applied);
    (name.clone(), place.caller().await.header("runledger-namespace", name.as_bytes()))
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> Refused {
    answer.unwrap_err().into()
}

pub(crate) async fn a_namespace_is_made_read_changed_and_deleted(place: Place) {
    let mut admin = admin(&place).await;
    let name = fresh("team");
    let get = GetNamespaceRequest { name: name.clone() };
    refused(admin.get_namespace(get.clone()).await).is(Code::NotFound, "NAMESPACE_NOT_FOUND");
    let create = CreateNamespaceRequest { name: name.clone(), description: "a team's".into(), ..Default::default() };
    let answer = admin.create_namespace(create.clone()).await.unwrap().into_inner();
    let namespace = answer.namespace.unwrap();
    assert_eq!((namespace.name.as_str(), namespace.revision), (name.as_str(), 1));
    assert_eq!((namespace.description.as_str(), namespace.quotas), ("a team's", Some(NamespaceQuotas::default())));
    assert!(namespace.created_at.is_some() && namespace.created_at == namespace.updated_at);
    let again = admin.create_namespace(create.clone()).await.unwrap().into_inner();
    assert_eq!((again.disposition(), again.namespace.as_ref()), (Disposition::Unchanged, Some(&namespace)));
    let other = CreateNamespaceRequest { description: "another".into(), ..create };
    refused(admin.create_namespace(other).await).is(Code::AlreadyExists, "NAMESPACE_EXISTS");

    let quotas = NamespaceQuotas { max_active_runs: 2, max_stored_bytes: 1 << 40 };
    let update = UpdateNamespaceRequest {
        name: name.clone(),
        max_active_runs: Some(2),
        max_stored_bytes: Some(1 << 40),
        ..Default::default()
    };
    let answer = admin.update_namespace(update.clone()).await.unwrap().into_inner();
    let updated = answer.namespace.unwrap();
    assert_eq!((updated.revision, updated.quotas), (2, Some(quotas)));
    assert_eq!(updated.description, "a team's");
    let stale = UpdateNamespaceRequest { expected_revision: Some(1), ..update };
    let mismatch = refused(admin.update_namespace(stale).await).is(Code::Aborted, "REVISION_MISMATCH");
    let detail: RevisionMismatchError = mismatch.detail("runledger.v1.RevisionMismatchError");
    assert_eq!((detail.expected_revision, detail.actual_revision, detail.run), (1, 2, None));
    assert_eq!(admin.get_namespace(get.clone()).await.unwrap().into_inner().namespace, Some(updated));

    admin.delete_namespace(DeleteNamespaceRequest { name: name.clone(), ..Default::default() }).await.unwrap();
    refused(admin.get_namespace(get).await).is(Code::NotFound, "NAMESPACE_NOT_FOUND");
    let elsewhere = place.other().await.header("runledger-namespace", name.as_bytes());
    elsewhere.refused(start("run")).await.is(Code::NotFound, "NAMESPACE_NOT_FOUND");
}

pub(crate) async fn namespaces_are_listed_by_name_in_pages(place: Place) {
    let mut names: Vec<String> = vec!["default".into()];
    for _ in 0..3 {
        names.push(made(&place, "listed", 0).await.0);
    }
    let mut admin = admin(&place).await;
    let mut listed: Vec<Namespace> = Vec::new();
    let mut asked = ListNamespacesRequest { page_size: 2, page_token: String::new() };
    loop {
        let page = admin.list_namespaces(asked.clone()).await.unwrap().into_inner();
        assert!(page.namespaces.len() <= 2);
        listed.extend(page.namespaces);
        asked.page_token = page.next_page_token;
        assert!(names.iter().all(|name| !asked.page_token.contains(name.as_str())), "it shows no name");
        if asked.page_token.is_empty() {
            break;
        }
    }
    let listed: Vec<String> = listed.into_iter().map(|namespace| namespace.name).collect();
    assert!(listed.is_sorted() && names.iter().all(|name| listed.contains(name)), "{listed:?}");
    for noise in ["Not a name", "default"] {
        asked.page_token = noise.into();
        refused(admin.list_namespaces(asked.clone()).await).is(Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    }
}

pub(crate) async fn what_is_wrong_with_a_namespace_is_named(place: Place) {
    let mut admin = admin(&place).await;
    for name in ["", "Team", "-a", "a-", "a_b", "a.b", &"a".repeat(64)] {
        let asked = CreateNamespaceRequest { name: name.into(), ..Default::default() };
        assert_eq!(refused(admin.create_namespace(asked).await).fields(), ["name"], "{name}");
    }
    let quotas = Some(NamespaceQuotas { max_active_runs: 100_001, max_stored_bytes: (1 << 50) + 1 });
    let asked =
        CreateNamespaceRequest { name: fresh("n"), description: "x".repeat(1025), quotas, ..Default::default() };
    let fields = refused(admin.create_namespace(asked).await).fields();
    assert_eq!(fields, ["description", "quotas.max_active_runs", "quotas.max_stored_bytes"]);
    let default = || "default".to_owned();
    let asked = UpdateNamespaceRequest { name: default(), max_active_runs: Some(1), ..Default::default() };
    assert_eq!(refused(admin.update_namespace(asked).await).fields(), ["max_active_runs"]);
    let asked = DeleteNamespaceRequest { name: default(), ..Default::default() };
    assert_eq!(refused(admin.delete_namespace(asked).await).fields(), ["name"]);
    let asked = UpdateNamespaceRequest { name: fresh("nobody"), ..Default::default() };
    refused(admin.update_namespace(asked).await).is(Code::NotFound, "NAMESPACE_NOT_FOUND");
}

/// Every call about one run.
async fn about(caller: &Caller, run_id: &str) -> Vec<(&'static str, Result<(), Status>)> {
    let id = || run_id.to_owned();
    let mut grpc = caller.grpc.clone();
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    macro_rules! call {
        ($rpc:ident, $message:expr) => {
            (stringify!($rpc), grpc.$rpc(caller.request($message)).await.map(drop))
        };
    }
    let mut said = vec![
        call!(get_run, GetRunRequest { run_id: id(), queue_label: Some("queue".into()), ..Default::default() }),
        call!(list_run_events, ListRunEventsRequest { run_id: id(), ..Default::default() }),
        call!(watch_run, WatchRunRequest { run_id: id(), ..Default::default() }),
        call!(watch_run, WatchRunRequest { run_id: id(), after_revision: Some(1), ledger_epoch: None }),
        call!(wait_run, WaitRunRequest { run_id: id(), timeout: seconds(0), until: 0 }),
        call!(heartbeat_run, HeartbeatRunRequest { run_id: id(), lease_epoch: 1, progress: None }),
        call!(claim_run, ClaimRunRequest { run_id: id(), lease_ttl: seconds(5), ..Default::default() }),
        call!(release_run, ReleaseRunRequest { run_id: id(), lease_epoch: 1, ..Default::default() }),
        call!(request_abort, RequestAbortRequest { run_id: id(), ..Default::default() }),
        call!(
            claim_run,
            ClaimRunRequest { run_id: id(), lease_ttl: seconds(5), request_id: "claim".into(), ..Default::default() }
        ),
    ];
    for to in [RunStatus::Completed, RunStatus::Running] {
        let asked = CheckTransitionRequest { run_id: id(), to: to.into(), from: None, to_phase: String::new() };
        said.push(call!(check_transition, asked));
    }
    let [_, _, asks @ ..] = Ask::each(run_id);
    for (name, ask) in ["update_run", "complete_run", "abort_run", "fail_run"].into_iter().zip(asks) {
        said.push((name, caller.call(ask.clone()).await.map(drop)));
        said.push((name, caller.call(ask.request_id("r")).await.map(drop)));
    }
    said
}

/// A status without the run's id: code, text and the bytes of the details.
fn without_id(status: &Status, run_id: &str) -> (Code, String, Vec<u8>) {
    let blank = "#".repeat(run_id.len());
    let details: Vec<u8> = status.details().to_vec();
    let mut shown = details.clone();
    for at in 0..details.len().saturating_sub(run_id.len() - 1) {
        if details[at..].starts_with(run_id.as_bytes()) {
            shown[at..at + run_id.len()].copy_from_slice(blank.as_bytes());
        }
    }
    (status.code(), status.message().replace(run_id, &blank), shown)
}

pub(crate) async fn a_run_elsewhere_is_answered_for_as_one_that_never_was(place: Place) {
    let (_, here) = made(&place, "here", 0).await;
    let (_, there) = made(&place, "there", 0).await;
    // Runs that have something to tell: a lease, an abort, labels, a request.
    let (run_id, never) = (fresh("run"), fresh("run"));
    let labels = [("queue".to_owned(), "q".to_owned())].into();
    let seconds = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let asked = StartRunRequest { labels, lease_ttl: seconds, agent_id: "owner".into(), ..start(&run_id) };
    there.apply(Ask::from(asked).request_id("r")).await;
    let (elsewhere, nowhere) = (about(&here, &run_id).await, about(&here, &never).await);
    assert_eq!(elsewhere.len(), nowhere.len());
    for ((rpc, elsewhere), (_, nowhere)) in elsewhere.into_iter().zip(nowhere) {
        let (elsewhere, nowhere) = match (elsewhere, nowhere) {
            (Err(elsewhere), Err(nowhere)) => (elsewhere, nowhere),
            (Ok(()), Ok(())) if rpc == "check_transition" => continue,
            both => panic!("{rpc}: {both:?}"),
        };
        assert_eq!(Refused::from(elsewhere.clone()).reason, "RUN_NOT_FOUND", "{rpc}");
        assert_eq!(without_id(&elsewhere, &run_id), without_id(&nowhere, &never), "{rpc}");
    }
    let untouched = there.get(&run_id).await;
    assert_eq!(untouched.revision, 1, "nothing came through the wall");
    // The same id is free here, and so is the same request.
    here.apply(Ask::from(start(&run_id)).request_id("r")).await;
    assert_eq!(there.get(&run_id).await, untouched);
    let nameless = || StartRunRequest { run_id: String::new(), request_id: "same".into(), ..start("") };
    assert_ne!(here.apply(nameless()).await.run_id, there.apply(nameless()).await.run_id);
}

pub(crate) async fn lists_counts_claims_and_queues_end_at_the_wall(place: Place) {
    let (_, here) = made(&place, "here", 0).await;
    let (_, there) = made(&place, "there", 0).await;
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let queued = |id: &str| {
        let labels = [("queue".to_owned(), "q".to_owned())].into();
        StartRunRequest { labels, ..deferred(id) }
    };
    let max_running = Some(MaxRunning { label: "queue".into(), limit: 1 });
    let (first, second) = (fresh("first"), fresh("second"));
    there.apply(queued(&first)).await;
    there.apply(queued(&second)).await;
    let claim = ClaimNextRunRequest {
        lease_ttl: seconds(60),
        wait: seconds(0),
        max_running: max_running.clone(),
        request_id: "claim".into(),
        ..Default::default()
    };
    let claimed = there.grpc.clone().claim_next_run(there.request(claim.clone())).await.unwrap().into_inner();
    assert_eq!(claimed.run.unwrap().run_id, first);

    let list = ListRunsRequest { filter: Some(RunFilter::default()), ..Default::default() };
    let listed = here.grpc.clone().list_runs(here.request(list)).await.unwrap().into_inner();
    assert_eq!((listed.runs, listed.next_page_token), (vec![], String::new()));
    let count = CountRunsRequest { filter: None, by_phase: false, by_suspension: false };
    let counted = here.grpc.clone().count_runs(here.request(count)).await.unwrap().into_inner();
    assert!(counted.counts.iter().all(|status| status.count == 0), "{counted:?}");
    // The claimer's request of there is a new one here, and finds no run.
    let nothing = here.grpc.clone().claim_next_run(here.request(claim.clone())).await.unwrap().into_inner();
    assert_eq!((nothing.disposition(), nothing.run), (Disposition::Unspecified, None));
    // The value is full there, and a run waits there: neither counts here.
    let own = fresh("own");
    here.apply(queued(&own)).await;
    let asked = GetRunRequest { run_id: own.clone(), queue_label: Some("queue".into()), ..Default::default() };
    let queue = here.grpc.clone().get_run(here.request(asked)).await.unwrap().into_inner().queue.unwrap();
    assert_eq!((queue.position, queue.running_run_ids), (1, vec![]));
    let claimed = here.grpc.clone().claim_next_run(here.request(claim)).await.unwrap().into_inner();
    assert_eq!(claimed.run.unwrap().run_id, own);
}

pub(crate) async fn cursors_and_tokens_are_noise_behind_the_wall(place: Place) {
    let (_, here) = made(&place, "here", 0).await;
    let (_, there) = made(&place, "there", 0).await;
    let run_id = fresh("run");
    for caller in [&here, &there] {
        for n in 0..3 {
            caller.apply(start(&format!("{run_id}-{n}"))).await;
        }
        caller.apply(complete(&format!("{run_id}-0"))).await;
    }
    let asked =
        |page_token: &str| ListRunsRequest { page_size: 1, page_token: page_token.into(), ..Default::default() };
    let token = there.grpc.clone().list_runs(there.request(asked(""))).await.unwrap().into_inner().next_page_token;
    let noise = refused(here.grpc.clone().list_runs(here.request(asked("noise"))).await);
    let theirs = refused(here.grpc.clone().list_runs(here.request(asked(&token))).await);
    assert_eq!(format!("{theirs:?}"), format!("{noise:?}"));
    let asked = |page_token: &str| ListRunEventsRequest {
        run_id: format!("{run_id}-0"),
        page_size: 1,
        page_token: page_token.into(),
    };
    let page = there.grpc.clone().list_run_events(there.request(asked(""))).await.unwrap().into_inner();
    let noise = refused(here.grpc.clone().list_run_events(here.request(asked("noise"))).await);
    let theirs = refused(here.grpc.clone().list_run_events(here.request(asked(&page.next_page_token))).await);
    assert_eq!(format!("{theirs:?}"), format!("{noise:?}"));

    let cursor = Watch::of(&there, RunFilter::default(), Initial::None).await.caught_up().await;
    let asked = |cursor: &str| WatchRunsRequest { cursor: cursor.into(), ..Default::default() };
    let noise = refused(here.grpc.clone().watch_runs(here.request(asked("noise"))).await);
    let theirs = refused(here.grpc.clone().watch_runs(here.request(asked(&cursor))).await);
    assert_eq!(format!("{theirs:?}"), format!("{noise:?}"));
}

pub(crate) async fn a_watch_shows_its_own_namespace_and_goes_on_from_its_cursors(place: Place) {
    let (_, here) = made(&place, "here", 0).await;
    let (_, there) = made(&place, "there", 0).await;
    let other = fresh("other");
    let mut watch = Watch::of(&here, RunFilter::default(), Initial::All).await;
    let begun = watch.caught_up().await;
    let (mut shown, mut cursors) = (Vec::new(), vec![begun]);
    for n in 0..4 {
        there.apply(start(&format!("{other}-{n}"))).await;
        let run = here.apply(start(&fresh("own"))).await;
        cursors.push(watch.shows(&run, true).await);
        shown.push(run);
        there.apply(complete(&format!("{other}-{n}"))).await;
    }
    // From each cursor, on another replica too, the rest comes, and nothing else.
    let elsewhere = place.other().await.header("runledger-namespace", shown[0].namespace.as_bytes());
    for (after, cursor) in cursors.iter().enumerate() {
        let mut watch = Watch::after(&elsewhere, RunFilter::default(), cursor).await;
        for run in &shown[after..] {
            watch.shows(run, true).await;
        }
        watch.caught_up().await;
    }
    let mut view = Watch::of(&here, RunFilter::default(), Initial::All).await;
    for _ in &shown {
        let (run, _) = view.snapshot().await;
        assert!(shown.contains(&run));
    }
    view.caught_up().await;
}

pub(crate) async fn a_namespace_that_nobody_made_answers_nothing(place: Place) {
    let nobody = fresh("nobody");
    let caller = place.caller().await.header("runledger-namespace", nobody.as_bytes());
    for (rpc, answer) in about(&caller, "run").await {
        let refused = Refused::from(answer.expect_err(rpc)).is(Code::NotFound, "NAMESPACE_NOT_FOUND");
        assert_eq!(refused.info["namespace"], nobody, "{rpc}");
    }
    let list = ListRunsRequest::default();
    refused(caller.grpc.clone().list_runs(caller.request(list)).await).is(Code::NotFound, "NAMESPACE_NOT_FOUND");
    let watch = WatchRunsRequest::default();
    refused(caller.grpc.clone().watch_runs(caller.request(watch)).await).is(Code::NotFound, "NAMESPACE_NOT_FOUND");
}

pub(crate) async fn a_start_above_the_quota_is_refused_until_a_run_ends(place: Place) {
    let (name, caller) = made(&place, "small", 2).await;
    let first = caller.apply(start(&fresh("run"))).await;
    caller.apply(deferred(&fresh("run"))).await;
    let next = start(&fresh("run"));
    let refused = caller.refused(next.clone()).await.is(Code::ResourceExhausted, "QUOTA_EXCEEDED");
    let detail: QuotaExceededError = refused.detail("runledger.v1.QuotaExceededError");
    let expected = QuotaExceededError { namespace: name, quota: "max_active_runs".into(), limit: 2, used: 2 };
    assert_eq!(detail, expected);
    caller.apply(complete(&first.run_id)).await;
    caller.apply(next).await;
    let other = place.other().await.header("runledger-namespace", first.namespace.as_bytes());
    other.refused(start(&fresh("run"))).await.is(Code::ResourceExhausted, "QUOTA_EXCEEDED");
}
