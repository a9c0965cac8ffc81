//! Claims whose answers get lost: cut off after the commit, or for callers who have gone. No run is orphaned by that.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use prost_types::Duration as WireDuration;
use runledger_proto::v1::{
    ClaimNextRunRequest, CompleteRunRequest, CountRunsRequest, Disposition, GetRunRequest, ListRunEventsRequest,
    Progress, ReleaseRunRequest, RunEventType, RunStatus, StartRunRequest, UpdateRunRequest,
};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::{Code, Request};

use super::calls::reason;
use super::data::Data;
use super::server::{Client, Process, SOON, Server, client, eventually};
use crate::support::postgres::{Database, direct, variable};

/// The number of answers that are cut off; a longer test is run by hand.
fn cuts() -> usize {
    variable("RUNLEDGER_TEST_CUTS").map_or(160, |cuts| cuts.parse().unwrap())
}

const CLAIMERS: usize = 8;

/// Passes on what clients say, and swallows every answer.
async fn mute(server: SocketAddr) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut proxy = JoinSet::new();
    proxy.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (client, _) = listener.accept().await.unwrap();
            connections.spawn(async move {
                let (mut says, _unheard) = client.into_split();
                let (mut answers, mut hears) = TcpStream::connect(server).await.unwrap().into_split();
                let mut swallowed = tokio::io::sink();
                tokio::select! {
                    _cut = tokio::io::copy(&mut says, &mut hears) => {}
                    _cut = tokio::io::copy(&mut answers, &mut swallowed) => {}
                }
                let _gone = hears.shutdown().await;
            });
        }
    });
    (address, proxy)
}

async fn pending(client: &mut Client, run_id: &str) {
    let asked = StartRunRequest {
        task_thread_id: "queue".to_owned(),
        run_id: run_id.to_owned(),
        deferred: true,
        ..StartRunRequest::default()
    };
    client.start_run(asked).await.unwrap();
}

fn ask(request_id: &str, wait: i64) -> ClaimNextRunRequest {
    ClaimNextRunRequest {
        lease_ttl: Some(WireDuration { seconds: 5, nanos: 0 }),
        wait: Some(WireDuration { seconds: wait, nanos: 0 }),
        request_id: request_id.to_owned(),
        ..ClaimNextRunRequest::default()
    }
}

async fn complete(client: &mut Client, run_id: String, lease_epoch: u64) {
    client
        .complete_run(CompleteRunRequest { run_id, lease_epoch, ..CompleteRunRequest::default() })
        .await
        .expect("it is this claimer's");
}

/// One claimer's share: each run that it is granted by an answer that is cut off after the commit, it gets all the same
/// by asking again, on another replica.
async fn cut_off(dsn: String, muted: SocketAddr, other: SocketAddr, claimer: usize, count: usize) {
    let (session, mut second) = (direct(&dsn).await, client(other));
    for n in 0..count {
        let request_id = format!("claim-{claimer}-{n}");
        let lookup = format!("select run_id from claims where request_id = '{request_id}' and run_id is not null");
        let mut attempt = JoinSet::new();
        let granted = eventually(SOON, async || {
            // An answer that nothing was written, as a busy server gives it, is cut off as well: it is asked anew.
            attempt.shutdown().await;
            let (mut first, asked) = (client(muted), ask(&request_id, 0));
            attempt.spawn(async move { first.claim_next_run(asked).await.map(|_| ()) });
            eventually(SOON / 3, async || {
                let found = session.query_opt(&lookup, &[]).await.unwrap();
                found.map(|row| row.get::<_, String>(0))
            })
            .await
        });
        let run_id = granted.await.expect("it is claimed");
        attempt.shutdown().await;
        // Given back in this moment, it is ready, and the other replica hears of that a little later.
        let again = second.claim_next_run(ask(&request_id, 30)).await.unwrap().into_inner();
        let run = again.run.clone().expect("it has been claimed");
        let epoch = run.lease.as_ref().unwrap().epoch;
        if again.disposition() == Disposition::Replayed {
            assert_eq!(run.run_id, run_id, "the same run, and the same lease");
        } else {
            assert!(epoch > 1 || run.run_id != run_id, "given back meanwhile, the claim is a new one");
        }
        complete(&mut second, run.run_id, epoch).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_cut_off_after_the_commit_orphans_no_run() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let (here, there) = (Server::start(&data.store()).await, Server::start(&data.store()).await);
    here.is_ready().await;
    there.is_ready().await;
    let share = cuts() / CLAIMERS;
    let mut maker = here.client();
    for n in 0..share * CLAIMERS {
        pending(&mut maker, &format!("run-{n}")).await;
    }
    let (muted, _proxy) = mute(here.address).await;
    join_all((0..CLAIMERS).map(|claimer| cut_off(database.dsn(), muted, there.address, claimer, share))).await;
    let left = data.sql("select status, count(*) from runs group by status").await;
    assert_eq!(
        left,
        [[Some("3".to_owned()), Some((share * CLAIMERS).to_string())]],
        "each is completed, none orphaned"
    );
    data.sound().await;
}

/// A caller that has gone while its claim waited for the shard's head, and asks for nothing new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_caller_has_gone_when_its_answer_is_due_is_the_next_callers() {
    let database = Database::fresh().await;
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let (mut maker, holder) = (server.client(), direct(&database.dsn()).await);
    for n in 0..5 {
        let run_id = format!("run-{n}");
        pending(&mut maker, &run_id).await;
        holder.batch_execute("begin; select from shards for update").await.unwrap();
        let mut gone = server.client();
        let (mut claims, mut asks) = (gone.clone(), JoinSet::new());
        asks.spawn(async move { claims.claim_next_run(ask("", 0)).await.map(drop) });
        let waits = "select count(*) from pg_stat_activity
                     where datname = current_database() and wait_event_type = 'Lock'";
        let waiting = eventually(SOON, async || {
            let waiting: i64 = holder.query_one(waits, &[]).await.unwrap().get(0);
            (waiting > 0).then_some(())
        });
        waiting.await.expect("the claim waits for the head");
        asks.shutdown().await;
        // On one connection, what comes later is heard later: the server knows by now that the caller has gone.
        let _known = gone.get_run(GetRunRequest { run_id: run_id.clone(), ..GetRunRequest::default() }).await.unwrap();
        holder.batch_execute("rollback").await.unwrap();
        let run = maker.claim_next_run(ask("", 30)).await.unwrap().into_inner().run.expect("it is the next caller's");
        assert_eq!((run.run_id.as_str(), run.lease.as_ref().unwrap().epoch), (run_id.as_str(), 3), "given back");
        complete(&mut maker, run.run_id, 3).await;
    }
    Data::Postgres(database.dsn()).sound().await;
}

/// A caller that has gone when the first of its runs was claimed, and the others wait for the heads of their shards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_runs_none_is_lost_whose_caller_has_gone_before_the_last_was_claimed() {
    let database = Database::fresh().await;
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let (mut maker, holder) = (server.client(), direct(&database.dsn()).await);
    for n in 0..20 {
        pending(&mut maker, &format!("run-{n}")).await;
    }
    holder
        .batch_execute(
            "begin; select from shards where shard <> (select shard from runs where run_id = 'run-0') for update",
        )
        .await
        .unwrap();
    let gone = server.client();
    let (mut claims, mut asks) = (gone.clone(), JoinSet::new());
    asks.spawn(
        async move { claims.claim_next_run(ClaimNextRunRequest { max_runs: 20, ..ask("mine", 0) }).await.map(drop) },
    );
    let look = direct(&database.dsn()).await;
    let claimed = eventually(SOON, async || {
        let waits =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                     and exists (select from runs where run_id = 'run-0' and status = 2)";
        let waiting: i64 = look.query_one(waits, &[]).await.unwrap().get(0);
        (waiting > 0).then_some(())
    });
    claimed.await.expect("the first is claimed, and others wait for their heads");
    asks.shutdown().await;
    let unknown = GetRunRequest { run_id: "run-0".to_owned(), ..GetRunRequest::default() };
    let _known = gone.clone().get_run(unknown).await.unwrap();
    holder.batch_execute("rollback").await.unwrap();
    let mut left = 20;
    while left > 0 {
        let answer =
            maker.claim_next_run(ClaimNextRunRequest { max_runs: 20, ..ask("", 30) }).await.unwrap().into_inner();
        for run in answer.run.into_iter().chain(answer.more_runs) {
            let epoch = run.lease.as_ref().unwrap().epoch;
            assert!(epoch == 1 || epoch == 3, "given back, or never claimed: {run:?}");
            complete(&mut maker, run.run_id, epoch).await;
            left -= 1;
        }
    }
    Data::Postgres(database.dsn()).sound().await;
}

/// A caller that asks again for several runs, and has gone when all of them were noted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_runs_that_are_asked_for_again_none_is_lost_whose_caller_has_gone() {
    let database = Database::fresh().await;
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let (mut maker, holder, look) = (server.client(), direct(&database.dsn()).await, direct(&database.dsn()).await);
    for n in 0..20 {
        pending(&mut maker, &format!("run-{n}")).await;
    }
    let several = ClaimNextRunRequest { max_runs: 20, ..ask("mine", 0) };
    let granted = maker.claim_next_run(several.clone()).await.unwrap().into_inner();
    assert_eq!(granted.more_runs.len(), 19);
    holder.batch_execute("begin; lock table runs in access exclusive mode").await.unwrap();
    let gone = server.client();
    let (mut claims, mut asks) = (gone.clone(), JoinSet::new());
    asks.spawn(async move { claims.claim_next_run(several).await.map(drop) });
    let waiting = eventually(SOON, async || {
        let waits = "select count(*) from pg_stat_activity
                     where datname = current_database() and wait_event_type = 'Lock' and query like '%read.%'
                       and (select min(replays) from claims) = 1";
        let waiting: i64 = look.query_one(waits, &[]).await.unwrap().get(0);
        (waiting > 0).then_some(())
    });
    waiting.await.expect("the answer is noted, and the runs are to be read");
    asks.shutdown().await;
    // It is refused without a look at the store.
    let _known = gone.clone().get_run(GetRunRequest::default()).await.unwrap_err();
    holder.batch_execute("rollback").await.unwrap();
    let mut left = 20;
    while left > 0 {
        let asked = ClaimNextRunRequest { max_runs: 20, ..ask("", 30) };
        let answer = maker.claim_next_run(asked).await.unwrap().into_inner();
        for run in answer.run.into_iter().chain(answer.more_runs) {
            assert_eq!(run.lease.as_ref().unwrap().epoch, 3, "given back");
            complete(&mut maker, run.run_id, 3).await;
            left -= 1;
        }
    }
    Data::Postgres(database.dsn()).sound().await;
}

/// The first of several runs was given back, and the others were not: another attempt of the request is told of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_request_was_granted_before_comes_with_the_run_that_it_claims_anew() {
    let database = Database::fresh().await;
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let (mut client, direct) = (server.client(), direct(&database.dsn()).await);
    for n in 0..5 {
        pending(&mut client, &format!("run-{n}")).await;
    }
    let several = ClaimNextRunRequest { max_runs: 3, ..ask("mine", 0) };
    let ids = async || {
        let answer = client.clone().claim_next_run(several.clone()).await.unwrap().into_inner();
        let runs = answer.run.clone().into_iter().chain(answer.more_runs.clone());
        (answer.disposition(), runs.map(|run| run.run_id).collect::<Vec<_>>())
    };
    assert_eq!(ids().await, (Disposition::Applied, ["run-0", "run-1", "run-2"].map(str::to_owned).to_vec()));
    let forgotten = direct.execute("delete from claims where request_id = 'mine'", &[]).await.unwrap();
    assert_eq!(forgotten, 1, "that of the first run");
    assert_eq!(ids().await, (Disposition::Applied, ["run-3", "run-1", "run-2"].map(str::to_owned).to_vec()));
    assert_eq!(ids().await, (Disposition::Replayed, ["run-3", "run-1", "run-2"].map(str::to_owned).to_vec()));
    // And where no other run waits than the one that comes first.
    let forgotten = direct.execute("delete from claims where request_id = 'mine'", &[]).await.unwrap();
    assert_eq!(forgotten, 1);
    assert_eq!(ids().await, (Disposition::Applied, ["run-4", "run-1", "run-2"].map(str::to_owned).to_vec()));
}

/// Workers that are told to end while they look for work, which comes all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stops_orphans_no_run_that_it_had_not_begun() {
    let server = Server::start("memory").await;
    server.is_ready().await;
    let address = server.address.to_string();
    let stops = cuts() / 8;
    let mut maker = server.client();
    for n in 0..stops {
        let args = ["run", "worker", "--server", &address, "--claim", "--lease-ttl", "2s", "--", "true"];
        let mut worker = Process::spawn_with(&args, &[("PATH", "/usr/local/bin:/usr/bin:/bin")]);
        let begun = format!("first-{n}");
        pending(&mut maker, &begun).await;
        worker.says(&format!("run {begun} begins")).await;
        for m in 0..4 {
            pending(&mut maker, &format!("run-{n}-{m}")).await;
        }
        sleep(Duration::from_micros(u64::try_from(n).unwrap() * 700)).await;
        worker.signal("TERM");
        let (code, said) = worker.exited(SOON).await;
        assert_eq!(code, 128 + 15, "{said}");
        // The next worker takes the runs that are left, and the one after it the rest.
        while let Some(run) = maker.claim_next_run(ask("", 0)).await.unwrap().into_inner().run {
            complete(&mut maker, run.run_id, run.lease.unwrap().epoch).await;
        }
    }
    let left = eventually(SOON, async || {
        while let Some(run) = maker.claim_next_run(ask("", 0)).await.unwrap().into_inner().run {
            complete(&mut maker, run.run_id, run.lease.unwrap().epoch).await;
        }
        let counted = maker.count_runs(CountRunsRequest::default()).await.unwrap().into_inner();
        let of = |status: RunStatus| counted.counts.iter().find(|count| count.status() == status).unwrap().count;
        (of(RunStatus::Running) + of(RunStatus::Pending) == 0).then(|| of(RunStatus::Failed))
    });
    assert_eq!(left.await, Some(0), "nothing is left with nobody, and nothing is orphaned");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_that_was_applied_never_says_that_nothing_was_written() {
    let database = Database::fresh().await;
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let mut client = server.client();
    let asked = StartRunRequest {
        task_thread_id: "thread-1".to_owned(),
        run_id: "run-1".to_owned(),
        lease_ttl: Some(WireDuration { seconds: 60, nanos: 0 }),
        ..StartRunRequest::default()
    };
    client.start_run(asked).await.unwrap();
    let get = GetRunRequest { run_id: "run-1".to_owned(), ..GetRunRequest::default() };
    let mut never = Vec::new();
    for done in 1..=60 {
        let update = UpdateRunRequest {
            run_id: "run-1".to_owned(),
            lease_epoch: 1,
            labels: [("step".to_owned(), done.to_string())].into(),
            progress: Some(Progress { done, ..Progress::default() }),
            ..UpdateRunRequest::default()
        };
        let mut asked = Request::new(update);
        asked.set_timeout(Duration::from_millis(18));
        let answer = client.update_run(asked).await;
        if answer.is_err_and(|status| status.code() == Code::DeadlineExceeded && reason(&status) == "DEADLINE") {
            never.push(done.to_string());
        }
    }
    let asked = ListRunEventsRequest { run_id: "run-1".to_owned(), ..ListRunEventsRequest::default() };
    let events = client.list_run_events(asked).await.unwrap().into_inner().events;
    let steps = events.iter().filter_map(|event| event.changes.as_ref()?.labels.get("step"));
    assert!(steps.clone().count() > 0, "some are quick enough");
    assert_eq!(steps.filter(|step| never.contains(step)).count(), 0, "of those nothing was written");
    let shown = eventually(SOON, async || {
        let run = client.get_run(get.clone()).await.unwrap().into_inner().run.unwrap();
        run.progress.filter(|progress| progress.done > 0)
    });
    assert!(shown.await.is_some(), "what was said of the work is shown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_its_holder_has_not_begun_is_shown_as_ready_and_taken_in_its_turn() {
    let server = Server::start("memory").await;
    server.is_ready().await;
    let mut client = server.client();
    for run_id in ["first", "second"] {
        pending(&mut client, run_id).await;
    }
    let run = client.claim_next_run(ask("", 0)).await.unwrap().into_inner().run.unwrap();
    assert_eq!(run.run_id, "first");
    let release =
        ReleaseRunRequest { run_id: run.run_id, lease_epoch: 1, not_begun: true, ..ReleaseRunRequest::default() };
    let run = client.release_run(release).await.unwrap().into_inner().run.unwrap();
    assert_eq!((run.status(), run.ready.unwrap().not_begun), (RunStatus::Running, true));
    assert!(run.lease.unwrap().released);
    let asked = ListRunEventsRequest { run_id: "first".to_owned(), ..ListRunEventsRequest::default() };
    let event = client.list_run_events(asked).await.unwrap().into_inner().events.pop().unwrap();
    assert_eq!(
        (event.r#type(), event.from(), event.to()),
        (RunEventType::Ready, RunStatus::Running, RunStatus::Running)
    );
    assert!(event.changes.unwrap().ready.is_some());
    for (run_id, epoch) in [("first", 3), ("second", 1)] {
        let run = client.claim_next_run(ask("", 0)).await.unwrap().into_inner().run.unwrap();
        assert_eq!(
            (run.run_id.as_str(), run.ready, run.lease.unwrap().epoch),
            (run_id, None, epoch),
            "the oldest first"
        );
    }
}
