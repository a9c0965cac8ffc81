//! Machines with wrong clocks: on Postgres the database's clock says what time it is, and on SQLite the server's; and what is
//! over is over by the time that passes, also in ledgers that the release before left with a time to come.

mod credentials;
mod extremes;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use prost_types::Duration as WireDuration;
use runledger::clock::{Clock as _, SystemClock};
use runledger_proto::v1::{
    ClaimRunRequest, CompleteRunRequest, HeartbeatRunRequest, RequestAbortRequest, Run, RunStatus, StartRunRequest,
    WaitRunRequest,
};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::Code;

use super::calls::reason;
use super::data::Data;
use super::server::{Process, SOON, Server, eventually, run};
use crate::inspect::broken::finds;
use crate::support::postgres::Database;

const HOUR: i64 = 3_600;

const YEAR_AND_MORE: i64 = 400 * 24 * HOUR;

/// Loaded in front of the C library, it lets a process see the time of day so many seconds off: by a variable, or by what a
/// file says at the moment.
const SHIFTED: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long off_by(void) {
    const char *seconds = getenv("CLOCK_OFF_BY"), *path = getenv("CLOCK_FILE");
    char text[32] = {0};
    int file = path ? open(path, O_RDONLY) : -1;
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) > 0) seconds = text;
        close(file);
    }
    return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int (*real)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, time);
    if (!failed && clock == CLOCK_REALTIME) time->tv_sec += off_by();
    return failed;
}
"#;

/// The library, built by the compiler that links this test.
fn shifted(directory: &TempDir) -> PathBuf {
    let (source, library) = (directory.path().join("shifted.c"), directory.path().join("shifted.so"));
    std::fs::write(&source, SHIFTED).unwrap();
    let mut compiler = Command::new("cc");
    let built = compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status().unwrap();
    assert!(built.success());
    library
}

async fn server(store: &str, library: &std::path::Path, off_by: i64) -> Server {
    let environment = [("LD_PRELOAD", library.to_str().unwrap()), ("CLOCK_OFF_BY", &off_by.to_string())];
    let args = ["serve", "--listen", "127.0.0.1:0", "--store", store];
    let server = Server::of(Process::spawn_with(&args, &environment)).await;
    server.is_ready().await;
    server
}

fn seconds(seconds: i64) -> WireDuration {
    WireDuration { seconds, nanos: 0 }
}

fn leased(run_id: &str, ttl: i64) -> StartRunRequest {
    let (task_thread_id, run_id) = ("thread-1".to_owned(), run_id.to_owned());
    StartRunRequest { task_thread_id, run_id, lease_ttl: Some(seconds(ttl)), ..StartRunRequest::default() }
}

async fn start(server: &Server, asked: StartRunRequest) -> Run {
    server.client().start_run(asked).await.unwrap().into_inner().run.unwrap()
}

async fn ended(server: &Server, run_id: &str) -> Run {
    let asked = WaitRunRequest { run_id: run_id.to_owned(), ..WaitRunRequest::default() };
    server.client().wait_run(asked).await.unwrap().into_inner().run.unwrap()
}

/// In seconds.
fn lived(run: &Run) -> f64 {
    let (from, to) = (run.started_at.unwrap(), run.completed_at.unwrap());
    #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
    let seconds = (to.seconds - from.seconds) as f64;
    seconds + f64::from(to.nanos - from.nanos) / 1e9
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_an_hour_ahead_and_behind_end_no_lease_too_soon_or_too_late() {
    let directory = TempDir::new().unwrap();
    let library = shifted(&directory);
    // The shifted clock has an effect: on SQLite the process's clock is the store's.
    let alone = server("memory", &library, HOUR).await;
    let right = Server::start("memory").await;
    right.is_ready().await;
    let [off, on] = [start(&alone, leased("run", 60)).await, start(&right, leased("run", 60)).await];
    assert!((off.started_at.unwrap().seconds - on.started_at.unwrap().seconds - HOUR).abs() < 60);
    drop((alone, right));

    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let (ahead, behind) = (server(&data.store(), &library, HOUR).await, server(&data.store(), &library, -HOUR).await);
    for (server, way) in [(&ahead, "ahead of"), (&behind, "behind")] {
        let address = server.address.to_string();
        let (code, said) = run(&["doctor", "--store", &data.store(), "--server", &address]).await;
        let wanted = format!("The clock of the machine of {address} is ");
        let told = said.lines().find_map(|line| Some(line.split_once(&wanted)?.1));
        assert!(code == 1 && told.is_some_and(|told| told.ends_with(&format!("{way} the store's."))), "{code}: {said}");
        finds(&data.store(), &["--server", &address], "machine_clock").await;
    }
    let alive = start(&ahead, leased("alive", 2)).await;
    for (n, server) in [&ahead, &behind].into_iter().enumerate() {
        let first = start(server, leased(&format!("dead-{n}"), 2)).await.started_at.unwrap();
        assert!((first.seconds - alive.started_at.unwrap().seconds).abs() < 60, "the database's clock");
        let limited = StartRunRequest { run_timeout: Some(seconds(2)), ..leased(&format!("limited-{n}"), 60) };
        start(server, limited).await;
    }
    // The holder's heartbeats reach the one replica and the other.
    let mut beats = JoinSet::new();
    let clients = [behind.client(), ahead.client()];
    beats.spawn(async move {
        for n in 0.. {
            let run_id = "alive".to_owned();
            let beat = HeartbeatRunRequest { run_id, lease_epoch: 1, ..HeartbeatRunRequest::default() };
            clients[n % 2].clone().heartbeat_run(beat).await.unwrap();
            sleep(Duration::from_millis(300)).await;
        }
    });
    for (n, server) in [&behind, &ahead].into_iter().enumerate() {
        let dead = ended(server, &format!("dead-{n}")).await;
        assert_eq!((dead.status(), dead.reason_code.as_str()), (RunStatus::Failed, "ORPHANED"));
        let limited = ended(server, &format!("limited-{n}")).await;
        assert_eq!((limited.status(), limited.reason_code.as_str()), (RunStatus::Aborted, "TIMEOUT"));
        for run in [&dead, &limited] {
            assert!((2.0..SOON.as_secs_f64()).contains(&lived(run)), "{}: {} s", run.run_id, lived(run));
        }
    }
    let run_id = "alive".to_owned();
    let claim = ClaimRunRequest { run_id: run_id.clone(), lease_ttl: Some(seconds(2)), ..ClaimRunRequest::default() };
    let held = ahead.client().claim_run(claim).await.unwrap_err();
    assert_eq!((held.code(), reason(&held).as_str()), (Code::FailedPrecondition, "LEASE_HELD"));
    let done = CompleteRunRequest { run_id, lease_epoch: 1, ..CompleteRunRequest::default() };
    beats.abort_all();
    let done = behind.client().complete_run(done).await.unwrap().into_inner().run.unwrap();
    assert_eq!((done.status(), done.revision), (RunStatus::Completed, 2));
    data.sound().await;
}

fn limited(run_id: &str, timeout: i64) -> StartRunRequest {
    StartRunRequest { run_timeout: Some(seconds(timeout)), ..leased(run_id, 3_600) }
}

/// Starts a run with each deadline that a call can set for two seconds from now, and one whose worker is gone; their ids.
async fn start_what_ends(server: &Server, round: &str) -> [(String, &'static str); 4] {
    let id = |name: &str| format!("{name}-{round}");
    start(server, limited(&id("run"), 2)).await;
    let deferred = StartRunRequest { deferred: true, start_timeout: Some(seconds(2)), ..leased(&id("start"), 0) };
    start(server, StartRunRequest { lease_ttl: None, ..deferred }).await;
    start(server, leased(&id("grace"), 3_600)).await;
    let grace = RequestAbortRequest { run_id: id("grace"), grace: Some(seconds(2)), ..RequestAbortRequest::default() };
    server.client().request_abort(grace).await.unwrap();
    start(server, leased(&id("dead"), 2)).await;
    [(id("run"), "TIMEOUT"), (id("start"), "TIMEOUT"), (id("grace"), "ABORT_GRACE_EXPIRED"), (id("dead"), "ORPHANED")]
}

/// The time that it is, as a run that starts now bears it.
async fn time_of_a_start(server: &Server, run_id: &str) -> i64 {
    start(server, leased(run_id, 3_600)).await.started_at.unwrap().seconds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_wrong_for_a_moment_stops_no_deadline_and_is_told_of() {
    let directory = TempDir::new().unwrap();
    let (library, clock) = (shifted(&directory), directory.path().join("clock"));
    let set = |seconds: i64| std::fs::write(&clock, seconds.to_string()).unwrap();
    set(0);
    let store = format!("sqlite:{}", directory.path().join("ledger.db").display());
    let environment = [("LD_PRELOAD", library.to_str().unwrap()), ("CLOCK_FILE", clock.to_str().unwrap())];
    let server =
        Server::of(Process::spawn_with(&["serve", "--listen", "127.0.0.1:0", "--store", &store], &environment));
    let server = server.await;
    server.is_ready().await;
    let before = time_of_a_start(&server, "before").await;
    for (n, by) in [YEAR_AND_MORE, -YEAR_AND_MORE].into_iter().enumerate() {
        set(by);
        let round = format!("wrong-{n}");
        let there = start_what_ends(&server, &round).await;
        let wrong = start(&server, limited(&format!("last-{n}"), 8)).await;
        let steps = |text: &str| text.matches("the clock was set").count();
        assert!(eventually(SOON, async || (steps(&server.process.said()) > 2 * n).then_some(())).await.is_some());
        set(0);
        let here = start_what_ends(&server, &format!("right-{n}")).await;
        for (run_id, reason) in there.into_iter().chain(here) {
            let ended = ended(&server, &run_id).await;
            assert_eq!(ended.reason_code, reason, "{run_id}");
            let (from, to) = (ended.started_at.unwrap(), ended.completed_at.unwrap());
            assert!((from.seconds, from.nanos) <= (to.seconds, to.nanos), "{run_id}: no time of a run falls");
        }
        let after = time_of_a_start(&server, &format!("after-{n}")).await;
        assert!((0..600).contains(&(after - before)), "a run that starts later bears the time that it is, not {after}");
        // The last event is of the run whose times are wrong.
        assert_eq!(ended(&server, &wrong.run_id).await.reason_code, "TIMEOUT");
        if by > 0 {
            let (code, said) = run(&["doctor", "--store", &store]).await;
            assert!(code == 1 && said.contains("ahead of the store's clock"), "{code}: {said}");
        }
    }
    let now = exported_of_now(&store).await;
    for (run_id, is_of_now) in [("before", true), ("after-0", true), ("after-1", true), ("last-0", false)] {
        assert_eq!(now.contains(&format!("\"runId\":\"{run_id}\"")), is_of_now, "{run_id}: {now}");
    }
    let said = server.process.said();
    assert_eq!(said.matches("the clock was set").count(), 4, "each step is said once: {said}");
    let (_, told) = run(&["doctor", "--store", &store, "--server", &server.address.to_string()]).await;
    let told: Vec<&str> =
        told.lines().filter_map(|line| line.trim().strip_prefix("the store's clock was set ")).collect();
    let ways: Vec<&str> = told.iter().map(|told| told.split_once(" by ").unwrap().0).collect();
    assert_eq!(ways, ["forward", "back", "back", "forward"], "the last one first: {told:?}");
    assert!(told.iter().all(|told| told.contains(" d, ") && told.ends_with(" ago")), "{told:?}");
    let (code, said) = run(&["verify", "--store", &store]).await;
    assert_eq!(code, 0, "{said}");
}

/// What an export says of the time from an hour ago until tomorrow.
async fn exported_of_now(store: &str) -> String {
    let until = SystemClock.now().plus_ms(24 * 3_600_000).to_string();
    let (code, said) = run(&["export", "--store", store, "--since", "1h", "--until", &until]).await;
    assert_eq!(code, 0, "{said}");
    said
}

/// The release before this one works on a ledger while its clock is 400 days ahead; then this one does, by the right clock.
async fn goes_on_by_the_right_clock(data: &Data, older: Process) {
    let mut older = Server::of(older).await;
    older.is_ready().await;
    start(&older, limited("before", 8)).await;
    start(&older, limited("long", 3_600)).await;
    start(&older, leased("dead", 8)).await;
    if matches!(data, Data::Postgres(_)) {
        // A server that begins alone says so after 2 s, and until then nobody else knows by which clock it served.
        let stamped = "select 1 from uptime where alive_at > pg_catalog.clock_timestamp() + interval '399 days'";
        let is_there = async || (!data.sql(stamped).await.is_empty()).then_some(());
        assert!(eventually(SOON, is_there).await.is_some(), "it stamps");
    }
    older.process.kill();
    if matches!(data, Data::Postgres(_)) {
        let name = data.sql("select current_database()").await[0][0].clone().unwrap();
        data.sql(&format!("alter database {name} reset search_path; drop schema clock cascade")).await;
    }
    let server = Server::start_with(&["--store", &data.store(), "--migrate"]).await;
    server.is_ready().await;
    let begun = tokio::time::Instant::now();
    assert_eq!(ended(&server, "before").await.reason_code, "TIMEOUT");
    assert_eq!(ended(&server, "dead").await.reason_code, "ORPHANED");
    for (run_id, reason) in start_what_ends(&server, "new").await {
        assert_eq!(ended(&server, &run_id).await.reason_code, reason, "{run_id}");
    }
    let now = exported_of_now(&data.store()).await;
    for (place, is_of_now) in
        [(r#""runId":"run-new""#, true), (r#""runId":"dead-new""#, true), (r#""runId":"long""#, false)]
    {
        assert_eq!(now.contains(place), is_of_now, "{place} of {now}");
    }
    assert!(begun.elapsed() < 2 * SOON, "nothing waits for the time that the clock showed: {:?}", begun.elapsed());
    let (code, said) = run(&["verify", "--store", &data.store()]).await;
    assert_eq!(code, 0, "the run that goes on is due sooner than it says, and sound: {said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_sqlite_ledger_of_the_release_before_with_a_time_to_come_goes_on_rightly() {
    let directory = TempDir::new().unwrap();
    let (library, off_by) = (shifted(&directory), YEAR_AND_MORE.to_string());
    let data = Data::Sqlite(directory.path().join("ledger.db"));
    let environment = [("LD_PRELOAD", library.to_str().unwrap()), ("CLOCK_OFF_BY", &off_by)];
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", &data.store()];
    goes_on_by_the_right_clock(&data, Process::spawn_older_with(&serve, &environment)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_ledger_of_the_release_before_with_a_time_to_come_goes_on_rightly() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let (code, said) = Process::spawn_older(&["migrate", "--store", &data.store()]).exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    let ahead = "create schema clock;
        create function clock.clock_timestamp() returns timestamptz language sql volatile
        as $$ select pg_catalog.clock_timestamp() + interval '400 days' $$";
    data.sql(ahead).await;
    data.sql(&format!("alter database {} set search_path = clock, pg_catalog, public", database.name())).await;
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", &data.store()];
    goes_on_by_the_right_clock(&data, Process::spawn_older(&serve)).await;
}
