//! A replica that runs on while a later release makes the database its own.

use std::sync::Arc;

use futures_util::future::join;
use runledger::clock::draw_id;
use runledger::domain::{Command, Rules};
use runledger::store::migrations::MIN_RELEASE;
use runledger::store::postgres::PostgresStore;
use runledger::store::{CommitError, Commits as _, Runs as _, Store as _, StoreError};
use runledger::telemetry::chain;

use super::{holding_the_head, open, waiting};
use crate::conformance::asking::{apply, home};
use crate::conformance::sound::sound;
use crate::support::commands::{Asking as _, complete, key, start, update};
use crate::support::postgres::{Database, direct};

async fn is_refused(store: &PostgresStore, command: Command) {
    match store.commit(home(store, &command.key), draw_id(), Arc::from([Arc::new(command)]), &Rules::shared()).await {
        Err(CommitError::NotApplied(error @ StoreError::Unavailable(_))) => {
            assert!(chain(&error).contains("999.0.0"), "{}", chain(&error));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_replica_that_is_too_old_for_its_database_writes_no_more() {
    let database = Database::fresh().await;
    let store = open(&database.dsn()).await;
    apply(&store, start("run-1")).await;
    let other = direct(&database.dsn()).await;
    other.batch_execute("update ledger set min_release = '999.0.0'").await.unwrap();
    is_refused(&store, complete("run-1")).await;
    assert!(chain(&store.ping().await.unwrap_err()).contains("999.0.0"));
    assert!(store.run(&key("run-1")).await.unwrap().is_some());
    other.batch_execute(&format!("update ledger set min_release = '{MIN_RELEASE}'")).await.unwrap();
    store.ping().await.unwrap();
    apply(&store, complete("run-1")).await;
}

#[tokio::test]
async fn a_commit_that_waits_for_its_head_sees_the_release_that_was_wanted_meanwhile() {
    let database = Database::fresh().await;
    let store = open(&database.dsn()).await;
    apply(&store, start("run-1")).await;
    let (watch, migration) =
        join(direct(&database.dsn()), holding_the_head(&database.dsn(), home(&store, &key("run-1")))).await;
    let raise = async {
        waiting(&watch).await;
        migration.batch_execute("update ledger set min_release = '999.0.0'; commit").await.unwrap();
    };
    join(is_refused(&store, complete("run-1")), raise).await;
    assert_eq!(sound(&store).await.log.len(), 1);
}

/// A commit in one flush begins before it waits, and would read what was wanted then.
#[tokio::test]
async fn a_commit_in_one_flush_that_waits_for_its_head_sees_it_too() {
    let database = Database::fresh().await;
    let store = open(&database.dsn()).await;
    apply(&store, start("run-1")).await;
    for step in 0..5 {
        apply(&store, update("run-1").label("step", &step.to_string())).await;
    }
    let (watch, migration) =
        join(direct(&database.dsn()), holding_the_head(&database.dsn(), home(&store, &key("run-1")))).await;
    let raise = async {
        waiting(&watch).await;
        // As migrating does: every head becomes a new version of itself.
        let raised = "update shards set shard = shard; update ledger set min_release = '999.0.0'; commit";
        migration.batch_execute(raised).await.unwrap();
    };
    join(is_refused(&store, complete("run-1")), raise).await;
    assert_eq!(sound(&store).await.log.len(), 6);
}
