//! Replicas whose machines have wrong clocks: on Postgres the database's clock decides, and nothing else.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use prost_types::Duration as WireDuration;
use runledger_proto::v1::{
    ClaimRunRequest, CompleteRunRequest, HeartbeatRunRequest, Run, RunStatus, StartRunRequest, WaitRunRequest,
};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::Code;

use super::calls::reason;
use super::data::Data;
use super::server::{Process, SOON, Server};
use crate::support::postgres::Database;

const HOUR: i64 = 3_600;

/// Loaded in front of the C library, it lets a process see the time of day so many seconds off.
const SHIFTED: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int (*real)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, time);
    const char *seconds = getenv("CLOCK_OFF_BY");
    if (!failed && clock == CLOCK_REALTIME && seconds) time->tv_sec += atol(seconds);
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
