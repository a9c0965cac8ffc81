//! A failover that loses commits: what was given out before leads nowhere, and who watches is told.

use std::collections::BTreeSet;
use std::time::Duration;

use prost_types::Duration as WireDuration;
use runledger_proto::v1::watch_run_response::Frame as RunFrame;
use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::watch_runs_response::Frame;
use runledger_proto::v1::{
    ClaimRunRequest, HeartbeatRunRequest, ListRunsRequest, RunStatus, WaitRunRequest, WaitRunResponse, WatchRunRequest,
    WatchRunResponse, WatchRunsRequest, WatchRunsResponse,
};
use tempfile::TempDir;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::timeout;
use tonic::{Code, Response, Status, Streaming};

use super::calls::{Step, ask, reason};
use super::data::Data;
use super::oracle::cursor_of;
use super::server::{Client, Process, SOON, Server, eventually, run};
use crate::inspect::broken::names;
use crate::support::postgres::{Cluster, Database, direct, rounds};
use crate::support::proxy::Proxy;

/// Events that are acknowledged and lost, at least, and as many as are written afterwards at the least.
const LOST: usize = 30;

/// A server that takes over may have to be found first.
const TAKEN_OVER: Duration = Duration::from_mins(1);

async fn watch_runs(
    client: &mut Client,
    initial: Initial,
    cursor: &str,
) -> Result<Streaming<WatchRunsResponse>, Status> {
    let asked = WatchRunsRequest { initial: initial.into(), cursor: cursor.to_owned(), ..WatchRunsRequest::default() };
    Ok(client.watch_runs(asked).await?.into_inner())
}

async fn watch_run(
    client: &mut Client,
    run_id: &str,
    after_revision: Option<u64>,
    ledger_epoch: Option<u64>,
) -> Result<Streaming<WatchRunResponse>, Status> {
    let asked = WatchRunRequest { run_id: run_id.to_owned(), after_revision, ledger_epoch };
    Ok(client.watch_run(asked).await?.into_inner())
}

async fn next<F>(frames: &mut Streaming<F>) -> Result<F, Status> {
    timeout(TAKEN_OVER, frames.message()).await.expect("a frame in time").map(|frame| frame.expect("no end"))
}

/// Reads until the watch ends: why.
async fn end<F>(frames: &mut Streaming<F>) -> (Code, String) {
    loop {
        if let Err(status) = next(frames).await {
            return (status.code(), reason(&status));
        }
    }
}

async fn is_refused<F>(begun: Result<Streaming<F>, Status>) -> (Code, String) {
    match begun {
        Err(status) => (status.code(), reason(&status)),
        Ok(mut frames) => end(&mut frames).await,
    }
}

fn cursor_is_invalid() -> (Code, String) {
    (Code::InvalidArgument, "CURSOR_INVALID".to_owned())
}

fn is_restored() -> (Code, String) {
    (Code::OutOfRange, "LEDGER_RESTORED".to_owned())
}

/// Asks again for as long as no replica serves.
async fn write(client: &mut Client, run_id: &str, step: Step) -> u64 {
    let written = eventually(TAKEN_OVER, async || match ask(client, run_id, step, "").await {
        Ok((_, made, _)) => Some(made),
        Err(status) if [Code::Unavailable, Code::Unknown].contains(&status.code()) => None,
        Err(status) => panic!("{run_id} {step:?}: {status:?}"),
    });
    written.await.expect("it is written in time")
}

async fn number(dsn: &str, statement: &str) -> i64 {
    direct(dsn).await.query_one(statement, &[]).await.unwrap().get(0)
}

async fn epoch(dsn: &str) -> i64 {
    number(dsn, "select epoch from ledger").await
}

/// The runs of a fresh watch, each with the last revision that it showed, up to the moment when it began.
async fn seen_by_a_fresh_watch(client: &mut Client) -> BTreeSet<(String, u64)> {
    let mut frames = watch_runs(client, Initial::All, "").await.unwrap();
    let mut seen = BTreeSet::new();
    loop {
        match next(&mut frames).await.unwrap().frame.unwrap() {
            Frame::Snapshot(snapshot) => {
                let run = snapshot.run.unwrap();
                seen.insert((run.run_id, run.revision));
            }
            Frame::CaughtUp(_) => return seen,
            Frame::Checkpoint(_) => {}
            Frame::Change(change) => panic!("nothing happens: {change:?}"),
        }
    }
}

async fn all_runs(client: &mut Client) -> BTreeSet<(String, u64)> {
    let asked = ListRunsRequest { page_size: 1000, ..ListRunsRequest::default() };
    let answer = client.list_runs(asked).await.unwrap().into_inner();
    assert_eq!(answer.next_page_token, "");
    answer.runs.into_iter().map(|run| (run.run_id, run.revision)).collect()
}

fn lines(process: &Process, holds: &str) -> usize {
    process.said().lines().filter(|line| line.contains(holds)).count()
}

async fn holds(dsn: &str, events: i64) {
    let replayed =
        eventually(SOON, async || (number(dsn, "select count(*) from run_events").await >= events).then_some(()));
    replayed.await.expect("the standby has followed");
}

/// Two replicas on a primary, and its standby.
struct Scene {
    primary: Cluster,
    standby: Cluster,
    proxy: Proxy,
    store: String,
    servers: [Server; 2],
}

impl Scene {
    async fn start() -> Self {
        let primary = block_in_place(|| Cluster::start(&[]));
        let standby = block_in_place(|| primary.standby());
        let proxy = Proxy::start(&primary.dsn()).await;
        let store = proxy.in_front_of(&primary.dsn());
        let servers = [Server::start(&store).await, Server::start(&store).await];
        for server in &servers {
            server.is_ready().await;
        }
        Self { primary, standby, proxy, store, servers }
    }

    fn client(&self, replica: usize) -> Client {
        self.servers[replica % 2].client()
    }

    /// Runs that the standby has as well.
    async fn fill(&self) {
        for run_id in ["kept", "waited", "old"] {
            write(&mut self.client(0), run_id, Step::Start).await;
        }
        for run_id in ["held", "lost"] {
            write(&mut self.client(0), run_id, Step::Defer).await;
        }
        self.client(0).claim_run(claim("held")).await.unwrap();
        holds(&self.standby.dsn(), 6).await;
    }

    /// The standby hears no more, and the primary acknowledges.
    async fn part(&self) {
        let standby = direct(&self.standby.dsn()).await;
        standby.batch_execute("alter system set primary_conninfo = ''").await.unwrap();
        standby.batch_execute("select pg_reload_conf()").await.unwrap();
        let followers = "select count(*) from pg_stat_replication";
        let cut = eventually(SOON, async || (number(&self.primary.dsn(), followers).await == 0).then_some(()));
        cut.await.expect("it is cut off");
        assert_eq!(write(&mut self.client(0), "kept", Step::Update(0)).await, 2);
        self.client(0).claim_run(claim("lost")).await.unwrap();
        for lost in 0..LOST {
            write(&mut self.client(lost), &format!("lost-{lost}"), Step::Start).await;
        }
    }

    async fn fail_over(&mut self) {
        block_in_place(|| self.primary.kill());
        direct(&self.standby.dsn()).await.query_one("select pg_promote(true, 60)", &[]).await.unwrap();
        self.proxy.lead_to(&self.standby.dsn());
    }

    /// The cursor is refused by both replicas.
    async fn refuses(&self, cursor: &str) {
        for replica in 0..2 {
            let begun = watch_runs(&mut self.client(replica), Initial::None, cursor).await;
            assert_eq!(is_refused(begun).await, cursor_is_invalid());
        }
    }

    /// Checks that each server, `doctor` and `verify` report the failover.
    async fn says_so(&self) {
        for server in &self.servers {
            assert_eq!(lines(&server.process, "acknowledged calls may be lost"), 1, "it is said once");
        }
        for command in ["doctor", "verify"] {
            let (code, said) = run(&[command, "--store", &self.standby.dsn()]).await;
            assert_eq!((code, said.contains("restored or failed over, last in 20")), (0, true), "{said}");
        }
        Data::Postgres(self.standby.dsn()).sound().await;
    }
}

fn claim(run_id: &str) -> ClaimRunRequest {
    let lease_ttl = Some(WireDuration { seconds: 600, nanos: 0 });
    ClaimRunRequest { run_id: run_id.to_owned(), lease_ttl, ..ClaimRunRequest::default() }
}

fn beat(run_id: &str) -> HeartbeatRunRequest {
    HeartbeatRunRequest { run_id: run_id.to_owned(), lease_epoch: 1, ..HeartbeatRunRequest::default() }
}

/// The clients and commands that watch.
struct Watchers {
    /// The watches of all runs, and of one.
    many: Streaming<WatchRunsResponse>,
    one: Streaming<WatchRunResponse>,
    /// The cursor from before the standby was left behind.
    kept: String,
    command: Process,
    export: Process,
    directory: TempDir,
    waits: JoinSet<Result<Response<WaitRunResponse>, Status>>,
}

impl Watchers {
    async fn start(scene: &Scene) -> Self {
        let mut client = scene.client(0);
        let (many, kept) = live(&mut client).await;
        let mut one = watch_run(&mut client, "kept", Some(1), None).await.unwrap();
        assert!(matches!(next(&mut one).await.unwrap().frame, Some(RunFrame::CaughtUp(_))));
        let server = scene.servers[0].address.to_string();
        let asked = ["run", "watch", "kept", "--output", "json"];
        let command = Process::spawn_with(&asked, &[("RUNLEDGER_SERVER", &server)]);
        command.says("caughtUp").await;
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("lifecycle.jsonl");
        let follow = ["export", "--follow", "--store", &scene.store, "--output"];
        let export = Process::spawn(&[&follow[..], &[file.to_str().unwrap()]].concat());
        let timeout = Some(WireDuration { seconds: 300, nanos: 0 });
        let mut waits = JoinSet::new();
        waits.spawn(
            async move { client.wait_run(WaitRunRequest { run_id: "waited".to_owned(), timeout, until: 0 }).await },
        );
        let watchers = Self { many, one, kept, command, export, directory, waits };
        watchers.export_comes_to("old").await;
        watchers
    }

    /// The number of times that the export has this run.
    fn exported(&self, run_id: &str) -> usize {
        let text = std::fs::read_to_string(self.directory.path().join("lifecycle.jsonl")).unwrap_or_default();
        text.lines().filter(|line| line.contains(&format!("\"runId\":\"{run_id}\""))).count()
    }

    async fn export_comes_to(&self, run_id: &str) {
        let written = eventually(SOON, async || (self.exported(run_id) == 1).then_some(())).await;
        written.unwrap_or_else(|| panic!("it follows to {run_id}: {}", self.export.said()));
    }

    /// Waits until the watchers have seen the events that will be lost. Returns the last cursor.
    async fn see_what_will_be_lost(&mut self) -> String {
        let mut cursor = String::new();
        for _ in 0..LOST + 2 {
            cursor_of(&next(&mut self.many).await.unwrap().frame.unwrap()).clone_into(&mut cursor);
        }
        is_second_revision(&next(&mut self.one).await.unwrap());
        self.command.says("workflow-0").await;
        self.export_comes_to(&format!("lost-{}", LOST - 1)).await;
        cursor
    }

    /// Waits until the watchers are told of the loss, and the commands begin again by themselves.
    async fn are_told(&mut self) {
        assert_eq!(end(&mut self.many).await, cursor_is_invalid());
        assert_eq!(end(&mut self.one).await, is_restored());
        self.command.says("the ledger was restored or failed over").await;
        let snapshots = eventually(SOON, async || (lines(&self.command, "\"snapshot\"") == 2).then_some(())).await;
        snapshots.unwrap_or_else(|| panic!("it begins again:\n{}", self.command.said()));
    }

    /// The export has the lost ones and all of the new.
    async fn export_goes_on(&self) {
        self.export.says("the ledger was restored or failed over").await;
        self.export_comes_to(&format!("new-{}", LOST * 3 - 1)).await;
        assert!((0..LOST * 3).all(|new| self.exported(&format!("new-{new}")) == 1), "each of the new is there once");
        assert!(self.exported("kept") >= 3, "the first revision, and both second ones");
        assert_eq!(lines(&self.export, "the ledger was restored or failed over"), 1, "it is said once");
    }
}

fn is_second_revision(frame: &WatchRunResponse) {
    assert!(
        matches!(&frame.frame, Some(RunFrame::Change(change)) if change.run.as_ref().unwrap().revision == 2),
        "{frame:?}"
    );
}

/// From a primary and a standby that has everything, to a standby that has not, to the standby alone.
async fn a_failover() {
    let mut scene = Scene::start().await;
    let (code, said) = run(&["doctor", "--store", &scene.primary.dsn()]).await;
    assert_eq!(code, 0, "{said}");
    for wanted in ["HEALTHY", "WARNING  No commit waits for a standby (standby)", "synchronous_standby_names"] {
        assert!(said.contains(wanted), "{wanted:?} is not in:\n{said}");
    }
    let (_, said) = run(&["doctor", "--store", &scene.primary.dsn(), "--output", "json"]).await;
    assert_eq!(names(&said, "warnings"), ["no_synchronous_standby"], "{said}");
    scene.fill().await;
    let mut watchers = Watchers::start(&scene).await;
    scene.part().await;
    let old = watchers.see_what_will_be_lost().await;
    scene.fail_over().await;
    watchers.are_told().await;
    scene.refuses(&old).await;
    assert_eq!(write(&mut scene.client(0), "kept", Step::Update(1)).await, 2, "it is the second revision 2");
    watchers.command.says("workflow-1").await;

    // New writes pass the old positions in every shard, and the old cursors lead nowhere all the same.
    for new in 0..LOST * 3 {
        write(&mut scene.client(new), &format!("new-{new}"), Step::Start).await;
    }
    scene.refuses(&old).await;
    scene.refuses(&watchers.kept).await;
    let all = all_runs(&mut scene.client(0)).await;
    assert_eq!(all.len(), 5 + LOST * 3);
    let raised = u64::try_from(epoch(&scene.standby.dsn()).await).unwrap();
    assert!(raised > 400_000, "the minutes since 2026: {raised}");
    for replica in 0..2 {
        let mut client = scene.client(replica);
        assert_eq!(is_refused(watch_run(&mut client, "kept", Some(2), Some(0)).await).await, is_restored());
        let anew = next(&mut watch_run(&mut client, "kept", Some(1), Some(raised)).await.unwrap()).await.unwrap();
        is_second_revision(&anew);
        assert_eq!(anew.ledger_epoch, raised, "two replicas raise it once");
        assert_eq!(seen_by_a_fresh_watch(&mut client).await, all);
    }
    watchers.export_goes_on().await;

    // The lease that the standby knew of is held, and the other one was lost.
    scene.client(0).heartbeat_run(beat("held")).await.unwrap();
    let refused = scene.client(0).heartbeat_run(beat("lost")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    // A claimer gets an epoch now that no lost claim was granted, so that the lost holder stays out.
    let claimed = scene.client(1).claim_run(claim("lost")).await.unwrap().into_inner();
    let granted = claimed.run.unwrap().lease.unwrap().epoch;
    assert!(granted > 1 && granted < 1 << 53, "the lost holder has epoch 1, and it is a number in every language");
    let refused = scene.client(0).heartbeat_run(beat("lost")).await.unwrap_err();
    assert_eq!(reason(&refused), "LEASE_LOST");
    // The caller that waited waits on.
    assert!(watchers.waits.try_join_next().is_none(), "the run has not ended");
    write(&mut scene.client(1), "waited", Step::Complete).await;
    let answer = timeout(SOON, watchers.waits.join_next()).await.expect("it is told").unwrap().unwrap();
    let WaitRunResponse { run, timed_out } = answer.unwrap().into_inner();
    assert_eq!((timed_out, run.unwrap().status()), (false, RunStatus::Completed));
    scene.says_so().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_loses_commits_is_told_to_all_who_saw_them() {
    for _ in 0..rounds() {
        a_failover().await;
    }
}

/// A live watch, and the cursor of its caught-up.
async fn live(client: &mut Client) -> (Streaming<WatchRunsResponse>, String) {
    let mut frames = watch_runs(client, Initial::None, "").await.unwrap();
    let cursor = cursor_of(&next(&mut frames).await.unwrap().frame.unwrap()).to_owned();
    (frames, cursor)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_fell_raises_the_epoch_also_on_the_same_timeline() {
    let database = Database::fresh().await;
    let (server, other) = (Server::start(&database.dsn()).await, Server::start(&database.dsn()).await);
    server.is_ready().await;
    other.is_ready().await;
    let (mut client, mut others) = (server.client(), other.client());
    write(&mut client, "kept", Step::Start).await;
    let (mut frames, cursor) = live(&mut client).await;
    let (mut other_frames, _) = live(&mut others).await;
    write(&mut client, "lost", Step::Start).await;
    for frames in [&mut frames, &mut other_frames] {
        assert!(matches!(next(frames).await.unwrap().frame, Some(Frame::Change(_))));
    }
    let lose = "begin;
        delete from run_events where run_id = 'lost'; delete from runs where run_id = 'lost';
        delete from active where run_id = 'lost';
        commit;
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()";
    direct(&database.dsn()).await.batch_execute(lose).await.unwrap();
    for frames in [&mut frames, &mut other_frames] {
        assert_eq!(end(frames).await, cursor_is_invalid());
    }
    write(&mut client, "lost", Step::Start).await;
    for client in [&mut client, &mut others] {
        assert_eq!(is_refused(watch_runs(client, Initial::None, &cursor).await).await, cursor_is_invalid());
    }
    for server in [&server, &other] {
        assert_eq!(lines(&server.process, "acknowledged calls may be lost"), 1, "it is raised once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_that_see_another_server_raise_the_epoch_once() {
    let database = Database::fresh().await;
    let (server, other) = (Server::start(&database.dsn()).await, Server::start(&database.dsn()).await);
    server.is_ready().await;
    other.is_ready().await;
    let named = "select count(*) from ledger where system_identifier is not null and timeline > 0";
    assert_eq!(number(&database.dsn(), named).await, 1, "the ledger names its server");
    let mut before = 0;
    for _ in 0..5 {
        let mut watches = [live(&mut server.client()).await.0, live(&mut other.client()).await.0];
        // No replica has a new session: the look of every second sees the change.
        let elsewhere = "update ledger set timeline = timeline + 1";
        direct(&database.dsn()).await.batch_execute(elsewhere).await.unwrap();
        for frames in &mut watches {
            assert_eq!(end(frames).await, cursor_is_invalid());
        }
        let raised = epoch(&database.dsn()).await;
        assert!(raised > before, "{raised} after {before}");
        before = raised;
    }
    for server in [&server, &other] {
        assert_eq!(lines(&server.process, "acknowledged calls may be lost"), 5, "once in each round");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_while_no_server_ran_is_seen_when_one_starts() {
    let database = Database::fresh().await;
    let mut server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let (_, cursor) = live(&mut server.client()).await;
    server.process.kill();
    let elsewhere = "update ledger set system_identifier = '7'";
    direct(&database.dsn()).await.batch_execute(elsewhere).await.unwrap();
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    assert!(epoch(&database.dsn()).await > 0);
    let refused = is_refused(watch_runs(&mut server.client(), Initial::None, &cursor).await).await;
    assert_eq!(refused, cursor_is_invalid());
    assert_eq!(lines(&server.process, "acknowledged calls may be lost"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_may_not_see_the_system_identifier_is_served() {
    let database = Database::fresh().await;
    let admin = direct(&database.dsn()).await;
    let role = format!("role_{}", database.name());
    let made = format!(
        "create role {role} login password 'x'; alter database {} owner to {role}; alter schema public owner to {role};
         revoke execute on function pg_control_system() from public",
        database.name()
    );
    admin.batch_execute(&made).await.unwrap();
    let config: tokio_postgres::Config = database.dsn().parse().unwrap();
    let store = format!("postgres://{role}:x@127.0.0.1:{}/{}", config.get_ports()[0], database.name());
    let server = Server::start(&store).await;
    server.is_ready().await;
    write(&mut server.client(), "run", Step::Start).await;
    let named = "select count(*) from ledger where system_identifier is null and timeline > 0";
    assert_eq!(number(&database.dsn(), named).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_could_not_note_a_failover_is_told_so_before_it_serves() {
    let database = Database::fresh().await;
    let mut server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    server.process.kill();
    let admin = direct(&database.dsn()).await;
    let role = format!("role_{}", database.name());
    let made = format!(
        "create role {role} login password 'x';
         grant select, insert, update, delete on all tables in schema public to {role};
         revoke update on ledger from {role};
         update ledger set timeline = null"
    );
    admin.batch_execute(&made).await.unwrap();
    let config: tokio_postgres::Config = database.dsn().parse().unwrap();
    let store = format!("postgres://{role}:x@127.0.0.1:{}/{}", config.get_ports()[0], database.name());
    let (code, said) = Process::spawn(&["serve", "--listen", "127.0.0.1:0", "--store", &store]).exited(SOON).await;
    assert!(code == 1 && said.contains(&format!("GRANT UPDATE ON ledger TO {role}\n")), "{said}");
    admin.batch_execute(&format!("grant update on ledger to {role}")).await.unwrap();
    let server = Server::start(&store).await;
    server.is_ready().await;
    write(&mut server.client(), "run", Step::Start).await;
}
