//! Callers that take much of what all share, beside an honest one: it is answered, and the server's memory is told by
//! its parts. Measured on request: what the honest caller's calls take alone and beside them.

mod beside;
mod kinds;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runledger_proto::v1::GetReplicaResponse;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep};

use super::honest::quantile_ms;
use super::table::greatest_memory;
use crate::process::replica::replica;
use crate::process::server::Server;
use crate::support::postgres::{Database, variable};
use beside::{Met, honest};
use kinds::{Asked, Got, Greedy, Size};

/// A greedy caller at work. Its threads run when nobody else would, as if it were on machines of its own: what it does to
/// others is what it makes the server do.
struct AtWork {
    asked: Arc<Asked>,
    runtime: Option<Runtime>,
}

impl AtWork {
    async fn begin(greedy: Greedy, server: &Server, size: Size, cursors: Vec<String>, time: Duration) -> Self {
        let runtime =
            Builder::new_multi_thread().worker_threads(2).on_thread_start(when_idle).enable_all().build().unwrap();
        let until = Instant::now() + greedy.begins_within() + time;
        let asked = Arc::new(Asked { address: server.address, size, until, cursors, got: Got::default() });
        runtime.spawn(greedy.take(asked.clone()));
        sleep(greedy.begins_within()).await;
        Self { asked, runtime: Some(runtime) }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.runtime.take().expect("taken here alone").shutdown_background();
    }
}

/// Lets this thread run when no other one would. A mere low priority does not: a thread that has begun a slice of time
/// keeps it for up to 3 ms, whoever wakes.
fn when_idle() {
    let thread = std::fs::read_link("/proc/thread-self").expect("a thread sees itself");
    let thread = thread.file_name().expect("the thread's id");
    // Where there is no chrt, which is of util-linux, the thread is as busy as the others.
    let _done = Command::new("chrt").args(["--idle", "--pid", "0"]).arg(thread).status();
}

/// The bytes that a server of any size takes for tasks and buffers, about: where a greedy caller got little, on a busy
/// machine, they are much of it.
const UNCOUNTED_BYTES: u64 = 8 << 20;

/// The memory that the parts leave unexplained.
fn unexplained(told: &GetReplicaResponse) -> u64 {
    told.memory.iter().find(|part| part.name == "not_counted").map_or(0, |part| part.bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_any_greedy_caller_every_honest_call_is_answered_and_memory_is_told_by_its_parts() {
    for greedy in Greedy::ALL {
        let server = Server::start_with(&["--store", "memory"]).await;
        server.is_ready().await;
        let size = Size { one_in: 20, values: 10_000 };
        let cursors = greedy.prepare(&server, size).await;
        let at_work = AtWork::begin(greedy, &server, size, cursors, Duration::from_mins(1)).await;
        let mut met = honest(server.address, Duration::from_millis(500)).await;
        if met.values().any(|(_, failed)| !failed.is_empty()) {
            // A machine that stands still for seconds refuses whoever waits: a greedy caller does so again.
            met = honest(server.address, Duration::from_millis(500)).await;
        }
        let told = replica(&server).await;
        drop(at_work);
        for (kind, (answered, failed)) in met {
            assert!(failed.is_empty() && !answered.is_empty(), "{greedy:?}, {kind}: {failed:?}");
        }
        for part in &told.memory {
            assert!(part.bytes_max == 0 || part.bytes <= part.bytes_max, "{greedy:?}: {part:?}");
        }
        let unexplained_max = UNCOUNTED_BYTES.max(told.resident_bytes / 5);
        assert!(unexplained(&told) <= unexplained_max, "{greedy:?}: {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measured_greedy_callers() {
    let Some(seconds) = variable("RUNLEDGER_TEST_GREEDY") else { return };
    let time = Duration::from_secs(seconds.parse().unwrap());
    let values = variable("RUNLEDGER_TEST_VALUES").map_or(40_000, |values| values.parse().unwrap());
    let (only, size) = (variable("RUNLEDGER_TEST_ATTACK"), Size { one_in: 1, values });
    println!(
        "| greedy caller | call | alone p50, p99 ms | beside p50, p99 ms | ratio of p99 | failed | MiB | it got |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for greedy in Greedy::ALL {
        if only.as_ref().is_some_and(|only| !format!("{greedy:?}").contains(only.as_str())) {
            continue;
        }
        let directory = TempDir::new().unwrap();
        let database = match variable("RUNLEDGER_TEST_OFFERED_STORE").as_deref() {
            Some("postgres") => Some(Database::fresh().await),
            _ => None,
        };
        let on_sqlite = || format!("sqlite:{}", directory.path().join("ledger.db").display());
        let server = Server::start(&database.as_ref().map_or_else(on_sqlite, Database::dsn)).await;
        server.is_ready().await;
        let cursors = greedy.prepare(&server, size).await;
        let alone = honest(server.address, time).await;
        let at_work = AtWork::begin(greedy, &server, size, cursors, time + Duration::from_secs(1)).await;
        let over = AtomicBool::new(false);
        let met = async {
            let met = honest(server.address, time).await;
            over.store(true, Ordering::Relaxed);
            met
        };
        let (met, memory) = tokio::join!(met, greatest_memory(&server, &over));
        let told = replica(&server).await;
        print(greedy, &alone, &met, memory, &at_work.asked.got);
        println!(
            "memory: {} KiB, of which {} % are not counted: {:?}",
            told.resident_bytes >> 10,
            unexplained(&told) * 100 / told.resident_bytes.max(1),
            told.memory
        );
    }
}

fn print(greedy: Greedy, alone: &Met, met: &Met, memory: u64, got: &Got) {
    for (kind, (alone, _)) in alone {
        let (beside, failed) = &met[kind];
        let (one, other) = (quantile_ms(alone.clone(), 0.99), quantile_ms(beside.clone(), 0.99));
        println!(
            "| {greedy:?} | {kind} | {:.1}, {one:.1} | {:.1}, {other:.1} | {:.2} | {} of {} | {} | {got:?} |",
            quantile_ms(alone.clone(), 0.5),
            quantile_ms(beside.clone(), 0.5),
            other / one,
            failed.len(),
            failed.len() + beside.len(),
            memory >> 10,
        );
    }
}
