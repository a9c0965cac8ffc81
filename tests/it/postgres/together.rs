//! The statements by which runs are read with their leases.

use std::sync::Mutex;

use futures_util::future::join;
use runledger::store::postgres::PostgresStore;
use runledger::store::{FoundRun, OpenOptions, Runs as _};
use runledger::tasks::Supervisor;

use super::open;
use crate::conformance::asking::apply;
use crate::support::commands::{Asking as _, complete, key, leased, start};
use crate::support::postgres::{Database, direct};

#[tokio::test]
async fn a_run_that_is_known_to_be_held_is_read_with_its_lease_by_one_statement() {
    let database = Database::fresh().await;
    let (options, supervisor) = (OpenOptions { connections: 3, ..OpenOptions::default() }, Supervisor::new());
    let dsn = database.dsn();
    let (here, there) = join(PostgresStore::open(&dsn, &options, &supervisor), open(&dsn)).await;
    let here = here.unwrap();
    let watch = direct(&dsn).await;
    // The last statement of the only session of this store that reads.
    let pid: i32 = {
        here.run(&key("unknown")).await.unwrap();
        let reader =
            "select pid from pg_stat_activity where datname = current_database() and query like '-- read.run%'";
        watch.query_one(reader, &[]).await.unwrap().get(0)
    };
    let last = async |id: &str| {
        assert!(matches!(here.runs(&[key(id)], 1).await.unwrap()[..], [FoundRun::Run(_)]));
        let query = "select split_part(query, E'\\n', 1) from pg_stat_activity where pid = $1";
        watch.query_one(query, &[&pid]).await.unwrap().get::<_, String>(0)
    };
    apply(&here, start("plain")).await;
    apply(&here, leased("own")).await;
    apply(&there, leased("foreign")).await;
    assert_eq!(last("plain").await, "-- read.run");
    assert_eq!(last("own").await, "-- read.held_runs");
    assert_eq!(last("foreign").await, "-- leases.leases", "it turns out to be held");
    assert_eq!(last("foreign").await, "-- read.held_runs");
    apply(&there, complete("foreign").epoch(1)).await;
    assert_eq!(last("foreign").await, "-- read.held_runs", "it turns out to have ended");
    assert_eq!(last("foreign").await, "-- read.run");
    assert_eq!(last("plain").await, "-- read.run");
}

#[tokio::test]
async fn a_run_that_turns_out_to_be_held_is_read_with_its_lease_on_one_session() {
    let database = Database::fresh().await;
    let (options, supervisor) = (OpenOptions { connections: 3, ..OpenOptions::default() }, Supervisor::new());
    let dsn = database.dsn();
    let (here, there) = join(PostgresStore::open(&dsn, &options, &supervisor), open(&dsn)).await;
    let here = here.unwrap();
    apply(&there, start("plain")).await;
    apply(&there, leased("foreign")).await;
    // The second read waits for the only session that reads, and would have it between the two statements of the first.
    let read = Mutex::new(Vec::new());
    let reads = async |id: &'static str| {
        let found = here.runs(&[key(id)], 1).await.unwrap();
        read.lock().unwrap().push((id, matches!(&found[..], [FoundRun::Run(kept)] if kept.lease.is_some())));
    };
    join(reads("foreign"), reads("plain")).await;
    assert_eq!(read.into_inner().unwrap(), [("foreign", true), ("plain", false)]);
}
