//! Trouble that only a database server makes: it is killed, is unsafe, holds a lock, ends a session.

mod at_once;
mod fence;
mod fitness;
mod hangs;
mod heap_only;
mod limits;
mod links;
mod lists;
mod plans;
mod pooled;
mod secured;
mod spared;
mod together;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use runledger::clock::draw_id;
use runledger::domain::{Decided, Rules, Shard, Status};
use runledger::store::OpenOptions;
use runledger::store::postgres::PostgresStore;
use runledger::store::{
    CommitError, Commits as _, OfLedger as _, OpenError, RunLog as _, Runs as _, Store, StoreError, Unsettled,
};
use runledger::tasks::Supervisor;
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::conformance::asking::{apply, home, neighbours};
use crate::conformance::sound::sound;
use crate::support::commands::{Asking as _, complete, key, start, update};
use crate::support::postgres::{Cluster, Database, direct};

async fn open(dsn: &str) -> PostgresStore {
    PostgresStore::open(dsn, &OpenOptions::default(), &Supervisor::new()).await.unwrap()
}

/// A session that holds a shard's head, as a replica in the middle of a commit does.
async fn holding_the_head(dsn: &str, shard: Shard) -> Client {
    let holder = direct(dsn).await;
    holder.batch_execute(&format!("begin; select from shards where shard = {} for update", shard.0)).await.unwrap();
    holder
}

/// The backend that waits for a lock, as soon as there is one.
async fn waiting(watch: &Client) -> i32 {
    let query = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let search = async {
        loop {
            if let Some(row) = watch.query_opt(query, &[]).await.unwrap() {
                return row.get(0);
            }
        }
    };
    timeout(Duration::from_secs(10), search).await.expect("somebody waits for the lock")
}

#[tokio::test]
async fn a_killed_postgres_keeps_what_it_acknowledged() {
    let mut cluster = Cluster::start(&[]);
    let store = open(&cluster.dsn()).await;
    let (enough, reached) = tokio::sync::watch::channel(0_u32);
    let writer = |writer: usize| {
        let (store, enough) = (&store, &enough);
        async move {
            let mut acknowledged = Vec::new();
            for n in 0.. {
                let id = format!("run-{writer}-{n}");
                for command in [start(&id), complete(&id)] {
                    let (shard, commit_id) = (home(store, &command.key), draw_id());
                    let key = command.key.clone();
                    match store.commit(shard, commit_id, Arc::from([Arc::new(command)]), &Rules::shared()).await {
                        Ok(decided) => acknowledged.push((key, decided.events[0].event.revision)),
                        Err(CommitError::NotApplied(StoreError::Unavailable(_))) => return (acknowledged, None),
                        Err(CommitError::Unknown { unsettled, .. }) => return (acknowledged, Some(unsettled)),
                        Err(other) => panic!("{other:?}"),
                    }
                    enough.send_modify(|count| *count += 1);
                }
            }
            unreachable!("it writes until it fails")
        }
    };
    let kill = async {
        reached.clone().wait_for(|count| *count >= 60).await.unwrap();
        tokio::task::spawn_blocking(move || {
            cluster.kill();
            cluster
        })
        .await
        .unwrap()
    };
    let (ends, mut cluster) = join(join_all((0..6).map(writer)), kill).await;
    assert!(matches!(store.run(&key("run-0-0")).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(
        PostgresStore::open(&cluster.dsn(), &OpenOptions::default(), &Supervisor::new()).await,
        Err(OpenError::Unreachable { .. })
    ));

    cluster.restart();
    // The same store is back by itself, at the latest when each of its dead sessions was met once.
    let mut attempts = 0;
    while let Err(error) = store.ping().await {
        attempts += 1;
        assert!(attempts < 20, "it does not come back: {error:?}");
    }
    let mut settled = Vec::new();
    for unsettled in ends.iter().filter_map(|(_, unsettled)| unsettled.as_ref()) {
        settled.push((unsettled, store.settle(unsettled).await.unwrap()));
    }
    let contents = sound(&store).await;
    for (key, revision) in ends.iter().flat_map(|(acknowledged, _)| acknowledged) {
        assert!(contents.revisions(key) >= revision.get(), "{key:?} was acknowledged at {revision}");
    }
    for (unsettled, applied) in settled {
        let event = &unsettled.decided.events[0].event;
        assert_eq!(contents.log.iter().any(|logged| logged.event == *event), applied, "{event:?}");
    }
    apply(&store, start("afterwards")).await;
}

#[tokio::test]
async fn a_postgres_that_may_lose_acknowledged_calls_is_refused() {
    let cluster = Cluster::start(&[("fsync", "off"), ("full_page_writes", "off"), ("synchronous_commit", "off")]);
    match PostgresStore::open(&cluster.dsn(), &OpenOptions::default(), &Supervisor::new()).await {
        Err(OpenError::Unsafe(why)) => {
            assert!(["fsync", "full_page_writes", "synchronous_commit"].iter().all(|name| why.contains(name)), "{why}");
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was opened"),
    }
    let options = OpenOptions { allow_unsafe: true, ..OpenOptions::default() };
    let store = PostgresStore::open(&cluster.dsn(), &options, &Supervisor::new()).await.unwrap();
    assert!(store.describe().not_durable.is_some_and(|why| why.contains("fsync")));
}

#[tokio::test]
async fn a_safe_postgres_is_described_without_its_password() {
    let database = Database::fresh().await;
    let description = open(&database.dsn()).await.describe();
    assert_eq!((description.kind, description.not_durable), ("postgres", None));
    let password = database
        .dsn()
        .split_once("://")
        .unwrap()
        .1
        .split_once('@')
        .unwrap()
        .0
        .split_once(':')
        .map(|(_, p)| p.to_owned());
    assert!(password.is_none_or(|password| !description.location.contains(&password)), "{}", description.location);
}

#[tokio::test]
async fn replicas_that_open_an_empty_database_at_once_share_one_ledger() {
    let database = Database::fresh().await;
    let stores = join_all((0..6).map(|_| async { open(&database.dsn()).await })).await;
    assert!(stores.iter().all(|store| store.ledger() == stores[0].ledger()));
    apply(&stores[0], start("run-1")).await;
    assert!(stores[5].run(&key("run-1")).await.unwrap().is_some());
}

#[tokio::test]
async fn settling_waits_for_the_old_transaction() {
    let database = Database::fresh().await;
    let store = open(&database.dsn()).await;
    let (shard, commit_id) = (home(&store, &key("run-1")), draw_id());
    let unsettled = Unsettled { shard, commit_id, first_position: 1, decided: Decided::default() };
    for (end, applied) in [("rollback", false), ("commit", true)] {
        let old = holding_the_head(&database.dsn(), shard).await;
        old.batch_execute(&format!(
            "insert into run_events (shard, position, namespace, run_id, revision, at, event, commit_id)
             values ({}, 1, 'default', 'run-1', 1, now(), '{{}}', '{commit_id}')",
            shard.0
        ))
        .await
        .unwrap();
        let watch = direct(&database.dsn()).await;
        let finish = async {
            waiting(&watch).await;
            old.batch_execute(end).await.unwrap();
        };
        let (answer, ()) = join(store.settle(&unsettled), finish).await;
        assert_eq!(answer.unwrap(), applied, "after {end}");
    }
}

#[tokio::test]
async fn a_frozen_holder_frees_its_shard_in_seconds() {
    let database = Database::fresh().await;
    let store = open(&database.dsn()).await;
    let ids = neighbours(&store, 2);
    apply(&store, start(&ids[0])).await;
    // As every session that commits is set up: one whose process is frozen in the middle ends by itself.
    let frozen = direct(&database.dsn()).await;
    frozen.batch_execute("set idle_in_transaction_session_timeout = '2s'").await.unwrap();
    frozen.batch_execute("begin; select from shards for update").await.unwrap();
    let answer = timeout(Duration::from_secs(5), apply(&store, start(&ids[1]))).await;
    assert_eq!(answer.expect("within 5 s").status, Status::Running);
    sound(&store).await;
}

#[tokio::test]
async fn a_dropped_commit_lets_its_head_and_its_session_go() {
    let database = Database::fresh().await;
    let store = open(&database.dsn()).await;
    apply(&store, start("run-1")).await;
    let shard = home(&store, &key("run-1"));
    let holder = holding_the_head(&database.dsn(), shard).await;
    let watch = direct(&database.dsn()).await;
    let batch: Arc<[_]> = Arc::from([Arc::new(complete("run-1"))]);
    let drop_it = async {
        let rules = Rules::shared();
        let commit = store.commit(shard, draw_id(), batch, &rules);
        tokio::select! {
            answer = commit => panic!("the head is held: {answer:?}"),
            pid = waiting(&watch) => pid,
        }
    };
    let pid = drop_it.await;
    holder.batch_execute("commit").await.unwrap();
    // The dropped commit's session lets the head go: no other commit waits for it in vain.
    timeout(Duration::from_secs(5), apply(&store, update("run-1").workflow("w"))).await.expect("within 5 s");
    let ended = async {
        while watch.query_opt("select from pg_stat_activity where pid = $1", &[&pid]).await.unwrap().is_some() {}
    };
    timeout(Duration::from_secs(5), ended).await.expect("a session of unknown state is closed");
    sound(&store).await;
}

#[tokio::test]
async fn a_session_that_is_ended_before_its_commit_was_surely_not_applied() {
    let database = Database::fresh().await;
    let (store, other) = join(open(&database.dsn()), open(&database.dsn())).await;
    // The first store has not committed to the shard itself, and so reads before it commits.
    apply(&other, start("run-1")).await;
    let shard = home(&store, &key("run-1"));
    let holder = holding_the_head(&database.dsn(), shard).await;
    let watch = direct(&database.dsn()).await;
    let end_it = async {
        let pid = waiting(&watch).await;
        watch.query_one("select pg_terminate_backend($1)", &[&pid]).await.unwrap();
    };
    let batch: Arc<[_]> = Arc::from([Arc::new(complete("run-1"))]);
    let (answer, ()) = join(store.commit(shard, draw_id(), batch, &Rules::shared()), end_it).await;
    assert!(matches!(answer, Err(CommitError::NotApplied(StoreError::Unavailable(_)))), "{answer:?}");
    holder.batch_execute("commit").await.unwrap();
    assert_eq!(sound(&store).await.log.len(), 1);
    apply(&store, complete("run-1")).await;
}

#[tokio::test]
async fn an_announced_commit_is_heard_by_another_replica() {
    let database = Database::fresh().await;
    let (here, there) = (open(&database.dsn()).await, open(&database.dsn()).await);
    // An announcement may be missed while the listener connects: it is made until it is heard.
    let mut heard = false;
    for _attempt in 0..50 {
        here.announce_commit();
        heard = timeout(Duration::from_millis(200), there.foreign_commit()).await.is_ok();
        if heard {
            break;
        }
    }
    assert!(heard);
}
