//! Streams and waits end when what let them in does.

use runledger_proto::v1::{ClaimNextRunRequest, StartRunRequest, WaitRunRequest, WatchRunsRequest};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use super::callers::{Caller, Client, Place, entry, grant, reason};
use crate::process::server::{SOON, eventually};

pub(super) async fn end<F>(mut frames: Streaming<F>) -> Status {
    loop {
        match timeout(SOON, frames.message()).await.expect("the stream ends") {
            Ok(Some(_frame)) => {}
            Ok(None) => panic!("an end without a reason"),
            Err(status) => return status,
        }
    }
}

async fn start(client: &mut Client) {
    let run = StartRunRequest { run_id: "run".into(), task_thread_id: "thread".into(), ..Default::default() };
    client.start_run(run).await.unwrap();
}

#[tokio::test]
async fn a_stream_and_a_wait_end_when_new_rules_take_their_grant_and_others_go_on() {
    let admin = entry("admin", &grant("*", "admin", "\"*\""));
    let place = Place::start(&format!("{admin}{}", entry("reader", &grant("*", "reader", "")))).await;
    let (mut admin_client, mut reader) = (place.client(Caller::of("admin")), place.client(Caller::of("reader")));
    start(&mut admin_client).await;
    let watch = reader.watch_runs(WatchRunsRequest::default()).await.unwrap().into_inner();
    let mut kept = admin_client.watch_runs(WatchRunsRequest::default()).await.unwrap().into_inner();
    let wait = WaitRunRequest {
        run_id: "run".into(),
        timeout: Some(prost_types::Duration { seconds: 600, nanos: 0 }),
        until: 0,
    };
    let mut caller = place.client(Caller::of("reader"));
    let mut waits = JoinSet::new();
    waits.spawn(async move { caller.wait_run(wait).await });
    place.rewrite(&format!("{admin}{}", entry("reader", &grant("elsewhere", "reader", ""))));
    let status = end(watch).await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::PermissionDenied, "NAMESPACE_DENIED"));
    let waited = timeout(SOON, waits.join_next()).await.unwrap().unwrap().unwrap().unwrap_err();
    assert_eq!(waited.code(), Code::PermissionDenied, "{waited:?}");
    let again = reader.watch_runs(WatchRunsRequest::default()).await.unwrap_err();
    assert_eq!(reason(&again), "NAMESPACE_DENIED");
    place.rewrite(&admin);
    place.server.process.says("new access rules hold").await;
    let mut other = place.client(Caller::of("admin"));
    other.abort_run(runledger_proto::v1::AbortRunRequest { run_id: "run".into(), ..Default::default() }).await.unwrap();
    let change = async {
        loop {
            let frame = kept.message().await.unwrap().unwrap().frame.unwrap();
            if let runledger_proto::v1::watch_runs_response::Frame::Change(change) = frame {
                return change;
            }
        }
    };
    assert_eq!(timeout(SOON, change).await.unwrap().run.unwrap().run_id, "run");
}

#[tokio::test]
async fn a_stream_and_a_wait_whose_credential_is_replaced_are_told_to_go_on_with_the_next_one() {
    let admin = entry("admin", &grant("*", "admin", "\"*\""));
    let place = Place::start(&format!("{admin}{}", entry("first", &grant("*", "reader", "")))).await;
    start(&mut place.client(Caller::of("admin"))).await;
    let mut reader = place.client(Caller::of("first"));
    let watch = reader.watch_runs(WatchRunsRequest::default()).await.unwrap().into_inner();
    let wait = WaitRunRequest {
        run_id: "run".into(),
        timeout: Some(prost_types::Duration { seconds: 600, nanos: 0 }),
        until: 0,
    };
    let mut caller = reader.clone();
    let mut waits = JoinSet::new();
    waits.spawn(async move { caller.wait_run(wait).await });
    place.rewrite(&format!("{admin}{}", entry("second", &grant("*", "reader", ""))));
    let status = end(watch).await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "DRAINING"));
    let waited = timeout(SOON, waits.join_next()).await.unwrap().unwrap().unwrap().unwrap_err();
    let refused = (Code::Unauthenticated, "CREDENTIAL_INVALID".to_owned());
    // A wait that began only now is refused at once.
    let told = [(Code::Unavailable, "DRAINING".to_owned()), refused.clone()];
    assert!(told.contains(&(waited.code(), reason(&waited))), "{waited:?}");
    let again = reader.watch_runs(WatchRunsRequest::default()).await.unwrap_err();
    assert_eq!((again.code(), reason(&again)), refused);
    place.client(Caller::of("second")).watch_runs(WatchRunsRequest::default()).await.unwrap();
}

#[tokio::test]
async fn a_stream_whose_credential_is_given_another_end_comes_back_and_ends_with_it() {
    let admin = entry("admin", &grant("*", "admin", "\"*\""));
    let place = Place::start(&format!("{admin}{}", entry("reader", &grant("*", "reader", "")))).await;
    let mut reader = place.client(Caller::of("reader"));
    let watch = reader.watch_runs(WatchRunsRequest::default()).await.unwrap().into_inner();
    let ends = entry("reader", &grant("*", "reader", "")) + "expires_at = \"2001-01-01T00:00:00Z\"\n";
    place.rewrite(&format!("{admin}{ends}"));
    assert_eq!(end(watch).await.code(), Code::Unavailable);
    let again = reader.watch_runs(WatchRunsRequest::default()).await.unwrap_err();
    assert_eq!((again.code(), reason(&again).as_str()), (Code::Unauthenticated, "CREDENTIAL_INVALID"));
    // A later end is no reason to refuse it.
    let later = entry("reader", &grant("*", "reader", "")) + "expires_at = \"2999-01-01T00:00:00Z\"\n";
    place.rewrite(&format!("{admin}{later}"));
    let watch = eventually(SOON, async || reader.watch_runs(WatchRunsRequest::default()).await.ok()).await;
    let watch = watch.expect("it is let in").into_inner();
    place.rewrite(&format!("{admin}{}", entry("reader", &grant("*", "reader", ""))));
    assert_eq!(end(watch).await.code(), Code::Unavailable, "it goes on by its new end");
    reader.watch_runs(WatchRunsRequest::default()).await.unwrap();
}

#[tokio::test]
async fn an_access_file_that_is_wrong_changes_nothing_and_is_told() {
    let admin = entry("admin", &grant("*", "admin", "\"*\""));
    let place = Place::start(&admin).await;
    place.rewrite("[[token]]\nname = 7\n");
    place.server.process.says("the access file is wrong").await;
    let mut client = place.client(Caller::of("admin"));
    start(&mut client).await;
    place.rewrite("");
    place.server.process.says("nobody would be let in").await;
    client.get_run(runledger_proto::v1::GetRunRequest { run_id: "run".into(), ..Default::default() }).await.unwrap();
    std::fs::remove_file(&place.path).unwrap();
    place.server.process.says("cannot be read").await;
    client.get_run(runledger_proto::v1::GetRunRequest { run_id: "run".into(), ..Default::default() }).await.unwrap();
}

#[tokio::test]
async fn a_token_that_comes_to_its_end_ends_its_stream_and_its_waits_so_that_they_go_on_with_another_one() {
    use runledger::clock::{Clock as _, SystemClock};
    // The token's time was over a while ago: clocks may differ by 30 s.
    let ends_at = runledger::domain::Time::from_micros(SystemClock.now().micros() - 27_000_000);
    let hash = runledger::auth::token::TokenHash::new(b"short");
    let access = format!(
        "[[token]]\nname = \"short\"\nsha256 = \"{hash}\"\nexpires_at = \"{ends_at}\"\ngrants = [{}]\n",
        grant("*", "reporter", "\"agent\"")
    );
    let place = Place::start(&access).await;
    let mut client = place.client(Caller::of("short"));
    let run = StartRunRequest { run_id: "run".into(), task_thread_id: "thread".into(), ..Default::default() };
    let _late = client.start_run(run).await;
    let (mut waiting, mut claiming) = (client.clone(), client.clone());
    let long = Some(prost_types::Duration { seconds: 600, nanos: 0 });
    let mut waits = JoinSet::new();
    let wait = WaitRunRequest { run_id: "run".into(), timeout: long, until: 0 };
    waits.spawn(async move { waiting.wait_run(wait).await.map(drop) });
    let claim = ClaimNextRunRequest { lease_ttl: long, wait: long, ..Default::default() };
    waits.spawn(async move { claiming.claim_next_run(claim).await.map(drop) });
    let Ok(watch) = client.watch_runs(WatchRunsRequest::default()).await else {
        // The machine took more than the three seconds to begin: then the refusal is the one of a token that ended.
        let status = client.watch_runs(WatchRunsRequest::default()).await.unwrap_err();
        return assert_eq!(reason(&status), "CREDENTIAL_INVALID");
    };
    let status = end(watch.into_inner()).await;
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    while let Some(waited) = timeout(SOON, waits.join_next()).await.expect("the waits end") {
        let status = waited.unwrap().expect_err("what was waited for did not come");
        // One that came later than the watch may be refused at once.
        assert!(["DRAINING", "CREDENTIAL_INVALID"].contains(&reason(&status).as_str()), "{status:?}");
    }
    let again = client.watch_runs(WatchRunsRequest::default()).await.unwrap_err();
    assert_eq!((again.code(), reason(&again).as_str()), (Code::Unauthenticated, "CREDENTIAL_INVALID"));
}
