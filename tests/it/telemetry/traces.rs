//! Traces: from a caller's span through the call's to the commit's, and on to whoever watches.

use opentelemetry_proto::tonic::trace::v1::Span;
use runledger_client::Health;
use runledger_proto::v1::watch_run_response::Frame;
use runledger_proto::v1::{GetRunRequest, ListRunEventsRequest, StartRunRequest, UpdateRunRequest, WatchRunRequest};
use tonic::Request;

use super::collector::{Collector, attribute, hex};
use crate::process::data::Data;
use crate::process::server::{Client, SOON, Server, eventually};
use crate::support::postgres::Database;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A server that sends to a collector, and records no call that does not ask for it.
async fn traced(collector: &Collector, store: &str, more: &[&str]) -> Server {
    started(&[&["--trace-sample-ratio", "0", "--store", store], &sending(collector)[..], more].concat()).await
}

async fn started(flags: &[&str]) -> Server {
    let server = Server::start_with(flags).await;
    server.becomes("readiness", Health::Serving, SOON).await;
    server
}

/// The flags of a server that sends to a collector.
fn sending(collector: &Collector) -> [&str; 4] {
    ["--otlp-interval", "1s", "--otlp-endpoint", &collector.url]
}

fn sqlite(folder: &tempfile::TempDir) -> String {
    format!("sqlite:{}", folder.path().join("ledger.db").display())
}

fn of<M>(message: M, traceparent: &str) -> Request<M> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    request
}

fn a_start(run_id: &str) -> StartRunRequest {
    StartRunRequest { run_id: run_id.to_owned(), task_thread_id: "t".to_owned(), ..StartRunRequest::default() }
}

async fn events(client: &mut Client, run_id: &str) -> Vec<String> {
    let asked = ListRunEventsRequest { run_id: run_id.to_owned(), ..ListRunEventsRequest::default() };
    let answer = client.list_run_events(asked).await.unwrap().into_inner();
    answer.events.into_iter().map(|event| event.traceparent).collect()
}

async fn a_start_is_traced_to_its_commit_and_on_to_a_watcher(store: &str, of_the_store: &[&str]) {
    let collector = Collector::start().await;
    let server = traced(&collector, store, &[]).await;
    let mut client = server.client();
    client.start_run(of(a_start("run-1"), &format!("00-{TRACE}-{CALLER}-01"))).await.unwrap();
    let spans = collector.trace(TRACE, "runledger.v1.RunService/StartRun").await;
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name}"));
    let (call, commit) = (named("runledger.v1.RunService/StartRun"), named("commit"));
    assert_eq!(hex(&call.parent_span_id), CALLER);
    assert_eq!(commit.parent_span_id, call.span_id);
    for name in of_the_store {
        assert_eq!(named(name).parent_span_id, commit.span_id, "{name}");
    }
    for (name, value) in [
        ("rpc.method", "runledger.v1.RunService/StartRun"),
        ("rpc.response.status_code", "OK"),
        ("runledger.run.id", "run-1"),
        ("runledger.namespace", "default"),
    ] {
        assert_eq!(attribute(call, name).as_deref(), Some(value), "{name}");
    }
    assert!(attribute(call, "runledger.queue.wait").is_some());
    assert!(attribute(call, "runledger.commit.id").is_some());
    assert_eq!(attribute(call, "runledger.commit.id"), attribute(commit, "runledger.commit.id"));

    let get = GetRunRequest { run_id: "run-1".to_owned(), ..GetRunRequest::default() };
    client.get_run(of(get, &format!("00-{TRACE}-{CALLER}-01"))).await.unwrap();
    let spans_of_read = collector.trace(TRACE, "runledger.v1.RunService/GetRun").await;
    let read = spans_of_read.iter().find(|span| span.name == "runledger.v1.RunService/GetRun").unwrap();
    assert_eq!(attribute(read, "runledger.run.id").as_deref(), Some("run-1"));

    // The event leads back to the call's span, so that a watcher can link its own to it.
    let traceparent = format!("00-{TRACE}-{}-01", hex(&call.span_id));
    assert_eq!(events(&mut client, "run-1").await, [traceparent.as_str()]);
    let watch = WatchRunRequest { run_id: "run-1".to_owned(), after_revision: Some(0), ..WatchRunRequest::default() };
    let mut frames = client.watch_run(watch).await.unwrap().into_inner();
    let first = frames.message().await.unwrap().unwrap().frame.unwrap();
    let Frame::Change(change) = first else { panic!("{first:?}") };
    assert_eq!(change.event.unwrap().traceparent, traceparent);
}

#[tokio::test]
async fn a_start_is_traced_to_its_commit_and_on_to_a_watcher_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let parts = ["store.wait_for_connection", "store.work"];
    a_start_is_traced_to_its_commit_and_on_to_a_watcher(&sqlite(&folder), &parts).await;
}

#[tokio::test]
async fn a_start_is_traced_to_its_commit_and_on_to_a_watcher_on_postgres() {
    let database = Database::fresh().await;
    let parts = ["store.wait_for_connection"];
    a_start_is_traced_to_its_commit_and_on_to_a_watcher(&database.dsn(), &parts).await;
}

#[tokio::test]
async fn a_call_that_is_not_sampled_makes_no_span_and_its_event_keeps_the_callers_place() {
    let collector = Collector::start().await;
    let server = traced(&collector, "memory", &[]).await;
    let mut client = server.client();
    let unsampled = format!("00-{TRACE}-{CALLER}-00");
    client.start_run(of(a_start("run-1"), &unsampled)).await.unwrap();
    client.start_run(a_start("run-2")).await.unwrap();
    client.start_run(of(a_start("run-3"), "00-what-is-this-01")).await.unwrap();
    assert_eq!(events(&mut client, "run-1").await, [unsampled.as_str()]);
    assert_eq!(events(&mut client, "run-2").await, [""]);
    assert_eq!(events(&mut client, "run-3").await, [""]);
    // A span that came later tells that none of these is on its way.
    let other = "0af7651916cd43dd8448eb211c80319c";
    let update = UpdateRunRequest { run_id: "run-1".to_owned(), ..UpdateRunRequest::default() };
    client.update_run(of(update, &format!("00-{other}-{CALLER}-01"))).await.unwrap();
    collector.trace(other, "runledger.v1.RunService/UpdateRun").await;
    assert!(!collector.names().contains(&"runledger.v1.RunService/StartRun".to_owned()), "{:?}", collector.names());
}

#[tokio::test]
async fn a_share_of_calls_is_recorded_although_no_caller_asks_for_it() {
    let collector = Collector::start().await;
    let all = ["--store", "memory", "--trace-sample-ratio", "1"];
    let server = started(&[&all[..], &sending(&collector)].concat()).await;
    let mut client = server.client();
    client.start_run(a_start("run-1")).await.unwrap();
    let traceparent = events(&mut client, "run-1").await.remove(0);
    assert!(traceparent.ends_with("-01"), "{traceparent}");
    let spans = collector.trace(&traceparent[3..35], "runledger.v1.RunService/StartRun").await;
    let call = spans.iter().find(|span| span.name == "runledger.v1.RunService/StartRun").unwrap();
    assert!(call.parent_span_id.is_empty() && traceparent[36..52] == hex(&call.span_id));
}

#[tokio::test]
async fn callers_that_ask_for_more_than_100_traces_a_second_do_not_get_them() {
    let collector = Collector::start().await;
    let server = traced(&collector, "memory", &[]).await;
    let client = server.client();
    let calls = (0..400_u64).map(|nth| {
        let mut client = client.clone();
        async move {
            let traceparent = format!("00-{TRACE}-{:016x}-01", nth + 1);
            client.start_run(of(a_start(&format!("run-{nth}")), &traceparent)).await.unwrap();
        }
    });
    let began = tokio::time::Instant::now();
    futures_util::future::join_all(calls).await;
    let seconds = began.elapsed().as_secs_f64();
    let last = "0af7651916cd43dd8448eb211c80319c";
    let later = eventually(SOON, async || {
        let mut client = client.clone();
        client.start_run(of(a_start("last"), &format!("00-{last}-{CALLER}-01"))).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        collector.spans().iter().any(|span| hex(&span.trace_id) == last).then_some(())
    });
    later.await.expect("the bucket fills again");
    let is_of_the_crowd = |span: &Span| hex(&span.trace_id) == TRACE && span.name.ends_with("StartRun");
    let recorded = collector.spans().iter().filter(|span| is_of_the_crowd(span)).count();
    let most = 100.0 * (1.0 + seconds) + 1.0;
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let within = (100..400).contains(&recorded) && recorded as f64 <= most;
    assert!(within, "{recorded} of 400 in {seconds} s");
    let mut client = server.client();
    let kept = events(&mut client, "run-399").await.remove(0);
    assert!(kept.starts_with(&format!("00-{TRACE}-")), "{kept}: the trace is kept all the same");
}

#[tokio::test]
async fn a_batch_has_one_span_that_links_to_all_of_its_calls() {
    let collector = Collector::start().await;
    let folder = tempfile::tempdir().unwrap();
    let server = traced(&collector, &sqlite(&folder), &[]).await;
    let client = server.client();
    let calls = (0..64_u64).map(|nth| {
        let mut client = client.clone();
        async move {
            let traceparent = format!("00-{:032x}-{CALLER}-01", u128::from(nth) + 1);
            client.start_run(of(a_start(&format!("run-{nth}")), &traceparent)).await.unwrap();
        }
    });
    futures_util::future::join_all(calls).await;
    let all = eventually(SOON, async || {
        let spans = collector.spans();
        let calls = spans.iter().filter(|span| span.name.ends_with("StartRun")).count();
        let commits: Vec<_> = spans.into_iter().filter(|span| span.name == "commit").collect();
        let linked: usize = commits.iter().map(|commit| 1 + commit.links.len()).sum();
        (calls == 64 && linked == 64).then_some(commits)
    });
    let commits = all.await.expect("every call is a commit's parent or linked to it");
    assert!(commits.len() < 64, "some calls shared a commit");
}

#[tokio::test]
async fn metrics_are_sent_to_the_collector_with_the_headers_of_a_file() {
    let collector = Collector::start().await;
    let folder = tempfile::tempdir().unwrap();
    let headers = folder.path().join("headers");
    std::fs::write(&headers, "x-api-key: s3cr3t-of-the-collector\n").unwrap();
    let server = traced(&collector, "memory", &["--otlp-headers-file", headers.to_str().unwrap()]).await;
    server.client().start_run(a_start("run-1")).await.unwrap();
    collector.has_metric("rpc.server.call.duration").await;
    collector.has_metric("runledger.store.up").await;
    assert!(collector.headers().iter().all(|headers| headers.get("x-api-key").unwrap() == "s3cr3t-of-the-collector"));
    assert!(!server.process.said().contains("s3cr3t"), "{}", server.process.said());
}

#[tokio::test]
async fn a_collector_that_is_away_is_told_of_and_harms_no_call_and_no_stop() {
    let flags = ["--store", "memory", "--otlp-endpoint", "http://127.0.0.1:1", "--otlp-interval", "1s"];
    let mut server = started(&[&flags[..], &["--trace-sample-ratio", "1"]].concat()).await;
    server.client().start_run(a_start("run-1")).await.unwrap();
    server.process.says("the collector does not take what it is sent").await;
    server.client().start_run(a_start("run-2")).await.unwrap();
    server.process.signal("TERM");
    assert_eq!(server.process.exited(SOON).await.0, 0);
}

#[tokio::test]
async fn a_line_of_json_has_its_fields_and_one_about_a_call_has_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let server = started(&["--store", &sqlite(&folder), "--log-format", "json"]).await;
    let mut client = server.client();
    client.start_run(a_start("spoilt")).await.unwrap();
    let data = Data::Sqlite(folder.path().join("ledger.db"));
    data.sql("update runs set record = '[]' where run_id = 'spoilt' returning run_id").await;
    let asked = GetRunRequest { run_id: "spoilt".to_owned(), ..GetRunRequest::default() };
    client.get_run(of(asked, &format!("00-{TRACE}-{CALLER}-00"))).await.unwrap_err();
    server.process.says("a read failed").await;
    let said = server.process.said();
    let lines: Vec<serde_json::Value> =
        said.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        for field in ["timestamp", "level", "target", "message"] {
            assert!(line[field].is_string(), "{field}: {line}");
        }
        assert!(line["target"].as_str().unwrap().starts_with("runledger::"), "{line}");
    }
    let failed = lines.iter().find(|line| line["message"] == "a read failed").unwrap();
    for (field, value) in
        [("level", "ERROR"), ("rpc", "GetRun"), ("namespace", "default"), ("run_id", "spoilt"), ("trace_id", TRACE)]
    {
        assert_eq!(failed[field], value, "{failed}");
    }
    assert!(failed["error"].is_string(), "{failed}");
}
