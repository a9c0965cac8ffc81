//! What a run without a priority does not pay: its updates of `active` write no index.

use runledger::domain::{Ask, Command, Priority};

use super::open;
use crate::conformance::asking::{apply, neighbours};
use crate::process::server::{SOON, eventually};
use crate::support::commands::{deferred, start};
use crate::support::postgres::{Database, direct};

const RUNS: i64 = 20;

fn with_priority(mut command: Command, priority: i32) -> Command {
    let Ask::Start(start) = &mut command.ask else { panic!("no start") };
    start.priority = Priority::of(priority);
    command
}

/// The updates of `active`, and those of them that were heap-only, of runs that wait and are started.
async fn counted(priority: i32) -> (i64, i64) {
    let database = Database::fresh().await;
    let store = open(&database.dsn()).await;
    for id in neighbours(&store, usize::try_from(RUNS).unwrap()) {
        apply(&store, with_priority(deferred(&id), priority)).await;
        apply(&store, start(&id)).await;
    }
    // A session tells what it did when it ends.
    drop(store);
    let session = direct(&database.dsn()).await;
    let query = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'active'";
    let told = async || {
        let row = session.query_one(query, &[]).await.unwrap();
        let counts: (i64, i64) = (row.get(0), row.get(1));
        (counts.0 >= RUNS).then_some(counts)
    };
    eventually(SOON, told).await.expect("the sessions tell what they did")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_of_active_are_heap_only_for_runs_without_a_priority() {
    assert_eq!(counted(0).await, (RUNS, RUNS));
    assert_eq!(counted(5).await, (RUNS, 0), "the start of a run takes it out of the index of priorities");
}
