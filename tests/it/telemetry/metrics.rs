//! Metrics: all of the table and nothing else, and true.

use std::collections::{BTreeSet, HashSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use runledger::telemetry::metrics::{ALL, Kind, Metric, prometheus_label};
use runledger_proto::v1::{
    ClaimNextRunRequest, CompleteRunRequest, GetRunRequest, HeartbeatRunRequest, StartRunRequest, WatchRunsRequest,
};

use super::{Scrape, scraped};
use crate::process::server::{Process, Server};
use crate::support::postgres::{Database, variable};
use crate::support::tls::Ca;

/// What is told only where it happens or is there: a limit that was set, a credential that was refused, and the like.
/// [`what_happens_seldom_is_told_when_it_happens`] has them happen.
const SELDOM: &[&str] = &[
    "runledger_auth_failures_total",
    "runledger_jwks_age_seconds",
    "runledger_limited_total",
    "runledger_tls_expiry_seconds",
    "runledger_commit_retries_total",
    "runledger_sweep_ended_total",
];

/// Told by Postgres and not by SQLite.
const OF_POSTGRES: &[&str] = &["runledger_leases_held", "runledger_runs"];

async fn work(server: &Server) {
    let mut client = server.client();
    let mut frames = client.watch_runs(WatchRunsRequest::default()).await.unwrap().into_inner();
    let cursor = loop {
        let frame = frames.message().await.unwrap().unwrap().frame.unwrap();
        if let runledger_proto::v1::watch_runs_response::Frame::CaughtUp(frame) = frame {
            break frame.cursor;
        }
    };
    let start = |run_id: &str, deferred| StartRunRequest {
        run_id: run_id.to_owned(),
        task_thread_id: "t".to_owned(),
        request_id: format!("start-{run_id}"),
        deferred,
        ..StartRunRequest::default()
    };
    for nth in 0..3 {
        client.start_run(start(&format!("run-{nth}"), false)).await.unwrap();
        frames.message().await.unwrap().unwrap();
    }
    client.start_run(start("run-0", false)).await.unwrap();
    client.start_run(start("waits", true)).await.unwrap();
    let lease_ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let claim = ClaimNextRunRequest { lease_ttl, ..ClaimNextRunRequest::default() };
    let claimed = client.claim_next_run(claim).await.unwrap().into_inner().run.unwrap();
    let lease_epoch = claimed.lease.unwrap().epoch;
    let beat = HeartbeatRunRequest { run_id: "waits".to_owned(), lease_epoch, ..HeartbeatRunRequest::default() };
    client.heartbeat_run(beat).await.unwrap();
    let complete = CompleteRunRequest { run_id: "run-1".to_owned(), ..CompleteRunRequest::default() };
    client.complete_run(complete.clone()).await.unwrap();
    client.complete_run(complete).await.unwrap();
    client.get_run(GetRunRequest { run_id: "never".to_owned(), ..GetRunRequest::default() }).await.unwrap_err();
    let resumed = WatchRunsRequest { cursor, ..WatchRunsRequest::default() };
    client.watch_runs(resumed).await.unwrap().into_inner().message().await.unwrap().unwrap();
}

/// The metrics that are told, each held against its row: its kind, its meaning, its labels.
async fn told(scrape: Scrape) -> BTreeSet<String> {
    let text = scrape.text().await;
    let mut told = BTreeSet::new();
    for line in text.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap();
            let row = row(name).unwrap_or_else(|| panic!("{name} has no row"));
            let wanted = match row.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram(_) => "histogram",
            };
            assert_eq!(kind, wanted, "{name}");
            assert!(text.contains(&format!("# HELP {name} {}\n", row.meaning)), "{name}");
            told.insert(name.to_owned());
        } else if !line.starts_with('#') {
            let (series, _) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let name =
                told.iter().rev().find(|told| name.starts_with(told.as_str())).unwrap_or_else(|| panic!("{line}"));
            let mut own: HashSet<_> = row(name).unwrap().labels.iter().map(|label| prometheus_label(label)).collect();
            own.insert("le".to_owned());
            for label in labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty()) {
                let label = label.split('=').next().unwrap();
                assert!(own.contains(label), "{line}: {label}");
            }
        }
    }
    told
}

fn row(name: &str) -> Option<&'static Metric> {
    ALL.iter().copied().find(|metric| metric.prometheus_name() == name)
}

/// Every metric of the table but these.
fn all_but(left_out: &[&[&str]]) -> BTreeSet<String> {
    let left_out: HashSet<_> = left_out.concat().into_iter().collect();
    ALL.iter().map(|metric| metric.prometheus_name()).filter(|name| !left_out.contains(name.as_str())).collect()
}

#[tokio::test]
async fn every_metric_of_the_table_is_told_and_no_other_on_sqlite() {
    let (server, scrape) = scraped(&["--store", "memory"]).await;
    work(&server).await;
    let told = told(scrape).await;
    let wanted = all_but(&[SELDOM, OF_POSTGRES]);
    assert_eq!(wanted.difference(&told).collect::<Vec<_>>(), Vec::<&String>::new(), "these are not told");
    let promtool = variable("RUNLEDGER_TEST_PROMTOOL").expect("RUNLEDGER_TEST_PROMTOOL=\"$(tests/promtool)\"");
    let mut check = Command::new(promtool);
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().unwrap();
    check.stdin.take().unwrap().write_all(scrape.text().await.as_bytes()).unwrap();
    let checked = check.wait_with_output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[tokio::test]
async fn every_metric_of_the_table_is_told_and_no_other_on_postgres() {
    let database = Database::fresh().await;
    let (server, scrape) = scraped(&["--store", &database.dsn()]).await;
    work(&server).await;
    let told = told(scrape).await;
    // The statistics come with the first analysis of the tables, and are looked at once a minute.
    let wanted = all_but(&[SELDOM, OF_POSTGRES]);
    assert_eq!(wanted.difference(&told).collect::<Vec<_>>(), Vec::<&String>::new(), "these are not told");
    drop(server);
    let sql = crate::support::postgres::direct(&database.dsn()).await;
    sql.batch_execute("analyze").await.unwrap();
    let (_server, scrape) = scraped(&["--store", &database.dsn()]).await;
    scrape.reaches("runledger_runs", &["status=\"running\""], 3.0).await;
    scrape.reaches("runledger_leases_held", &[], 1.0).await;
}

#[tokio::test]
async fn what_is_counted_is_what_has_happened() {
    let (server, scrape) = scraped(&["--store", "memory"]).await;
    work(&server).await;
    let calls = "rpc_server_call_duration_seconds_count";
    for (name, labels, value) in [
        (calls, &["RunService/StartRun\"", "\"OK\""][..], 5.0),
        (calls, &["RunService/GetRun\"", "\"NOT_FOUND\""], 1.0),
        ("runledger_transitions_total", &["from=\"none\"", "to=\"running\"", "\"applied\""], 3.0),
        ("runledger_transitions_total", &["from=\"none\"", "to=\"pending\"", "\"applied\""], 1.0),
        ("runledger_transitions_total", &["from=\"running\"", "to=\"completed\"", "\"applied\""], 1.0),
        ("runledger_transitions_total", &["from=\"completed\"", "to=\"completed\"", "\"unchanged\""], 1.0),
        ("runledger_transitions_total", &["\"replayed\""], 1.0),
        ("runledger_refusals_total", &["reason=\"RUN_NOT_FOUND\""], 1.0),
        ("runledger_claims_total", &["outcome=\"granted\""], 1.0),
        ("runledger_leases_renewals_total", &["outcome=\"made\""], 1.0),
        ("runledger_watch_resumes_total", &["of=\"many\""], 1.0),
        ("runledger_commit_duration_seconds_count", &["outcome=\"nothing_to_write\""], 2.0),
    ] {
        scrape.reaches(name, labels, value).await;
        let sum = scrape.sum(name, labels).await;
        assert!((sum - value).abs() < 0.1, "{name}{labels:?} is {sum}, and not {value}");
    }
    scrape.reaches("runledger_commit_duration_seconds_count", &["outcome=\"committed\""], 1.0).await;
    // A watch is told of once its client has gone.
    scrape.reaches(calls, &["RunService/WatchRuns\"", "\"CANCELLED\""], 1.0).await;
}

#[tokio::test]
async fn what_happens_seldom_is_told_when_it_happens() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::new("ca");
    let (certificate, key) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
    ca.server().write(&certificate, &key);
    let access = folder.path().join("access.toml");
    let rules = "[[token]]\nname = \"a\"\nsha256 = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\n\
                 grants = [{ namespaces = [\"*\"], roles = [\"admin\"], agents = [\"*\"] }]\n\
                 [[issuer]]\nissuer = \"https://keys.example\"\naudience = \"runledger\"\njwks_file = \"/nowhere\"\n\
                 [[issuer.subject]]\nname = \"*\"\ngrants = [{ namespaces = [\"*\"], roles = [\"reader\"] }]\n";
    std::fs::write(&access, rules).unwrap();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let flags = ["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--admin-listen", "127.0.0.1:0"];
    let (certificate, key, access_file) = (path(&certificate), path(&key), path(&access));
    let secured =
        ["--tls-cert", &certificate, "--tls-key", &key, "--access-file", &access_file, "--reload-interval", "50ms"];
    let process = Process::spawn(&[&flags[..], &secured].concat());
    process.says("  admin  ").await;
    let said = process.said();
    let at = said.lines().find_map(|line| line.strip_prefix("  admin  http://")).unwrap().split('/').next().unwrap();
    let scrape = Scrape(at.parse().unwrap());
    scrape.reaches("runledger_tls_expiry_seconds", &["certificate=\"server\""], 1.0).await;
    // The keys of this issuer cannot be read: their age is the time for which they were looked for.
    scrape.reaches("runledger_jwks_age_seconds", &["issuer=\"https://keys.example\""], 0.1).await;
    assert!(scrape.sum("runledger_reloads_total", &["kind=\"access\""]).await.abs() < 0.1);
    std::fs::write(&access, "what").unwrap();
    scrape.reaches("runledger_reloads_total", &["kind=\"access\"", "outcome=\"refused\""], 1.0).await;
    std::fs::write(&access, format!("{rules}\n# again\n")).unwrap();
    scrape.reaches("runledger_reloads_total", &["kind=\"access\"", "outcome=\"taken\""], 1.0).await;

    let (server, scrape) = scraped(&["--store", "memory", "--caller-open-calls", "1"]).await;
    let mut client = server.hasty();
    let _open = client.watch_runs(WatchRunsRequest::default()).await.unwrap();
    client.get_run(GetRunRequest { run_id: "a".to_owned(), ..GetRunRequest::default() }).await.unwrap_err();
    scrape.reaches("runledger_limited_total", &["limit=\"open_calls\""], 1.0).await;
    scrape.reaches("runledger_refusals_total", &["reason=\"OVERLOADED\""], 1.0).await;

    let (server, scrape) = scraped(&["--store", "memory"]).await;
    let run_timeout = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let short = StartRunRequest { task_thread_id: "t".to_owned(), run_timeout, ..StartRunRequest::default() };
    server.client().start_run(short).await.unwrap();
    scrape.reaches("runledger_sweep_ended_total", &["reason=\"TIMEOUT\""], 1.0).await;
}

#[tokio::test]
async fn a_caller_chooses_no_name_of_a_series() {
    let (server, scrape) = scraped(&["--store", "memory"]).await;
    let mut client = server.client();
    for nth in 0..50 {
        let start = StartRunRequest {
            run_id: format!("run-{nth}"),
            task_thread_id: format!("thread-{nth}"),
            agent_id: format!("agent-{nth}"),
            ..StartRunRequest::default()
        };
        client.start_run(start).await.unwrap();
    }
    for path in ["/runledger.v1.RunService/NoSuch1", "/runledger.v1.RunService/NoSuch2", "/x/y"] {
        let mut grpc = tonic::client::Grpc::new(server.wire());
        grpc.ready().await.unwrap();
        let codec: tonic_prost::ProstCodec<GetRunRequest, GetRunRequest> = tonic_prost::ProstCodec::default();
        grpc.unary(tonic::Request::new(GetRunRequest::default()), path.parse().unwrap(), codec).await.unwrap_err();
    }
    scrape.reaches("rpc_server_call_duration_seconds_count", &["\"_OTHER\"", "\"UNIMPLEMENTED\""], 3.0).await;
    let text = scrape.text().await;
    for chosen in ["run-7", "thread-7", "agent-7", "NoSuch", "/y\""] {
        assert!(!text.contains(chosen), "{chosen}");
    }
}
