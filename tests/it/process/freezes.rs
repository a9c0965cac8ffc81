//! A replica that is frozen in the middle of a commit holds its shard's head for seconds, not for ever.

use std::time::Duration;

use runledger_proto::v1::Disposition;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::calls::{Answer, Step, ask, meaning};
use super::data::Data;
use super::load::{Load, are_replayed, slowest};
use super::server::{SOON, Server, eventually};
use crate::support::postgres::Database;
use crate::support::proxy::{Proxy, Rule};

/// The time that a frozen replica may hold up the others.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Sessions that are in a transaction and do nothing.
const IDLE_IN_TRANSACTION: &str =
    "select pid from pg_stat_activity where datname = current_database() and state = 'idle in transaction'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_frozen_inside_a_commit_frees_its_shard_within_5_seconds() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let proxy = Proxy::start(&database.dsn()).await;
    let frozen = Server::start_with(&["--store", &proxy.in_front_of(&database.dsn()), "--shards", "1"]).await;
    frozen.is_ready().await;
    let free = Server::start(&data.store()).await;
    free.is_ready().await;

    // The first server's commit holds the head and has written; its COMMIT is on the way when the server is frozen.
    let (release, released) = watch::channel(false);
    proxy.meet(Rule::HoldUntil(released), 1);
    let mut victim = JoinSet::new();
    let mut client = frozen.hasty();
    victim.spawn(async move { ask(&mut client, "victim", Step::Start, "request").await });
    proxy.has_met(1).await;
    frozen.process.signal("STOP");
    let held = eventually(SOON, async || (!data.sql(IDLE_IN_TRANSACTION).await.is_empty()).then_some(())).await;
    assert!(held.is_some(), "the frozen server holds a transaction open");

    let begun = Instant::now();
    let answer = ask(&mut free.hasty(), "bystander", Step::Start, "request").await.unwrap();
    assert_eq!(answer, (Disposition::Applied, 1, 1));
    let waited = begun.elapsed();
    assert!(waited <= WAIT_MAX, "the other replica's caller waited {waited:?}");

    frozen.process.signal("CONT");
    release.send_replace(true);
    let answer = victim.join_next().await.unwrap().unwrap();
    let contents = data.sound().await;
    let made = contents.made_by("victim", "request");
    match answer {
        Ok(answer) => {
            assert_eq!(answer, (Disposition::Applied, 1, 1));
            assert_eq!(made, [1], "acknowledged");
        }
        Err(status) => match meaning(&status) {
            Answer::NothingWritten(_) => assert_eq!(made, Vec::<u64>::new(), "{status:?}"),
            Answer::Unknown(_) => assert!(made.len() <= 1, "{status:?}"),
            other @ (Answer::Applied(_) | Answer::Replayed(_) | Answer::Cut(_)) => panic!("{other:?}"),
        },
    }
    let again = ask(&mut frozen.hasty(), "after", Step::Start, "request").await.unwrap();
    assert_eq!(again, (Disposition::Applied, 1, 1), "the thawed server serves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_frozen_and_thawed_under_load_makes_no_answer_untrue() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let frozen = Server::start_with(&["--store", &data.store(), "--shards", "1"]).await;
    frozen.is_ready().await;
    let free = Server::start(&data.store()).await;
    free.is_ready().await;
    let (_one, frozen_targets) = watch::channel(vec![frozen.address]);
    let (_other, free_targets) = watch::channel(vec![free.address]);
    let mut theirs = Load::start("frozen", 16, &frozen_targets);
    let mut ours = Load::start("free", 16, &free_targets);
    for _ in 0..3 {
        theirs.progresses(50).await;
        frozen.process.signal("STOP");
        ours.progresses(50).await;
        // Long enough for the database to have ended the transactions that the frozen server held open.
        let ended = eventually(SOON, async || data.sql(IDLE_IN_TRANSACTION).await.is_empty().then_some(())).await;
        assert!(ended.is_some(), "a frozen server's transaction is ended");
        ours.progresses(50).await;
        frozen.process.signal("CONT");
    }
    theirs.progresses(50).await;
    let (mut theirs, ours) = (theirs.finish().await, ours.finish().await);
    let longest = slowest(&ours);
    assert!(longest.slowest <= WAIT_MAX, "a caller of the other replica waited too long: {longest:?}");
    are_replayed(&free, &mut theirs).await;
    theirs.extend(ours);
    data.sound().await.agree_with(&theirs);
}
