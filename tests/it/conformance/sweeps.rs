//! Sweeps of a shard some of whose runs cannot be ended.

use std::sync::Arc;

use runledger::domain::{Shard, Status};
use runledger::engine::{Engine, Limits};
use runledger::store::{Commits, StoreError};
use runledger::tasks::Supervisor;
use runledger::upkeep::sweeper::sweep;
use tokio::sync::Notify;

use super::asking::{ask_all, neighbours};
use super::fixture::OnDisk;
use crate::support::commands::{Asking as _, deferred, key, leased};

/// More than one page of each.
const LEASES: usize = 600;
const DEADLINES: usize = 520;

const TTL_MS: u64 = 20_000;

const SWEEPS_MAX: usize = 20;

pub(crate) async fn runs_that_cannot_be_ended_hide_no_other_from_a_sweep<F: OnDisk>(fixture: F) {
    let store = fixture.replica().await;
    let mut ids = neighbours(&*store, LEASES + DEADLINES);
    ids.sort();
    let (held, waiting) = ids.split_at(LEASES);
    ask_all(&*store, held.iter().map(|id| leased(id).lease_ttl_ms(TTL_MS)).collect()).await;
    let timeout_ms = |n| if n + 1 < DEADLINES { 1_000 } else { 5_000 };
    ask_all(&*store, waiting.iter().enumerate().map(|(n, id)| deferred(id).start_timeout_ms(timeout_ms(n))).collect())
        .await;
    // The last lease by its key, and the last deadline, are those of runs that can be ended.
    let sound = [&held[LEASES - 1], &waiting[DEADLINES - 1]];
    let spoil = format!("update runs set record = '[]' where run_id not in ('{}', '{}')", sound[0], sound[1]);
    fixture.sql(&spoil).await;
    fixture.pass_alive(&[&*store], TTL_MS + 1_000).await;

    let supervisor = Supervisor::new();
    let commits: Arc<dyn Commits> = store.clone();
    let engine = Engine::start(&commits, store.clone(), &supervisor, &Arc::new(Notify::new()), Limits::default());
    // A sweep that takes its time leaves ends to the next one. Where those that fail hide others, no sweep comes to these.
    let mut ended = 0;
    for _ in 0..SWEEPS_MAX {
        ended += sweep(&*store, &engine, Shard(0)).await.unwrap();
        if ended == 2 {
            break;
        }
    }
    assert_eq!(ended, 2);
    for (id, status) in sound.into_iter().zip([Status::Failed, Status::Aborted]) {
        assert_eq!(store.run(&key(id)).await.unwrap().unwrap().status, status, "{id}");
    }
    assert!(matches!(store.run(&key(&held[0])).await, Err(StoreError::Corrupt { .. })));
    assert_eq!(sweep(&*store, &engine, Shard(0)).await.unwrap(), 0);
    supervisor.stop().cancel();
    engine.close();
}
