//! Stops in the middle: of a caller, a replica, a server.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use runledger::domain::{Rules, Shard, Status};
use runledger::engine::{Engine, Limits};
use runledger::store::OpenOptions;
use runledger::store::postgres::PostgresStore;
use runledger::store::{Commits, OpenError, Runs as _, Store, Upkeep};
use runledger::tasks::Supervisor;
use runledger::upkeep::rounds;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::{holding_the_head, open, waiting};
use crate::conformance::asking::{apply, home};
use crate::support::commands::{Asking as _, deferred, key, start};
use crate::support::postgres::{Database, direct};

#[tokio::test]
async fn a_cancelled_read_costs_no_session() {
    let database = Database::fresh().await;
    let options = OpenOptions { connections: 3, ..OpenOptions::default() };
    let store = PostgresStore::open(&database.dsn(), &options, &Supervisor::new()).await.unwrap();
    apply(&store, start("run-1")).await;
    let (watch, holder) = join(direct(&database.dsn()), direct(&database.dsn())).await;
    let mut reader = None;
    for _ in 0..5 {
        holder.batch_execute("begin; lock table runs").await.unwrap();
        let run_1 = key("run-1");
        let pid = tokio::select! {
            answer = store.run(&run_1) => panic!("the table is locked: {answer:?}"),
            pid = waiting(&watch) => pid,
        };
        holder.batch_execute("commit").await.unwrap();
        assert_eq!(*reader.get_or_insert(pid), pid, "the only session that reads is lent on");
        assert!(store.run(&run_1).await.unwrap().is_some());
    }
}

/// Two sessions read, and four callers go on asking for a run whose read takes a minute, and go away.
#[tokio::test]
async fn nobody_waits_behind_reads_whose_callers_went_away() {
    let database = Database::fresh().await;
    let options = OpenOptions { connections: 5, ..OpenOptions::default() };
    let store = PostgresStore::open(&database.dsn(), &options, &Supervisor::new()).await.unwrap();
    for id in ["run-1", "slow"] {
        apply(&store, start(id)).await;
    }
    let watch = direct(&database.dsn()).await;
    let slow = "alter table runs rename to all_runs;
                create view runs as select * from all_runs
                where case run_id when 'slow' then pg_sleep(60)::text is null else true end";
    watch.batch_execute(slow).await.unwrap();
    let asleep = async || {
        let query = "select count(*) from pg_stat_activity
                     where datname = current_database() and wait_event = 'PgSleep'";
        watch.query_one(query, &[]).await.unwrap().get::<_, i64>(0)
    };
    let (slow, run_1) = (key("slow"), key("run-1"));
    let come_and_go = async || loop {
        let read = timeout(Duration::from_millis(30), store.run(&slow)).await;
        assert!(read.is_err(), "it takes a minute: {read:?}");
    };
    let others = join(join(come_and_go(), come_and_go()), join(come_and_go(), come_and_go()));
    let honest = async {
        while asleep().await < 2 {}
        for _ in 0..3 {
            let read = timeout(Duration::from_secs(5), store.run(&run_1)).await;
            assert!(read.expect("it waits for no statement of others").unwrap().is_some());
            assert!(asleep().await <= 2, "each has the place of a session until it has ended");
        }
    };
    tokio::select! {
        _never = others => unreachable!("it goes on"),
        () = honest => {}
    }
    let ended = async { while asleep().await > 0 {} };
    timeout(Duration::from_secs(5), ended).await.expect("they are cancelled");
}

#[tokio::test]
async fn a_server_that_never_answers_is_unreachable_in_seconds() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dsn = format!("postgres://u:p@{}/d", silent.local_addr().unwrap());
    let (options, supervisor) = (OpenOptions::default(), Supervisor::new());
    let asked = join(PostgresStore::open(&dsn, &options, &supervisor), PostgresStore::migrate(&dsn, &options));
    let (opened, migrated) = timeout(Duration::from_secs(10), asked).await.expect("within 10 s");
    assert!(matches!(opened.err(), Some(OpenError::Unreachable { .. })));
    assert!(matches!(migrated, Err(OpenError::Unreachable { .. })), "{migrated:?}");
}

/// Waits for the end of a run, which only the sweep makes.
async fn ended(store: &dyn Store, run_id: &str) {
    let end = async {
        while store.run(&key(run_id)).await.unwrap().unwrap().status != Status::Aborted {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), end).await.expect("it is swept");
}

#[tokio::test]
async fn a_shard_that_stands_still_keeps_no_other_from_its_sweeps() {
    let database = Database::fresh().await;
    let store: Arc<dyn Store> = Arc::new(open(&database.dsn()).await);
    let ids: Vec<String> = (0..).map(|n| format!("run-{n}")).take(64).collect();
    let of = |shard| ids.iter().find(|id| home(&*store, &key(id)) == Shard(shard)).unwrap();
    let (stuck, free) = (of(0), of(1));
    apply(&*store, deferred(stuck).start_timeout_ms(1)).await;
    let (watch, holder) = join(direct(&database.dsn()), holding_the_head(&database.dsn(), Shard(0))).await;
    let supervisor = Supervisor::new();
    let (commits, upkeep): (Arc<dyn Commits>, Arc<dyn Upkeep>) = (store.clone(), store.clone());
    let engine =
        Arc::new(Engine::start(&commits, store.clone(), &supervisor, &Arc::new(Notify::new()), Limits::default()));
    rounds::start(&upkeep, &engine, &supervisor);
    waiting(&watch).await;
    // This run is due only now: the sweep that ends it began while the other shard stood still.
    apply(&*store, deferred(free).start_timeout_ms(1)).await;
    ended(&*store, free).await;
    assert_eq!(store.run(&key(stuck)).await.unwrap().unwrap().status, Status::Pending);
    holder.batch_execute("commit").await.unwrap();
    ended(&*store, stuck).await;
    supervisor.stop().cancel();
    engine.close();
    assert!(supervisor.finished(Duration::from_secs(5)).await, "nothing goes on");
}

/// Only Linux tells a server that its client reads no more.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_replica_that_reads_no_more_frees_its_shard_in_seconds() {
    use runledger::clock::draw_id;
    use serde_json::json;

    use crate::conformance::asking::{ask_all, neighbours};
    use crate::support::commands::update;
    use crate::support::proxy::Proxy;

    const RUNS: usize = 256;
    let database = Database::fresh().await;
    let proxy = Proxy::start(&database.dsn()).await;
    let (free, frozen) = join(open(&database.dsn()), open(&proxy.in_front_of(&database.dsn()))).await;
    // More than all buffers on the way from the server hold.
    let ids = neighbours(&free, RUNS);
    let text = json!({"text": "x".repeat(65_000)});
    for some in ids.chunks(64) {
        ask_all(&free, some.iter().map(|id| start(id).metadata(&text)).collect()).await;
    }
    let (watch, holder) = join(direct(&database.dsn()), holding_the_head(&database.dsn(), Shard(0))).await;
    let batch: Arc<[_]> = ids.iter().map(|id| Arc::new(update(id).workflow("w"))).collect();
    let freeze = async {
        waiting(&watch).await;
        proxy.silence(true);
        holder.batch_execute("commit").await.unwrap();
        let sends = "select from pg_stat_activity where datname = current_database() and wait_event = 'ClientWrite'";
        while watch.query_opt(sends, &[]).await.unwrap().is_none() {}
        // A server that was not told otherwise keeps the session for as long as its client is connected.
        watch.batch_execute("set lock_timeout = '60s'; select from shards where shard = 0 for update").await.unwrap();
    };
    let rules = Rules::shared();
    let commit = async {
        // It may give up before the server does, which hears nothing of that.
        let answer = frozen.commit(Shard(0), draw_id(), batch, &rules).await;
        assert!(answer.is_err(), "it is frozen: {answer:?}");
        pending::<()>().await;
    };
    tokio::select! {
        () = commit => unreachable!("it waits"),
        () = freeze => {}
    }
}
