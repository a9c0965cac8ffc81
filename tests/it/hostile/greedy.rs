//! Callers that take much of what all share, beside an honest one, measured: what its calls take alone and beside them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::watch_runs_response::Frame;
use runledger_proto::v1::{
    ClaimNextRunRequest, GetRunRequest, ListRunsRequest, MaxRunning, Run, RunFilter, StartRunRequest, UpdateRunRequest,
    WaitRunRequest, WatchRunsRequest,
};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout_at};

use super::honest::quantile_ms;
use super::table::greatest_memory;
use crate::process::calls::{Step, ask};
use crate::process::replica::replica;
use crate::process::server::{Client, Server, client};
use crate::support::postgres::{Database, variable};

/// One call of each kind in this time.
const EVERY: Duration = Duration::from_millis(8);

/// Connections of a greedy caller that needs many: each takes 1,024 streams.
const CONNECTIONS: usize = 12;

/// A greedy caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greedy {
    /// 2,000 claims that wait, each by a filter of its own.
    ClaimFilters,
    /// 64 callers that list everything, one page after the other.
    Listers,
    /// 10,000 waits on runs of 60 KB.
    Waits,
    /// 5,000 watches of many runs, each by a filter of its own.
    NarrowWatchers,
    /// 50 watches of everything that begin a long way back.
    FallenBehind,
    /// Claims of runs with 40,000 values of a limited label, each of which is full.
    Values,
}

impl Greedy {
    const ALL: [Self; 6] =
        [Self::ClaimFilters, Self::Listers, Self::Waits, Self::NarrowWatchers, Self::FallenBehind, Self::Values];

    /// Makes the runs that the caller is greedy for.
    async fn prepare(self, server: &Server) {
        match self {
            Self::ClaimFilters | Self::NarrowWatchers => {}
            Self::Listers => {
                start_many(server, 2_000, |n| StartRunRequest {
                    task_thread_id: format!("thread-{}", n % 7),
                    ..StartRunRequest::default()
                })
                .await;
            }
            Self::FallenBehind => {
                start_many(server, 20_000, |_| StartRunRequest {
                    task_thread_id: "behind".to_owned(),
                    ..StartRunRequest::default()
                })
                .await;
            }
            Self::Waits => {
                let mut client = server.client();
                for nth in 0..100 {
                    let run_id = format!("waited-{nth}");
                    ask(&mut client, &run_id, Step::Start, "").await.unwrap();
                    ask(&mut client, &run_id, Step::Bulk, "").await.unwrap();
                }
            }
            Self::Values => {
                let pending = |n: usize| StartRunRequest {
                    task_thread_id: "values".to_owned(),
                    deferred: true,
                    labels: [("value".to_owned(), format!("{}", n / 2))].into(),
                    ..StartRunRequest::default()
                };
                start_many(server, 2 * values(), pending).await;
                let client = server.client();
                let claims = (0..64).map(|_| {
                    let mut client = client.clone();
                    async move { while let Ok(Some(_)) = claim_value(&mut client).await {} }
                });
                join_all(claims).await;
            }
        }
    }

    /// Is greedy until then. Returns once it has all that it gets at first.
    async fn begin(self, address: SocketAddr, until: Instant, got: Arc<Got>) -> JoinSet<()> {
        let clients: Vec<Client> = (0..CONNECTIONS).map(|_| client(address)).collect();
        let client_of = |nth: usize| clients[nth % CONNECTIONS].clone();
        let mut tasks = JoinSet::new();
        match self {
            Self::ClaimFilters => {
                for nth in 0..2_000 {
                    let (mut client, got) = (client_of(nth), got.clone());
                    tasks.spawn(again(until, async move || {
                        let asked = claim(&format!("greedy-{nth}"), Duration::from_mins(1));
                        got.note(client.claim_next_run(asked).await.map(drop)).await;
                    }));
                }
            }
            Self::Listers => {
                for _ in 0..64 {
                    let (mut client, got) = (client(address), got.clone());
                    tasks.spawn(again(until, async move || {
                        let filter =
                            Some(RunFilter { labels: [("no".into(), "such".into())].into(), ..RunFilter::default() });
                        let asked = ListRunsRequest { filter, page_size: 1_000, ..ListRunsRequest::default() };
                        got.note(client.list_runs(asked).await.map(drop)).await;
                    }));
                }
            }
            Self::Waits => {
                for nth in 0..10_000 {
                    let (mut client, got) = (client_of(nth), got.clone());
                    tasks.spawn(again(until, async move || {
                        let timeout = Some(Duration::from_mins(1).try_into().unwrap());
                        let asked = WaitRunRequest { run_id: format!("waited-{}", nth % 100), timeout };
                        got.note(client.wait_run(asked).await.map(drop)).await;
                    }));
                }
            }
            Self::NarrowWatchers | Self::FallenBehind => {
                let cursor = if self == Self::FallenBehind {
                    FIRST_CURSOR.get().cloned().expect("it was taken")
                } else {
                    String::new()
                };
                let count = if self == Self::FallenBehind { 50 } else { 5_000 };
                for nth in 0..count {
                    let (mut client, got, cursor) = (client_of(nth), got.clone(), cursor.clone());
                    tasks.spawn(again(until, async move || {
                        let workflow_id = if cursor.is_empty() { format!("narrow-{nth}") } else { String::new() };
                        let initial = if cursor.is_empty() { Initial::None } else { Initial::Unspecified }.into();
                        let filter = Some(RunFilter { workflow_id, ..RunFilter::default() });
                        let asked = WatchRunsRequest { filter, initial, cursor: cursor.clone() };
                        match client.watch_runs(asked).await {
                            Ok(frames) => {
                                let mut frames = frames.into_inner();
                                got.answered.fetch_add(1, Ordering::Relaxed);
                                while let Ok(Some(frame)) = frames.message().await {
                                    got.frames.fetch_add(1, Ordering::Relaxed);
                                    if !cursor.is_empty() && matches!(frame.frame, Some(Frame::CaughtUp(_))) {
                                        break;
                                    }
                                }
                            }
                            Err(status) => got.note(Err(status)).await,
                        }
                    }));
                }
            }
            Self::Values => {
                for nth in 0..4 {
                    let (mut client, got) = (client_of(nth), got.clone());
                    tasks.spawn(again(until, async move || {
                        got.note(claim_value(&mut client).await.map(drop)).await;
                    }));
                }
            }
        }
        // What is held is taken in the first seconds.
        sleep(Duration::from_secs(3)).await;
        tasks
    }
}

fn values() -> usize {
    variable("RUNLEDGER_TEST_VALUES").map_or(40_000, |values| values.parse().unwrap())
}

fn claim(workflow_id: &str, wait: Duration) -> ClaimNextRunRequest {
    ClaimNextRunRequest {
        filter: Some(RunFilter { workflow_id: workflow_id.to_owned(), ..RunFilter::default() }),
        lease_ttl: Some(Duration::from_mins(10).try_into().unwrap()),
        wait: Some(wait.try_into().unwrap()),
        ..ClaimNextRunRequest::default()
    }
}

/// Claims a run of a value that has none running.
async fn claim_value(client: &mut Client) -> Result<Option<Run>, tonic::Status> {
    let mut asked = claim("", Duration::ZERO);
    asked.filter = Some(RunFilter { task_thread_id: "values".to_owned(), ..RunFilter::default() });
    asked.max_running = Some(MaxRunning { label: "value".to_owned(), limit: 1 });
    Ok(client.claim_next_run(asked).await?.into_inner().run)
}

/// The greedy caller's answers.
#[derive(Debug, Default)]
struct Got {
    answered: AtomicU64,
    refused: AtomicU64,
    frames: AtomicU64,
}

impl Got {
    /// Counts an answer. A caller that is refused comes back a moment later, as it was asked to.
    async fn note(&self, answer: Result<(), tonic::Status>) {
        if answer.is_ok() {
            self.answered.fetch_add(1, Ordering::Relaxed);
        } else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(500)).await;
        }
    }
}

async fn again(until: Instant, mut call: impl AsyncFnMut()) {
    while Instant::now() < until {
        let _over = timeout_at(until, call()).await;
    }
}

/// A cursor from before the first run.
static FIRST_CURSOR: std::sync::OnceLock<String> = std::sync::OnceLock::new();

async fn start_many(server: &Server, count: usize, request: impl Fn(usize) -> StartRunRequest) {
    let client = server.client();
    for chunk in (0..count).collect::<Vec<_>>().chunks(256) {
        let starts = chunk.iter().map(|n| {
            let (mut client, asked) = (client.clone(), request(*n));
            async move { client.start_run(asked).await }
        });
        assert!(join_all(starts).await.iter().all(Result::is_ok));
    }
}

/// What an honest caller's calls took, in ms, by their kind; and how many failed.
type Met = BTreeMap<&'static str, (Vec<f64>, usize)>;

/// Calls of each kind for a time, on a thread and a connection of its own.
async fn honest(address: SocketAddr, time: Duration) -> Met {
    let (told, met) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _waited_for = told.send(runtime.block_on(honest_here(address, time)));
    });
    met.await.unwrap()
}

async fn honest_here(address: SocketAddr, time: Duration) -> Met {
    let mut client = client(address);
    let started = client
        .start_run(StartRunRequest { task_thread_id: "honest".to_owned(), ..StartRunRequest::default() })
        .await
        .unwrap();
    let run_id = started.into_inner().run.unwrap().run_id;
    let mut met = Met::new();
    let (mut turns, until) = (interval(EVERY), Instant::now() + time);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for turn in 0_u64.. {
        turns.tick().await;
        if Instant::now() > until {
            return met;
        }
        let begun = Instant::now();
        let (kind, answer) = match turn % 4 {
            0 => {
                let labels = [("turn".to_owned(), turn.to_string())].into();
                let asked = UpdateRunRequest { run_id: run_id.clone(), labels, ..UpdateRunRequest::default() };
                ("update", client.update_run(asked).await.map(drop))
            }
            1 => {
                let asked = GetRunRequest { run_id: run_id.clone(), ..GetRunRequest::default() };
                ("get", client.get_run(asked).await.map(drop))
            }
            2 => {
                let filter = Some(RunFilter { task_thread_id: "honest".to_owned(), ..RunFilter::default() });
                let asked = ListRunsRequest { filter, page_size: 20, ..ListRunsRequest::default() };
                ("list", client.list_runs(asked).await.map(drop))
            }
            _ => ("claim", client.claim_next_run(claim("honest", Duration::ZERO)).await.map(drop)),
        };
        let (calls_ms, failed) = met.entry(kind).or_default();
        match answer {
            Ok(()) => calls_ms.push(begun.elapsed().as_secs_f64() * 1_000.0),
            Err(_) => *failed += 1,
        }
    }
    met
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measured_greedy_callers() {
    let Some(seconds) = variable("RUNLEDGER_TEST_GREEDY") else { return };
    let time = Duration::from_secs(seconds.parse().unwrap());
    let only = variable("RUNLEDGER_TEST_ATTACK");
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
        if greedy == Greedy::FallenBehind {
            let mut frames = server
                .client()
                .watch_runs(WatchRunsRequest { initial: Initial::None.into(), ..WatchRunsRequest::default() })
                .await
                .unwrap()
                .into_inner();
            let frame = frames.message().await.unwrap().unwrap().frame.unwrap();
            let Frame::CaughtUp(caught_up) = frame else { panic!("{frame:?}") };
            FIRST_CURSOR.set(caught_up.cursor).unwrap();
        }
        greedy.prepare(&server).await;
        let alone = honest(server.address, time).await;
        let (got, over) = (Arc::new(Got::default()), Arc::new(AtomicBool::new(false)));
        let until = Instant::now() + time + Duration::from_secs(8);
        let mut tasks = greedy.begin(server.address, until, got.clone()).await;
        let (met, memory) = tokio::join!(
            async {
                let met = honest(server.address, time).await;
                over.store(true, Ordering::Relaxed);
                met
            },
            greatest_memory(&server, &over)
        );
        let told = replica(&server).await;
        sleep_until(until).await;
        tasks.shutdown().await;
        for (kind, (alone, _)) in &alone {
            let (beside, failed) = &met[kind];
            let (one, other) = (quantile_ms(alone.clone(), 0.99), quantile_ms(beside.clone(), 0.99));
            println!(
                "| {greedy:?} | {kind} | {:.1}, {one:.1} | {:.1}, {other:.1} | {:.2} | {failed} of {} | {} | {got:?} |",
                quantile_ms(alone.clone(), 0.5),
                quantile_ms(beside.clone(), 0.5),
                other / one,
                failed + beside.len(),
                memory >> 10,
            );
        }
        let parts: u64 = told.memory.iter().map(|part| part.bytes).sum();
        println!("memory: parts {} KiB of {} KiB: {:?}", parts >> 10, told.resident_bytes >> 10, told.memory);
    }
}
