//! The six guarantees of a watch of all runs, held against everything that happened: under many writers, over cuts,
//! slowness, kills and outages.

use std::net::SocketAddr;
use std::time::Duration;

use runledger_proto::v1::RunStatus;
use runledger_proto::v1::watch_runs_request::Initial;
use tempfile::TempDir;
use tokio::sync::{OnceCell, watch};
use tokio::task::block_in_place;
use tokio::time::Instant;

use super::data::Data;
use super::firehose::{Firehose, Plan, Shown, last_calls};
use super::load::{Load, Targets};
use super::oracle::{Oracle, grammar};
use super::server::Server;
use crate::support::postgres::{Cluster, Database};

const WRITERS: usize = 16;

/// All events, and the frames that each watcher was shown.
#[derive(Debug)]
struct Record {
    oracle: Oracle,
    watches: Vec<Shown>,
}

impl Record {
    fn every_watch(&self, holds: impl Fn(&Oracle, &Shown)) {
        self.watches.iter().for_each(|shown| holds(&self.oracle, shown));
    }
}

/// Servers over one database, writers on all of them, and watchers.
struct Trial {
    data: Data,
    servers: Vec<Server>,
    addresses: watch::Sender<Vec<SocketAddr>>,
    targets: Targets,
    load: Load,
    watches: Vec<Firehose>,
}

impl Trial {
    /// Watchers with all kinds of filters, from the first event on; and then writers.
    async fn start(data: Data, servers: usize, args: &[&str]) -> Self {
        let mut trial = Self::open(data, servers, args).await;
        trial.watch(plans(Initial::None)).await;
        trial.load = Load::start("run", WRITERS, &trial.targets);
        trial
    }

    /// Servers without callers yet.
    async fn open(data: Data, servers: usize, args: &[&str]) -> Self {
        let store = data.store();
        let args = [&["--store", &store], args].concat();
        let mut started = Vec::new();
        for _ in 0..servers {
            let server = Server::start_with(&args).await;
            server.is_ready().await;
            started.push(server);
        }
        let (addresses, targets) = watch::channel(started.iter().map(|server| server.address).collect());
        let load = Load::start("run", 0, &targets);
        Self { data, servers: started, addresses, targets, load, watches: Vec::new() }
    }

    async fn watch(&mut self, plans: impl IntoIterator<Item = Plan>) {
        for plan in plans {
            self.watches.push(Firehose::start(plan, &self.targets).await);
        }
    }

    /// Kills a server, leaves the others alone for a while, and starts it again.
    async fn kill(&mut self, index: usize) {
        self.servers[index].process.kill();
        if self.servers.len() > 1 {
            self.load.progresses(50).await;
        }
        self.servers[index] = Server::start(&self.data.store()).await;
        self.addresses.send_replace(self.servers.iter().map(|server| server.address).collect());
    }

    /// Lets the writers end, and every watcher see the last event.
    async fn end(self) -> Record {
        let mut calls = self.load.finish().await;
        calls.extend(last_calls(self.servers[0].address).await);
        let mut watches = Vec::new();
        for watch in self.watches {
            watches.push(watch.shown().await);
        }
        let oracle = Oracle::read(&self.data, &calls).await;
        Record { oracle, watches }
    }
}

/// One of each kind of filter.
fn plans(initial: Initial) -> [Plan; 4] {
    [
        Plan::all(initial),
        Plan::of_status(RunStatus::Running, initial),
        Plan::of_status(RunStatus::Completed, initial),
        Plan::of_workflow(initial),
    ]
}

/// Watchers that are there from the beginning, and such that come later.
async fn watched(data: Data, servers: usize) -> Record {
    let mut trial = Trial::start(data, servers, &[]).await;
    trial.load.progresses(500).await;
    trial.watch([Plan::all(Initial::None), Plan::of_workflow(Initial::None)]).await;
    trial.watch(plans(Initial::Active)).await;
    trial.watch(plans(Initial::All)).await;
    trial.load.progresses(500).await;
    trial.end().await
}

async fn on_sqlite() -> &'static Record {
    static RECORD: OnceCell<Record> = OnceCell::const_new();
    let record = RECORD.get_or_init(async || {
        let directory = TempDir::new().unwrap();
        watched(Data::Sqlite(directory.path().join("ledger.db")), 1).await
    });
    record.await
}

async fn on_replicas() -> &'static Record {
    static RECORD: OnceCell<Record> = OnceCell::const_new();
    let record = RECORD.get_or_init(async || {
        let database = Database::fresh().await;
        watched(Data::Postgres(database.dsn()), 2).await
    });
    record.await
}

/// Makes a test of each guarantee, on what was recorded on one server and on two replicas.
macro_rules! guarantees {
    ($($name:ident: $guarantee:expr;)*) => {
        mod sqlite {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                on_sqlite().await.every_watch($guarantee);
            })*
        }
        mod replicas {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                on_replicas().await.every_watch($guarantee);
            })*
        }
    };
}

guarantees! {
    the_grammar_is_kept: |_, shown| grammar(shown);
    ordered: Oracle::ordered;
    unique: Oracle::unique;
    atomic: Oracle::atomic;
    reliable: Oracle::reliable;
    resumable: Oracle::resumable;
    bookmarkable: Oracle::bookmarkable;
}

/// Cut at random, in the first view too, and resumed at random servers.
async fn cut(data: Data, servers: usize) {
    let mut trial = Trial::start(data, servers, &[]).await;
    trial.load.progresses(1_000).await;
    trial.watch([Plan::all(Initial::All).cut(120, 1), Plan::of_workflow(Initial::All).cut(60, 2)]).await;
    trial
        .watch([Plan::all(Initial::Active).cut(20, 3), Plan::of_status(RunStatus::Running, Initial::Active).cut(20, 4)])
        .await;
    trial.watch([Plan::all(Initial::None).cut(100, 5)]).await;
    trial.load.progresses(500).await;
    let record = trial.end().await;
    record.every_watch(Oracle::all_hold);
    let cut = || record.watches.iter().filter(|shown| shown.plan.cut.is_some());
    assert!(cut().all(|shown| shown.streams.len() >= 3), "each was cut");
    let in_view: usize = cut().map(Shown::cuts_of_the_view).sum();
    assert!(in_view >= 4, "only {in_view} cuts of first views");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_cut_at_random_equals_an_uncut_one_on_sqlite() {
    let directory = TempDir::new().unwrap();
    cut(Data::Sqlite(directory.path().join("ledger.db")), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_cut_at_random_and_resumed_at_random_replicas_equals_an_uncut_one() {
    let database = Database::fresh().await;
    cut(Data::Postgres(database.dsn()), 2).await;
}

/// Bytes of changes that the server keeps for watches that are a little behind.
const RING_BYTES: usize = 32 * 1024 * 1024;

/// While it takes a frame a second, more is written than the server and everything on the way to the reader hold.
async fn slow(data: Data, servers: usize) {
    let mut trial = Trial::open(data, servers, &[]).await;
    let begun = Instant::now();
    trial.watch([Plan::all(Initial::None), Plan { slow: true, ..Plan::all(Initial::None) }]).await;
    trial.load = Load::heavy(8, &trial.targets);
    trial.load.progresses(900).await;
    trial.watches[0].progresses(1).await;
    let hurried = Instant::now();
    trial.watches[1].hurry();
    let record = trial.end().await;
    record.every_watch(Oracle::all_hold);
    let [fast, slow] = [0, 1].map(|watch| record.watches[watch].bytes_until(hurried));
    let seconds = (hurried - begun).as_secs();
    assert!(slow.0 as u64 <= seconds + 2, "a frame a second: {} in {seconds} s", slow.0);
    assert!(fast.1 - slow.1 > RING_BYTES + RING_BYTES / 4, "it was {} bytes behind", fast.1 - slow.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_takes_a_frame_a_second_goes_back_to_history_on_sqlite() {
    let directory = TempDir::new().unwrap();
    slow(Data::Sqlite(directory.path().join("ledger.db")), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_takes_a_frame_a_second_goes_back_to_history_on_replicas() {
    let database = Database::fresh().await;
    slow(Data::Postgres(database.dsn()), 2).await;
}

/// The server, or one of two, is killed under load.
async fn killed(data: Data, servers: usize) {
    let mut trial = Trial::start(data, servers, &[]).await;
    for kill in 0..3 {
        trial.load.progresses(200).await;
        trial.watch([Plan::all(Initial::Active).cut(200, kill), Plan::all(Initial::All)]).await;
        trial.kill(0).await;
    }
    trial.load.progresses(100).await;
    let record = trial.end().await;
    record.every_watch(Oracle::all_hold);
    let ends: usize = record.watches.iter().map(|shown| shown.ends.len()).sum();
    assert!(ends >= 3, "the kills cut watches: {ends}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_costs_no_watch_anything_on_sqlite() {
    let directory = TempDir::new().unwrap();
    killed(Data::Sqlite(directory.path().join("ledger.db")), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_replicas_that_is_killed_costs_no_watch_anything() {
    let database = Database::fresh().await;
    killed(Data::Postgres(database.dsn()), 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_killed_costs_no_watch_anything() {
    let mut cluster = block_in_place(|| Cluster::start(&[]));
    let mut trial = Trial::start(Data::Postgres(cluster.dsn()), 2, &[]).await;
    for kill in 0..2 {
        trial.load.progresses(150).await;
        trial.watch([Plan::all(Initial::Active).cut(200, kill), Plan::all(Initial::All)]).await;
        block_in_place(|| {
            cluster.kill();
            cluster.restart();
        });
    }
    trial.load.progresses(150).await;
    trial.end().await.every_watch(Oracle::all_hold);
}

/// Long enough for a poll, a page, and a machine that is busy with other tests.
const POLLED_DELAY_MAX: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_do_not_notify_each_other_lose_nothing_and_are_a_little_later() {
    let database = Database::fresh().await;
    let mut trial = Trial::start(Data::Postgres(database.dsn()), 2, &["--notify", "off"]).await;
    trial.load.progresses(400).await;
    trial.watch([Plan::all(Initial::All).cut(60, 1), Plan::all(Initial::Active)]).await;
    trial.load.progresses(400).await;
    let record = trial.end().await;
    record.every_watch(Oracle::all_hold);
    for shown in record.watches.iter().filter(|shown| shown.plan.cut.is_none()) {
        let delays = record.oracle.delays(shown);
        let middle = delays[delays.len() / 2];
        assert!(middle < POLLED_DELAY_MAX, "half of the changes took {middle:?} or longer");
    }
}
