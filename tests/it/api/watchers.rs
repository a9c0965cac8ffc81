//! Many watchers, and slow ones.

use std::time::Duration;

use futures_util::future::join_all;
use runledger_proto::v1::{RunStatus, UpdateRunRequest};
use serde_json::json;

use super::caller::{Caller, complete, update};
use super::place::{Own, Place};
use super::values::structure;
use crate::support::postgres;

/// Connections that a server may hold: those that it was told of.
const CONNECTIONS_MAX: i64 = 8;

pub(crate) async fn a_thousand_watchers_all_see_the_change(place: Place) {
    let own = Own::start(place.kind).await;
    let writer = own.caller().await;
    let run = writer.run_in(RunStatus::Running).await;
    let mut watches = Vec::new();
    for _ in 0..4 {
        let caller = own.caller().await;
        watches.extend(join_all((0..250).map(|_| caller.watch(&run.run_id, None))).await);
    }
    join_all(watches.iter_mut().map(async |watch| {
        assert_eq!(watch.snapshot().await, run);
        assert_eq!(watch.caught_up().await, 1);
    }))
    .await;
    let asked = UpdateRunRequest { metadata: structure(json!({"seen": "by all"})), ..update(&run.run_id) };
    let changed = writer.apply(asked).await;
    let ended = writer.apply(complete(&run.run_id)).await;
    join_all(watches.iter_mut().map(async |watch| {
        assert_eq!(watch.change().await.run.as_ref(), Some(&changed));
        assert_eq!(watch.change().await.run.as_ref(), Some(&ended));
        assert_eq!(watch.end().await, ended);
    }))
    .await;
    if let Some(database) = &own.database {
        let mine = postgres::direct(&database.dsn()).await;
        let count =
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
        let connections: i64 = mine.query_one(count, &[]).await.unwrap().get(0);
        assert!((1..=CONNECTIONS_MAX).contains(&connections), "{connections} connections");
    }
}

/// The reader's frames are far more than the connection's windows and the server's ring of recent changes hold.
pub(crate) async fn a_slow_reader_gets_everything_in_order(place: Place) {
    const UPDATES: u64 = 2_000;
    let writer = place.caller().await;
    let run = writer.run_in(RunStatus::Running).await;
    let mut slow = place.caller().await.watch(&run.run_id, None).await;
    let bulk = structure(json!({ "bulk": "x".repeat(10_000) }));
    writer.apply(UpdateRunRequest { metadata: bulk, ..update(&run.run_id) }).await;
    write(&writer, &run.run_id, UPDATES).await;
    assert_eq!(slow.snapshot().await, run);
    assert_eq!(slow.caught_up().await, 1);
    let read = async {
        for revision in 2..=UPDATES + 2 {
            let change = slow.change().await;
            let (event, state) = (change.event.unwrap(), change.run.unwrap());
            assert_eq!((event.revision, state.revision), (revision, revision));
            if let Some(patch) = event.changes.unwrap().metadata.filter(|_| revision > 2) {
                assert_eq!(patch.fields["n"], state.metadata.unwrap().fields["n"], "the state right after its event");
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), read).await.expect("all of it in time");
    let ended = writer.apply(complete(&run.run_id)).await;
    assert_eq!(slow.change().await.run.as_ref(), Some(&ended));
    assert_eq!(slow.end().await, ended);
}

/// Updates that differ, many at once.
async fn write(writer: &Caller, run_id: &str, updates: u64) {
    for begin in (0..updates).step_by(250) {
        let calls = (begin..begin + 250)
            .map(|n| writer.apply(UpdateRunRequest { metadata: structure(json!({ "n": n })), ..update(run_id) }));
        join_all(calls).await;
    }
}
