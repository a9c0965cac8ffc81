//! The rows of `max_running`, which commits of several shards share.

use futures_util::future::{join, join_all};
use runledger::domain::{Command, Disposition, Shard, Verdict};

use super::{open, waiting};
use crate::conformance::asking::{apply, ask, ask_all, home};
use crate::support::commands::{Asking as _, claim, complete, deferred, key, start};
use crate::support::postgres::{Database, direct};

const VALUES: usize = 8;

fn at_most(limit: u32, run_id: &str) -> Command {
    claim(run_id).max_running("instance", limit)
}

#[tokio::test]
async fn claims_of_many_values_in_opposite_orders_wait_for_no_circle() {
    let database = Database::fresh().await;
    let (here, there) = (open(&database.dsn()).await, open(&database.dsn()).await);
    let of_shard = |shard: u16, round: usize| {
        let ids = (0..).map(|n| format!("{round}-{n}"));
        ids.filter(|id| home(&here, &key(id)) == Shard(shard)).take(VALUES).collect::<Vec<_>>()
    };
    for round in 0..30 {
        let (one, other) = (of_shard(0, round), of_shard(1, round));
        for ids in [&one, &other] {
            let queued = ids.iter().enumerate().map(|(n, id)| deferred(id).label("instance", &format!("i-{n}")));
            ask_all(&here, queued.collect()).await;
        }
        let forward = one.iter().map(|id| at_most(100, id)).collect();
        let backward = other.iter().rev().map(|id| at_most(100, id)).collect();
        let (one, other) = join(ask_all(&here, forward), ask_all(&there, backward)).await;
        assert!(one.iter().chain(&other).all(|answer| matches!(answer, Ok(Verdict::Done(Disposition::Applied, _)))));
    }
    let counters = direct(&database.dsn()).await;
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(counters.query_one(deadlocks, &[]).await.unwrap().get::<_, i64>(0), 0);
}

/// Another claim of the value is in the middle of its commit: a second claim of the value waits for it, and no other
/// command does.
#[tokio::test]
async fn a_claim_waits_for_another_of_its_value_and_other_shards_go_on() {
    let database = Database::fresh().await;
    let store = open(&database.dsn()).await;
    let [one, other] = [0, 1].map(|shard| {
        let mut ids = (0..).map(|n| format!("run-{n}"));
        ids.find(|id| home(&store, &key(id)) == Shard(shard)).expect("one of many")
    });
    for id in [&one, &other] {
        apply(&store, deferred(id).label("instance", "a")).await;
    }
    apply(&store, at_most(1, &one)).await;
    let holder = direct(&database.dsn()).await;
    holder.batch_execute("begin; select from max_running where value = 'a' for update").await.unwrap();
    let watch = direct(&database.dsn()).await;
    let elsewhere = (0..).map(|n| format!("elsewhere-{n}"));
    let elsewhere = elsewhere.filter(|id| home(&store, &key(id)) != home(&store, &key(&other))).take(20);
    let meanwhile = async {
        waiting(&watch).await;
        join_all(elsewhere.map(|id| {
            let store = &store;
            async move { apply(store, start(&id)).await }
        }))
        .await;
        apply(&store, complete(&one).epoch(1)).await;
        holder.batch_execute("commit").await.unwrap();
    };
    let (claimed, ()) = join(ask(&store, at_most(1, &other)), meanwhile).await;
    assert!(
        matches!(claimed, Ok(Verdict::Done(Disposition::Applied, _))),
        "what ended while it waited is seen: {claimed:?}"
    );
}
