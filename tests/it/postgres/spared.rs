//! Sessions and hints that outlive a failure which shows nothing against them.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join;
use runledger::clock::draw_id;
use runledger::domain::{Disposition, Rules, Shard, Verdict};
use runledger::store::postgres::PostgresStore;
use runledger::store::{CommitError, Commits as _, Runs as _, StoreError};
use tokio_postgres::Client;

use super::{holding_the_head, open, waiting};
use crate::conformance::asking::{apply, ask, home};
use crate::conformance::sound::sound;
use crate::support::commands::{Asking as _, complete, key, start, update};
use crate::support::postgres::{Database, direct};

/// A store that decides commits to the second shard on hints, with an id of a run in the first and one in the second.
struct Hinted {
    database: Database,
    store: PostgresStore,
    watch: Client,
    ids: [String; 2],
}

impl Hinted {
    async fn new() -> Self {
        let database = Database::fresh().await;
        let store = open(&database.dsn()).await;
        let some: Vec<String> = (0..64).map(|n| format!("run-{n}")).collect();
        let of = |shard| some.iter().find(|id| home(&store, &key(id)) == Shard(shard)).unwrap().clone();
        let ids = [of(0), of(1)];
        for id in &ids {
            apply(&store, start(id)).await;
        }
        let watch = direct(&database.dsn()).await;
        let hinted = Self { database, store, watch, ids };
        for step in 0..3 {
            apply(&hinted.store, update(&hinted.ids[1]).label("step", &step.to_string())).await;
        }
        assert!(hinted.is_decided_on_hints().await);
        hinted
    }

    /// Commits to the second shard, and tells whether that took one flush.
    async fn is_decided_on_hints(&self) -> bool {
        apply(&self.store, update(&self.ids[1]).label("id", &draw_id().to_string())).await;
        let last = "select query from pg_stat_activity where datname = current_database() and query like '-- commit.%'
                    order by query_start desc limit 1";
        let statement: String = self.watch.query_one(last, &[]).await.unwrap().get(0);
        statement.starts_with("-- commit.at_once")
    }

    /// The sessions of the store.
    async fn sessions(&self) -> BTreeSet<i32> {
        let others = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
                      and (query like '-- commit.%' or query like '-- session.%' or query like '-- settle.%'
                           or query like '-- probe.%' or query like '-- lineage.%')";
        self.watch.query(others, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// Waits until a session waits for a lock, and cancels its statement.
    async fn cancel(&self) {
        let pid = waiting(&self.watch).await;
        self.watch.query_one("select pg_cancel_backend($1)", &[&pid]).await.unwrap();
    }
}

#[tokio::test]
async fn a_commit_that_waited_too_long_for_its_head_costs_no_session_and_no_hints() {
    let hinted = Hinted::new().await;
    let sessions = hinted.sessions().await;
    let holder = holding_the_head(&hinted.database.dsn(), Shard(0)).await;
    let waits = async || {
        let query = "select pid, query_start::text from pg_stat_activity
                     where datname = current_database() and wait_event_type = 'Lock'";
        let waits = hinted.watch.query_opt(query, &[]).await.unwrap();
        waits.map(|row| (row.get::<_, i32>(0), row.get::<_, String>(1)))
    };
    let let_it_wait_twice = async {
        waiting(&hinted.watch).await;
        let first = waits().await;
        let mut second = None;
        while second.is_none() || second == first {
            second = waits().await;
        }
        holder.batch_execute("commit").await.unwrap();
    };
    let (run, ()) = join(apply(&hinted.store, update(&hinted.ids[0]).workflow("w")), let_it_wait_twice).await;
    assert_eq!(run.revision, 2);
    assert_eq!(hinted.sessions().await, sessions);
    assert!(hinted.is_decided_on_hints().await);
    sound(&hinted.store).await;
}

#[tokio::test]
async fn a_commit_or_a_probe_that_is_cancelled_costs_no_session_and_no_hints() {
    let hinted = Hinted::new().await;
    let sessions = hinted.sessions().await;
    let holder = holding_the_head(&hinted.database.dsn(), Shard(0)).await;
    let (batch, rules): (Arc<[_]>, _) = (Arc::from([Arc::new(complete(&hinted.ids[0]))]), Rules::shared());
    let commit = hinted.store.commit(Shard(0), draw_id(), batch, &rules);
    let (committed, ()) = join(commit, hinted.cancel()).await;
    assert!(matches!(committed, Err(CommitError::NotApplied(StoreError::Unavailable(_)))), "{committed:?}");
    let (probed, ()) = join(hinted.store.probe_write(Shard(0)), hinted.cancel()).await;
    assert!(matches!(probed, Err(StoreError::Unavailable(_))), "{probed:?}");
    holder.batch_execute("commit").await.unwrap();
    assert_eq!(hinted.sessions().await, sessions);
    assert!(hinted.is_decided_on_hints().await);
    assert!(matches!(ask(&hinted.store, complete(&hinted.ids[0])).await, Ok(Verdict::Done(Disposition::Applied, _))));
    sound(&hinted.store).await;
}

/// The sweep meets such a run once a second, on every replica.
#[tokio::test]
async fn a_run_that_cannot_be_read_costs_no_session_and_no_hints() {
    let hinted = Hinted::new().await;
    let sessions = hinted.sessions().await;
    let spoil = "update runs set record = '[]' where shard = 0";
    direct(&hinted.database.dsn()).await.batch_execute(spoil).await.unwrap();
    // Twice: the first commit is decided on hints, which are found to be wrong.
    for _ in 0..2 {
        let (batch, rules): (Arc<[_]>, _) =
            (Arc::from([Arc::new(update(&hinted.ids[0]).revision(7))]), Rules::shared());
        let committed = hinted.store.commit(Shard(0), draw_id(), batch, &rules).await;
        assert!(matches!(committed, Err(CommitError::NotApplied(StoreError::Corrupt { .. }))), "{committed:?}");
    }
    assert_eq!(hinted.sessions().await, sessions);
    assert!(hinted.is_decided_on_hints().await);
}

#[tokio::test]
async fn a_statement_whose_prepared_form_is_stale_is_prepared_anew_on_another_session() {
    let hinted = Hinted::new().await;
    let store = &hinted.store;
    let (unknown, rules): (Arc<[_]>, _) = (Arc::from([Arc::new(complete("unknown"))]), Rules::shared());
    let commit = async || store.commit(home(store, &key("unknown")), draw_id(), unknown.clone(), &rules).await;
    assert!(commit().await.is_ok() && store.run(&key("unknown")).await.is_ok());
    let change = "alter table runs alter column task_thread_id type varchar(5000)";
    direct(&hinted.database.dsn()).await.batch_execute(change).await.unwrap();
    let committed = commit().await;
    assert!(matches!(committed, Err(CommitError::NotApplied(StoreError::Unavailable(_)))), "{committed:?}");
    let read = store.run(&key("unknown")).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    assert!(commit().await.is_ok() && store.run(&key("unknown")).await.is_ok());
}
