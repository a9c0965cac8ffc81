//! Cursors and page tokens that the release before this one gave out lead on after the database's migration, and what
//! this release gives out instead shows nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use runledger::store::migrations::SQLITE;
use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::watch_runs_response::{CaughtUp, Change, Frame};
use runledger_proto::v1::{ListRunEventsRequest, ListRunsRequest, Run, WatchRunsRequest};
use tempfile::TempDir;
use tokio::time::timeout;

use super::data::Data;
use super::server::{Process, SOON, Server, run};
use super::upgrade::some_runs;
use crate::support::postgres::Database;

/// The runs that a watch from a cursor shows until it has caught up, each with its revision, and the cursor there.
async fn watched(server: &Server, cursor: &str) -> (Vec<(String, u64)>, String) {
    let request = WatchRunsRequest { initial: Initial::None.into(), cursor: cursor.to_owned(), ..Default::default() };
    let mut frames = server.client().watch_runs(request).await.unwrap().into_inner();
    let mut shown = Vec::new();
    loop {
        match timeout(SOON, frames.message()).await.unwrap().unwrap().unwrap().frame.unwrap() {
            Frame::Change(Change { event, .. }) => {
                let event = event.unwrap();
                shown.push((event.run_id, event.revision));
            }
            Frame::CaughtUp(CaughtUp { cursor }) => return (shown, cursor),
            Frame::Checkpoint(_) => {}
            Frame::Snapshot(snapshot) => panic!("a snapshot that was not asked for: {snapshot:?}"),
        }
    }
}

/// A page of runs, and the token of the next.
async fn listed(server: &Server, page_token: &str, page_size: i32) -> (Vec<Run>, String) {
    let request = ListRunsRequest { page_size, page_token: page_token.to_owned(), ..Default::default() };
    let listed = server.client().list_runs(request).await.unwrap().into_inner();
    (listed.runs, listed.next_page_token)
}

/// The revisions of a page of a run's events, and the token of the next.
async fn revisions(server: &Server, run_id: &str, page_token: &str) -> (Vec<u64>, String) {
    let page_token = page_token.to_owned();
    let request = ListRunEventsRequest { run_id: run_id.to_owned(), page_size: 1, page_token };
    let listed = server.client().list_run_events(request).await.unwrap().into_inner();
    (listed.events.iter().map(|event| event.revision).collect(), listed.next_page_token)
}

fn ids(runs: &[Run]) -> Vec<&str> {
    runs.iter().map(|run| run.run_id.as_str()).collect()
}

/// The format that a text says it has.
fn format(text: &str) -> u8 {
    URL_SAFE_NO_PAD.decode(text).unwrap()[0]
}

/// The ledger's key in hexadecimal digits.
async fn key(data: &Data) -> String {
    let column = match data {
        Data::Sqlite(_) => "lower(hex(seal_key))",
        Data::Postgres(_) => "encode(seal_key, 'hex')",
    };
    data.sql(&format!("select {column} from ledger")).await[0][0].clone().unwrap()
}

async fn leads_on(data: &Data) {
    let mut older =
        Server::of(Process::spawn_older(&["serve", "--listen", "127.0.0.1:0", "--store", &data.store()])).await;
    some_runs(&older, ["run-1", "run-2", "run-3"]).await;
    let (_, cursor) = watched(&older, "").await;
    let (first, runs_token) = listed(&older, "", 1).await;
    let (_, events_token) = revisions(&older, "run-2", "").await;
    some_runs(&older, ["run-4", "run-5", "run-6"]).await;
    let (before, _) = listed(&older, "", 100).await;
    older.process.kill();

    let key_made = key(data).await;
    let (code, said) = run(&["migrate", "--store", &data.store()]).await;
    assert!(code == 0 && said.contains(&format!("applied {}", SQLITE.last().unwrap().name)), "{code}: {said}");
    assert!(key_made.len() == 64 && key_made != "0".repeat(64), "a key of 32 bytes");
    let mut newer = Server::start(&data.store()).await;
    newer.is_ready().await;
    assert_eq!(listed(&newer, "", 100).await.0, before, "the runs are as they were");
    let (mut shown, sealed) = watched(&newer, &cursor).await;
    shown.sort();
    let due = [("run-4", 1), ("run-5", 1), ("run-5", 2), ("run-6", 1)].map(|(id, revision)| (id.to_owned(), revision));
    assert_eq!(shown, due, "what happened after the cursor");
    assert_eq!(ids(&first), ["run-3"]);
    let (second, sealed_runs) = listed(&newer, &runs_token, 1).await;
    assert_eq!(ids(&second), ["run-2"]);
    assert_eq!(revisions(&newer, "run-2", &events_token).await, (vec![2], String::new()));

    let (_, sealed_events) = revisions(&newer, "run-2", "").await;
    for (text, of_older) in [(&sealed, &cursor), (&sealed_runs, &runs_token), (&sealed_events, &events_token)] {
        assert_eq!([of_older, text].map(|text| format(text)), [2, 2], "{text} after {of_older}");
    }
    assert_eq!(watched(&newer, &sealed).await, (Vec::new(), sealed), "one text for one place");
    assert_eq!(ids(&listed(&newer, &sealed_runs, 9).await.0), ["run-1"]);
    assert_eq!(revisions(&newer, "run-2", &sealed_events).await.0, [2]);

    let mut said = vec![newer.process.said()];
    for tool in [&["doctor"][..], &["doctor", "--output", "json"], &["export"], &["verify"]] {
        let (code, of_tool) = run(&[tool, &["--store", &data.store()]].concat()).await;
        assert_eq!(code, 0, "{tool:?}: {of_tool}");
        said.push(of_tool);
    }
    newer.process.kill();
    let (code, of_migrate) = run(&["migrate", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{of_migrate}");
    said.push(of_migrate);
    assert_eq!(key(data).await, key_made, "the key stays");
    assert!(said.iter().all(|said| !said.to_lowercase().contains(&key_made[..16])), "the key is shown nowhere");
    data.sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_the_release_before_lead_on_in_its_sqlite_file() {
    let directory = TempDir::new().unwrap();
    leads_on(&Data::Sqlite(directory.path().join("ledger.db"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_the_release_before_lead_on_in_its_postgres() {
    let database = Database::fresh().await;
    leads_on(&Data::Postgres(database.dsn())).await;
}
