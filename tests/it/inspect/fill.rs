//! `runledger bench fill`: whole runs through any servers, as many as were asked for, beside any readers and writers.

use std::collections::BTreeMap;
use std::net::TcpListener;

use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::watch_runs_response::Frame;
use runledger_proto::v1::{CountRunsRequest, ListRunsRequest, RunFilter, WatchRunsRequest};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;

use super::ledger::Ledger;
use super::on_both_stores;
use crate::process::data::Contents;
use crate::process::load::Load;
use crate::process::server::{Client, Process, SOON, Server, eventually, run};

on_both_stores! {
    a_filled_ledger_is_sound_and_lists_and_counts_agree_with_it
    a_watch_resumed_after_a_fill_sees_every_event_of_it
    a_fill_goes_on_where_it_ended_and_another_seed_adds
    a_fill_that_is_stopped_leaves_whole_runs_and_goes_on
    a_read_load_reads_the_runs_of_a_fill_and_writes_none
    a_fill_ends_the_runs_that_a_killed_one_has_begun
}

/// A server that is ready, on a ledger.
async fn served(ledger: &Ledger) -> Server {
    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    server
}

/// Runs a fill to its end, and gives its numbers.
async fn filled(server: &Server, runs: u64, seed: u64) -> BTreeMap<String, f64> {
    let (code, said) = run(&fill(&runs.to_string(), &seed.to_string(), &server.address.to_string())).await;
    assert_eq!(code, 0, "{said}");
    numbers(&said)
}

fn fill<'a>(runs: &'a str, seed: &'a str, server: &'a str) -> [&'a str; 9] {
    ["bench", "fill", runs, "--seed", seed, "--server", server, "--output", "json"]
}

fn numbers(said: &str) -> BTreeMap<String, f64> {
    let report = said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no report: {said}"));
    let report: Value = serde_json::from_str(report).unwrap();
    let numbers = report["numbers"].as_object().unwrap();
    numbers.iter().map(|(name, number)| (name.clone(), number.as_f64().unwrap())).collect()
}

/// Holds it against itself, in two ways that know nothing of each other.
async fn sound(ledger: &Ledger) -> Contents {
    let (code, said) = ledger.run(&["verify"]).await;
    assert_eq!(code, 0, "{said}");
    ledger.data.sound().await
}

async fn a_filled_ledger_is_sound_and_lists_and_counts_agree_with_it(ledger: Ledger) {
    let server = served(&ledger).await;
    let numbers = filled(&server, 1_200, 7).await;
    let contents = sound(&ledger).await;
    assert_eq!((contents.runs.len(), contents.events.len()), (1_200, count(numbers["events"])));
    assert!(contents.runs.values().all(|run| run.status.is_terminal() && run.started_at < run.updated_at));
    assert!(contents.events.iter().any(|event| event.request_id.is_some()), "some calls have request ids");

    let mut client = server.client();
    let mut listed = 0;
    for thread in ["fill-7-large-0", "fill-7-1", "fill-7-999", "fill-7-nobody"] {
        let mut expected: Vec<_> = contents.runs.values().filter(|run| run.task_thread_id == thread).collect();
        expected.sort_by_key(|run| std::cmp::Reverse((run.started_at, run.run_id.clone())));
        let expected: Vec<&str> = expected.into_iter().map(|run| run.run_id.as_str()).collect();
        assert_eq!(list(&mut client, thread).await, expected, "{thread}");
        listed += expected.len();
        let filter = Some(RunFilter { task_thread_id: thread.to_owned(), ..RunFilter::default() });
        let counts = client
            .count_runs(CountRunsRequest { filter, by_phase: false, by_suspension: false })
            .await
            .unwrap()
            .into_inner()
            .counts;
        for status in counts {
            let of_status = |run: &&_| (i32::from(status_of(run)), thread) == (status.status, thread_of(run));
            let expected = contents.runs.values().filter(of_status).count();
            assert_eq!(status.count, u64::try_from(expected).unwrap(), "{thread}");
        }
    }
    assert!(listed > 60, "one run of twenty is of the large thread");
}

fn status_of(run: &runledger::domain::Run) -> i16 {
    run.status.code()
}

fn thread_of(run: &runledger::domain::Run) -> &str {
    &run.task_thread_id
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was counted")]
fn count(number: f64) -> usize {
    number as usize
}

async fn list(client: &mut Client, thread: &str) -> Vec<String> {
    let filter = Some(RunFilter { task_thread_id: thread.to_owned(), ..RunFilter::default() });
    let mut asked = ListRunsRequest { filter, page_size: 60, ..ListRunsRequest::default() };
    let mut found = Vec::new();
    loop {
        let page = client.list_runs(asked.clone()).await.unwrap().into_inner();
        found.extend(page.runs.into_iter().map(|run| run.run_id));
        asked.page_token = page.next_page_token;
        if asked.page_token.is_empty() {
            return found;
        }
    }
}

async fn a_watch_resumed_after_a_fill_sees_every_event_of_it(ledger: Ledger) {
    let server = served(&ledger).await;
    filled(&server, 200, 1).await;
    let asked = WatchRunsRequest { initial: Initial::None.into(), ..WatchRunsRequest::default() };
    let (changes, cursor) = until_caught_up(&mut server.client(), asked).await;
    assert_eq!(changes, Vec::new());
    filled(&server, 300, 2).await;
    drop(server);
    let server = served(&ledger).await;
    let asked = WatchRunsRequest { cursor, ..WatchRunsRequest::default() };
    let (mut changes, _) = until_caught_up(&mut server.client(), asked).await;
    let contents = ledger.data.sound().await;
    let mut of_the_second: Vec<_> =
        contents.events.iter().map(|event| (event.key.run_id.to_string(), event.revision.get())).collect();
    of_the_second.retain(|(run_id, _)| run_id.starts_with("fill-2-"));
    of_the_second.sort();
    changes.sort();
    assert_eq!(changes, of_the_second);
}

/// The changes up to `caught_up`, and its cursor.
async fn until_caught_up(client: &mut Client, asked: WatchRunsRequest) -> (Vec<(String, u64)>, String) {
    let mut stream = client.watch_runs(asked).await.unwrap().into_inner();
    let mut changes = Vec::new();
    loop {
        match timeout(SOON, stream.message()).await.unwrap().unwrap().unwrap().frame.unwrap() {
            Frame::Change(change) => {
                let event = change.event.unwrap();
                changes.push((event.run_id, event.revision));
            }
            Frame::CaughtUp(caught_up) => return (changes, caught_up.cursor),
            Frame::Snapshot(_) | Frame::Checkpoint(_) => panic!("nothing else was asked for"),
        }
    }
}

async fn a_fill_goes_on_where_it_ended_and_another_seed_adds(ledger: Ledger) {
    let server = served(&ledger).await;
    for (runs, seed, there, written) in
        [(140, 7, 0, 140), (200, 7, 140, 60), (200, 7, 200, 0), (180, 7, 180, 0), (40, 77, 0, 40)]
    {
        let numbers = filled(&server, runs, seed).await;
        assert_eq!((count(numbers["runs_there_before"]), count(numbers["runs"])), (there, written), "{runs} {seed}");
    }
    let contents = sound(&ledger).await;
    assert_eq!(contents.runs.len(), 240);
    let at_once = ["0000000001", "0000000140", "0000000141", "0000000200"];
    assert!(at_once.iter().all(|number| contents.run(&format!("fill-7-{number}")).is_some()));
}

async fn a_read_load_reads_the_runs_of_a_fill_and_writes_none(ledger: Ledger) {
    let server = served(&ledger).await;
    filled(&server, 50, 7).await;
    let address = server.address.to_string();
    let read = |runs: &'static str| {
        let words = ["bench", "read", "--filled", runs, "--fill-seed", "7", "--seconds", "1", "--warm-up", "0"];
        let words: Vec<&str> = words.into_iter().chain(["--server", &address, "--output", "json"]).collect();
        async move { run(&words).await }
    };
    let (code, said) = read("50").await;
    assert_eq!(code, 0, "{said}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert!(report["delays_ms"]["get"]["count"].as_u64().unwrap() > 0, "{said}");
    assert_eq!(sound(&ledger).await.runs.len(), 50);
    // More than there are: some are not found.
    let (code, said) = read("100000").await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("does not exist"), "{said}");
}

/// A large fill that has begun to write.
async fn at_work(ledger: &Ledger, server: &Server) -> Process {
    let process = Process::spawn(&fill("400000", "7", &server.address.to_string()));
    let begun = eventually(SOON * 2, async || {
        (!ledger.data.sql("select run_id from runs where status > 2 limit 1").await.is_empty()).then_some(())
    });
    begun.await.unwrap_or_else(|| panic!("nothing was written: {}", process.said()));
    process
}

async fn a_fill_that_is_stopped_leaves_whole_runs_and_goes_on(ledger: Ledger) {
    let server = served(&ledger).await;
    let mut process = at_work(&ledger, &server).await;
    process.signal("INT");
    let (code, said) = process.exited(SOON).await;
    assert_eq!(code, 130, "{said}");
    let written = count(numbers(&said)["runs"]);
    let contents = sound(&ledger).await;
    assert_eq!(contents.runs.len(), written);
    assert!(contents.runs.values().all(|run| run.status.is_terminal()));
    goes_on(&ledger, &server).await;
}

async fn a_fill_ends_the_runs_that_a_killed_one_has_begun(ledger: Ledger) {
    let mut server = served(&ledger).await;
    at_work(&ledger, &server).await.kill();
    // A call that was under way may be applied after its caller is gone: none is once the server has ended.
    server.process.signal("TERM");
    let (code, said) = server.process.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    goes_on(&ledger, &served(&ledger).await).await;
}

/// The same fill ends what was begun, and leaves no number out.
async fn goes_on(ledger: &Ledger, server: &Server) {
    let there = ledger.data.sql("select max(run_id) from runs").await;
    let last: u64 = there[0][0].as_ref().unwrap().rsplit('-').next().unwrap().parse().unwrap();
    filled(server, last + 10, 7).await;
    let contents = sound(ledger).await;
    assert!(contents.runs.values().all(|run| run.status.is_terminal()));
    let there = ledger.data.sql("select count(*), max(run_id) from runs").await;
    let last = last + 10;
    assert_eq!(there, [[Some(last.to_string()), Some(format!("fill-7-{last:010}"))]], "every number is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_go_on_beside_a_fill_and_nothing_of_either_is_lost() {
    let ledger = Ledger::postgres().await;
    let server = served(&ledger).await;
    let (_servers, targets) = watch::channel(vec![server.address]);
    let mut load = Load::start("run", 8, &targets);
    load.progresses(50).await;
    let mut process = Process::spawn(&fill("500", "7", &server.address.to_string()));
    load.progresses(100).await;
    let (code, said) = process.exited(SOON * 3).await;
    assert_eq!(code, 0, "{said}");
    load.progresses(50).await;
    let calls = load.finish().await;
    let mut contents = sound(&ledger).await;
    let of_the_fill = |run_id: &str| run_id.starts_with("fill-");
    assert_eq!(contents.runs.keys().filter(|key| of_the_fill(&key.run_id)).count(), 500);
    contents.events.retain(|event| !of_the_fill(&event.key.run_id));
    contents.agree_with(&calls);
}

/// What a command line says of servers, and what the environment does.
type Told<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_no_command_line_names_is_not_filled() {
    let home = TempDir::new().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let contexts = format!("current = \"in-use\"\n[contexts.in-use]\nserver = [\"{free}\"]\n[contexts.bare]\n");
    std::fs::create_dir(home.path().join("runledger")).unwrap();
    std::fs::write(home.path().join("runledger/contexts.toml"), contexts).unwrap();
    let home = ("XDG_CONFIG_HOME", home.path().to_str().unwrap());
    let (server, context) = (("RUNLEDGER_SERVER", &*free), ("RUNLEDGER_CONTEXT", "in-use"));
    let fill = async |more: &[&str], environment: &[(&str, &str)]| {
        Process::spawn_with(&[&["bench", "fill", "10"], more].concat(), environment).exited(SOON).await
    };
    let by_others: [Told<'_>; 6] = [
        (&[], &[]),
        (&[], &[server]),
        (&[], &[home]),
        (&[], &[home, context]),
        (&["--context", "none"], &[home, server]),
        (&["--context", "bare"], &[home, server]),
    ];
    for (more, environment) in by_others {
        let (code, said) = fill(more, environment).await;
        assert!(code == 2 && said.contains("name the servers by --server"), "{more:?} {environment:?}: {code}: {said}");
    }
    for (more, environment) in [(["--server", &free], [context, home]), (["--context", "in-use"], [context, home])] {
        let (code, said) = fill(&more, &environment).await;
        assert!(code == 3 && said.contains(&free), "{more:?}: nobody listens there: {code}: {said}");
    }
}
