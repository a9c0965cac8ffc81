//! The connection to Postgres, cut around COMMIT: the caller gets the truth.

use std::time::Duration;

use runledger_client::Health;
use runledger_proto::v1::{Disposition, StartRunRequest};
use tokio::sync::watch;
use tokio::time::Instant;

use super::calls::{Answer, Step, ask};
use super::data::Data;
use super::load::{Load, answered, slowest};
use super::server::{SOON, Server};
use crate::support::postgres::Database;
use crate::support::proxy::{Proxy, Rule};

/// A server that reaches its database through a proxy.
pub(super) struct Behind {
    pub(super) proxy: Proxy,
    pub(super) server: Server,
    pub(super) data: Data,
    pub(super) _database: Database,
}

/// One shard: every commit waits for the one before.
pub(super) async fn behind_a_proxy() -> Behind {
    let database = Database::fresh().await;
    let proxy = Proxy::start(&database.dsn()).await;
    let store = proxy.in_front_of(&database.dsn());
    let server = Server::start_with(&["--store", &store, "--shards", "1"]).await;
    server.is_ready().await;
    Behind { proxy, server, data: Data::Postgres(database.dsn()), _database: database }
}

/// Does this to the COMMIT of one call: the call is applied all the same, once, and its caller is told so.
async fn is_applied_once(rule: Rule, at_least: Duration) {
    let Behind { proxy, server, data, _database } = behind_a_proxy().await;
    let mut client = server.hasty();
    for (met, run_id) in ["run-1", "run-2"].into_iter().enumerate() {
        proxy.meet(rule.clone(), 1);
        let begun = Instant::now();
        let answer = ask(&mut client, run_id, Step::Start, "request").await.unwrap();
        assert_eq!(answer, (Disposition::Applied, 1, 1), "{rule:?}");
        assert!(begun.elapsed() >= at_least, "{rule:?} was to take {at_least:?}");
        // The proxy counts when it has done with it, which may be after the answer.
        proxy.has_met(met + 1).await;
    }
    let contents = data.sound().await;
    assert_eq!(contents.events.len(), 2);
    assert_eq!(contents.made_by("run-1", "request"), [1]);
    // A first attempt that was not applied and one that was have the same shape in the ledger, so the log tells.
    if matches!(rule, Rule::DelayAnswer(_)) {
        assert!(!server.process.said().contains(" settled "), "{rule:?}:\n{}", server.process.said());
    } else {
        server.process.says(" settled ").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_settled_and_answered_as_applied() {
    is_applied_once(Rule::CutAfter, Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_reached_the_database_is_sent_again() {
    is_applied_once(Rule::CutBefore, Duration::ZERO).await;
}

/// A server that only looks for the commit finds nothing yet, and would send it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_still_on_its_way_is_waited_for_before_it_is_settled() {
    is_applied_once(Rule::CutAndDeliver(Duration::from_secs(1)), Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_3_seconds_late_is_waited_for() {
    is_applied_once(Rule::DelayAnswer(Duration::from_secs(3)), Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_a_run_id_whose_answer_is_lost_is_one_run_at_another_replica() {
    let Behind { proxy, mut server, data, _database: database } = behind_a_proxy().await;
    let nameless = StartRunRequest {
        task_thread_id: "thread-1".to_owned(),
        request_id: "request-1".to_owned(),
        ..StartRunRequest::default()
    };
    proxy.meet(Rule::DelayAnswer(SOON), 1);
    let mut client = server.hasty();
    let lost = client.start_run(nameless.clone());
    let killed = async {
        proxy.has_met(1).await;
        server.process.kill();
    };
    let (lost, ()) = tokio::join!(lost, killed);
    lost.expect_err("the server was killed between COMMIT and answer");

    let other = Server::start(&database.dsn()).await;
    other.is_ready().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let again = other.hasty().start_run(nameless.clone()).await.unwrap().into_inner();
        assert_eq!(again.disposition(), Disposition::Replayed);
        ids.push(again.run.unwrap().run_id);
    }
    assert_eq!(ids[0], ids[1]);
    assert_eq!(data.sound().await.events.len(), 1);
}

/// Does this to many COMMITs under load.
async fn load_gets_the_truth(rule: Rule, times: usize) {
    let Behind { proxy, server, data, _database } = behind_a_proxy().await;
    let (_servers, targets) = watch::channel(vec![server.address]);
    let mut load = Load::start("run", 16, &targets);
    load.progresses(100).await;
    for met in 1..=times {
        proxy.meet(rule.clone(), 1);
        proxy.has_met(met).await;
        load.progresses(20).await;
    }
    let calls = load.finish().await;
    data.sound().await.agree_with(&calls);
    assert_eq!(answered(&calls, |answer| matches!(answer, Answer::Cut(_))), 0, "the service answers for itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_no_cut_around_commit_makes_an_answer_untrue() {
    load_gets_the_truth(Rule::CutAfter, 4).await;
    load_gets_the_truth(Rule::CutBefore, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_cannot_be_settled_is_answered_as_unknown_or_not_written_and_truly_so() {
    let Behind { proxy, server, data, _database } = behind_a_proxy().await;
    // Sent again and again in vain: at the end the caller is told what is true, which is that nothing was written.
    proxy.meet(Rule::CutBefore, usize::MAX);
    let mut client = server.hasty();
    let failed = ask(&mut client, "run-1", Step::Start, "request").await.unwrap_err();
    let answer = super::calls::meaning(&failed);
    proxy.relent();
    let made = data.sound().await.made_by("run-1", "request");
    match answer {
        Answer::NothingWritten(_) => assert_eq!(made, Vec::<u64>::new(), "nothing was written"),
        Answer::Unknown(_) => assert!(made.len() <= 1),
        other @ (Answer::Applied(_) | Answer::Replayed(_) | Answer::Cut(_)) => panic!("{other:?}"),
    }
    let again = ask(&mut client, "run-1", Step::Start, "request").await.unwrap();
    assert_eq!(again, (Disposition::Applied, 1, 1), "the same call goes through once the database answers");
    data.sound().await;
}

/// The time that a call without a deadline may wait for its answer, and the time that the machine may add.
const ANSWER_MAX: Duration = Duration::from_secs(18);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_falls_silent_leaves_no_call_without_an_answer_and_no_answer_untrue() {
    let Behind { proxy, server, data, _database } = behind_a_proxy().await;
    let (_servers, targets) = watch::channel(vec![server.address]);
    let mut load = Load::start("run", 16, &targets);
    for _ in 0..2 {
        load.progresses(100).await;
        proxy.silence(true);
        server.becomes("", Health::NotServing, Duration::from_millis(2500)).await;
        assert_eq!(server.health("readiness").await, Some(Health::Serving));
        load.is_put_off(1).await;
        // Commits that were on their way arrive now, long after they were given up.
        proxy.silence(false);
        server.becomes("", Health::Serving, SOON).await;
    }
    load.progresses(100).await;
    let calls = load.finish().await;
    data.sound().await.agree_with(&calls);
    let longest = slowest(&calls);
    assert!(longest.slowest <= ANSWER_MAX, "{longest:?}");
    assert_eq!(answered(&calls, |answer| matches!(answer, Answer::Cut(_))), 0, "the service answers for itself");
}
