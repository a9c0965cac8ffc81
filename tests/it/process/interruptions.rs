//! Servers and databases that are away for a while: no worker that lives loses its run by it, and one that died is
//! found.
//!
//! `make test-interruptions` goes through all lengths, and says who died of what.

use std::time::Duration;

use futures_util::future::join_all;
use prost_types::Duration as WireDuration;
use runledger_proto::v1::{GetRunRequest, Run, RunStatus, StartRunRequest};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use super::load::Load;
use super::server::{Process, SOON, Server, eventually};
use crate::support::postgres::{Cluster, Database, variable};

/// A kind of trouble.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    SqliteServerKilled,
    SqliteServerFrozen,
    PostgresServerKilled,
    PostgresServerFrozen,
    PostgresKilled,
    PostgresFrozen,
}

impl Trouble {
    const ALL: [Self; 6] = [
        Self::SqliteServerKilled,
        Self::SqliteServerFrozen,
        Self::PostgresServerKilled,
        Self::PostgresServerFrozen,
        Self::PostgresKilled,
        Self::PostgresFrozen,
    ];
}

/// A store with one server.
struct Scene {
    store: String,
    server: Server,
    cluster: Option<Cluster>,
    _database: Option<Database>,
    _directory: TempDir,
}

impl Scene {
    async fn new(trouble: Trouble) -> Self {
        let directory = TempDir::new().unwrap();
        let (store, cluster, database) = match trouble {
            Trouble::SqliteServerKilled | Trouble::SqliteServerFrozen => {
                (format!("sqlite:{}", directory.path().join("ledger.db").display()), None, None)
            }
            Trouble::PostgresServerKilled | Trouble::PostgresServerFrozen => {
                let database = Database::fresh().await;
                (database.dsn(), None, Some(database))
            }
            Trouble::PostgresKilled | Trouble::PostgresFrozen => {
                let cluster = block_in_place(|| Cluster::start(&[]));
                (cluster.dsn(), Some(cluster), None)
            }
        };
        let server = Server::start(&store).await;
        server.is_ready().await;
        Self { store, server, cluster, _database: database, _directory: directory }
    }

    async fn run(&self, run_id: &str) -> Option<Run> {
        let asked = GetRunRequest { run_id: run_id.to_owned(), ..GetRunRequest::default() };
        self.server.client().get_run(asked).await.ok().and_then(|answer| answer.into_inner().run)
    }

    async fn is_away(&mut self, trouble: Trouble, away: Duration) {
        match trouble {
            Trouble::SqliteServerKilled | Trouble::PostgresServerKilled => {
                self.server.process.kill();
                sleep(away).await;
                let address = self.server.address.to_string();
                self.server =
                    Server::of(Process::spawn(&["serve", "--listen", &address, "--store", &self.store])).await;
            }
            Trouble::SqliteServerFrozen | Trouble::PostgresServerFrozen => {
                self.server.process.signal("STOP");
                sleep(away).await;
                self.server.process.signal("CONT");
            }
            Trouble::PostgresKilled => {
                let cluster = self.cluster.as_mut().unwrap();
                block_in_place(|| cluster.kill());
                sleep(away).await;
                block_in_place(|| cluster.restart());
            }
            Trouble::PostgresFrozen => {
                let cluster = self.cluster.as_ref().unwrap();
                block_in_place(|| cluster.signal("STOP"));
                sleep(away).await;
                block_in_place(|| cluster.signal("CONT"));
            }
        }
    }
}

/// Workers of programs that end some seconds after the trouble, and a run that no worker works at. Returns the workers
/// whose runs did not end as completed, and the time from the trouble until the other run's end was known.
async fn deaths(trouble: Trouble, away: Duration, ttls: &[u64], each: usize) -> (Vec<String>, Duration) {
    let mut scene = Scene::new(trouble).await;
    let address = scene.server.address.to_string();
    let program = (Duration::from_secs(8) + away).as_secs_f64().to_string();
    let mut workers = Vec::new();
    for (ttl, n) in ttls.iter().flat_map(|ttl| (0..each).map(move |n| (ttl, n))) {
        let (run_id, ttl) = (format!("ttl-{ttl}-{n}"), format!("{ttl}s"));
        let flags = ["run", "worker", "--server", &address, "--task-thread-id", "t", "--run-id", &run_id];
        let args = [&flags[..], &["--lease-ttl", &ttl, "--", "sleep", &program]].concat();
        let worker = Process::spawn_with(&args, &[("PATH", "/usr/local/bin:/usr/bin:/bin")]);
        let running = eventually(SOON, async || scene.run(&run_id).await);
        assert!(running.await.is_some(), "{}", worker.said());
        workers.push((run_id, worker));
    }
    // Long enough for each to have renewed its lease.
    sleep(Duration::from_secs(3)).await;
    let ttl = Some(WireDuration { seconds: 2, nanos: 0 });
    let (task_thread_id, run_id) = ("t".to_owned(), "dead".to_owned());
    let dead = StartRunRequest { task_thread_id, run_id, lease_ttl: ttl, ..StartRunRequest::default() };
    scene.server.client().start_run(dead).await.unwrap();
    scene.is_away(trouble, away).await;
    let back = Instant::now();
    let orphaned = eventually(SOON, async || scene.run("dead").await.filter(|run| run.status() == RunStatus::Failed));
    assert!(orphaned.await.is_some(), "{trouble:?}, away for {away:?}: nobody found the dead");
    let found_after = back.elapsed();
    let mut dead = Vec::new();
    for (run_id, mut worker) in workers {
        let (_, said) = worker.ended(SOON + away).await;
        let run = scene.run(&run_id).await.unwrap();
        if (run.status(), run.presumed) != (RunStatus::Completed, false) {
            dead.push(format!("{run_id}: {:?} {}: {said}", run.status(), run.reason_code));
        }
    }
    (dead, found_after)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_live_through_interruptions_of_every_kind_and_the_dead_are_found() {
    let wide = variable("RUNLEDGER_TEST_INTERRUPTIONS").is_some();
    let (lengths, ttls, each): (&[u64], &[u64], usize) =
        if wide { (&[500, 1_000, 2_000, 3_000, 5_000, 10_000], &[1, 2, 4, 8], 2) } else { (&[3_000], &[2, 8], 1) };
    let mut all = Vec::new();
    for ms in lengths {
        let away = Duration::from_millis(*ms);
        let troubles = Trouble::ALL.map(async |trouble| (trouble, deaths(trouble, away, ttls, each).await));
        for (trouble, (dead, found_after)) in join_all(troubles).await {
            let of = |ttl: &u64| dead.iter().filter(|dead| dead.starts_with(&format!("ttl-{ttl}-"))).count();
            let by_ttl: Vec<String> = ttls.iter().map(|ttl| format!("{ttl} s: {} of {each}", of(ttl))).collect();
            eprintln!("{trouble:?} {away:?}: died {}; the dead were found after {found_after:?}", by_ttl.join(", "));
            all.extend(dead.into_iter().map(|dead| format!("{trouble:?} {away:?} {dead}")));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_are_found_under_load_and_while_another_replica_restarts_again_and_again() {
    let database = Database::fresh().await;
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let (_servers, targets) = watch::channel(vec![server.address]);
    let mut load = Load::start("run", 16, &targets);
    load.progresses(50).await;
    let restarts = async {
        loop {
            let mut other = Server::start(&database.dsn()).await;
            other.is_ready().await;
            other.process.kill();
        }
    };
    let rounds = async {
        for round in 0..3 {
            let ttl = Some(WireDuration { seconds: 2, nanos: 0 });
            let (task_thread_id, run_id) = ("t".to_owned(), format!("dead-{round}"));
            let dead = StartRunRequest { task_thread_id, run_id, lease_ttl: ttl, ..StartRunRequest::default() };
            server.client().start_run(dead).await.unwrap();
            let started = Instant::now();
            let orphaned = async || {
                let asked = GetRunRequest { run_id: format!("dead-{round}"), ..GetRunRequest::default() };
                let run = server.client().get_run(asked).await.unwrap().into_inner().run.unwrap();
                (run.status() == RunStatus::Failed).then_some(())
            };
            assert!(eventually(SOON, orphaned).await.is_some(), "nobody found the dead");
            eprintln!("a lease of 2 s was found over after {:?}", started.elapsed());
        }
    };
    tokio::select! {
        () = restarts => {}
        () = rounds => {}
    }
    load.finish().await;
}
