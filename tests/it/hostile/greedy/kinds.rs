//! The kinds of greedy callers: what each takes much of.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use runledger_proto::headers::{AGENT_ID, NAMESPACE};
use runledger_proto::v1::lifecycle_service_client::LifecycleServiceClient;
use runledger_proto::v1::namespace_service_client::NamespaceServiceClient;
use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::watch_runs_response::Frame;
use runledger_proto::v1::{
    ClaimNextRunRequest, CountRunsRequest, CreateNamespaceRequest, GetRunRequest, ListRunsRequest, MaxRunning,
    PutLifecycleRequest, RedactRunRequest, Run, RunFilter, RunView, StartRunRequest, UpdateRunRequest, WaitRunRequest,
    WatchRunsRequest,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::{IntoRequest, Request, Status};

use crate::process::calls::{Step, ask, bulk};
use crate::process::server::{Client, Server, hasty};

/// Connections of a greedy caller that needs many: each takes 1,024 streams.
const CONNECTIONS: usize = 12;

/// Namespaces of one caller.
const NAMESPACES: u64 = 40;

/// A greedy caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greedy {
    /// 2,000 claims that wait, each by a filter of its own.
    ClaimFilters,
    /// 960 claims at a time that wait for nothing, each by a filter that nobody has used before.
    NewClaimFilters,
    /// 10,000 claims that wait, each by a filter that nobody has used before and by an agent of its own.
    NamedClaims,
    /// 64 callers that list everything, one page after the other.
    Listers,
    /// 48 counts at a time, each given up after 5 ms.
    CountsGivenUp,
    /// 10,000 waits on 100 runs of 60 KB.
    Waits,
    /// 10,000 waits on as many runs, which end and begin anew together.
    WaitsApart,
    /// 5,000 watches of many runs, each by a filter of its own.
    NarrowWatchers,
    /// 5,000 watches of many runs, each by two labels of which all have one.
    LabelWatchers,
    /// 50 watches of everything that begin a long way back.
    FallenBehind,
    /// 300 watches of runs of 60 KB that begin a long way back, at places of their own, and stop reading.
    StoppedReading,
    /// Claims of runs with 40,000 values of a limited label, each of which is full.
    Values,
    /// 4 callers that come on a new connection for each claim, by a filter that nobody has used before.
    ClaimsOfNewcomers,
    /// 4 callers that come on a new connection for each count of everything.
    CountsOfNewcomers,
    /// Lists of everything in 40 namespaces, one after the other.
    ManyNamespaces,
    /// 4 callers that bring 16,000 keys each time, to be held against 32 patterns, and may not write the run.
    ManyKeys,
    /// 4 callers that take nothing out of a long history, again and again.
    Redactions,
    /// 64 reads at a time of a run with all that stands beside it.
    WholeReads,
}

impl Greedy {
    pub(super) const ALL: [Self; 18] = [
        Self::ClaimFilters,
        Self::NewClaimFilters,
        Self::NamedClaims,
        Self::Listers,
        Self::CountsGivenUp,
        Self::Waits,
        Self::WaitsApart,
        Self::NarrowWatchers,
        Self::LabelWatchers,
        Self::FallenBehind,
        Self::StoppedReading,
        Self::Values,
        Self::ClaimsOfNewcomers,
        Self::CountsOfNewcomers,
        Self::ManyNamespaces,
        Self::ManyKeys,
        Self::Redactions,
        Self::WholeReads,
    ];

    /// The time in which the caller takes what it holds: one that holds nothing is greedy at once.
    pub(super) fn begins_within(self) -> Duration {
        match self {
            Self::ClaimFilters
            | Self::NewClaimFilters
            | Self::NamedClaims
            | Self::Listers
            | Self::CountsGivenUp
            | Self::Waits
            | Self::WaitsApart
            | Self::NarrowWatchers
            | Self::LabelWatchers
            | Self::FallenBehind
            | Self::StoppedReading
            | Self::Values => Duration::from_secs(3),
            Self::ClaimsOfNewcomers
            | Self::CountsOfNewcomers
            | Self::ManyNamespaces
            | Self::ManyKeys
            | Self::Redactions
            | Self::WholeReads => Duration::from_millis(300),
        }
    }

    /// Whether its watches begin at the log's beginning.
    fn begins_far_back(self) -> bool {
        matches!(self, Self::FallenBehind | Self::StoppedReading)
    }

    /// Makes the runs that the caller is greedy for, and takes the cursors from which it watches.
    pub(super) async fn prepare(self, server: &Server, size: Size) -> Vec<String> {
        let mut cursors = Vec::new();
        if self.begins_far_back() {
            cursors.push(cursor(server).await);
        }
        match self {
            Self::ClaimFilters
            | Self::NewClaimFilters
            | Self::NamedClaims
            | Self::NarrowWatchers
            | Self::LabelWatchers => {}
            Self::ClaimsOfNewcomers | Self::CountsOfNewcomers => {
                let pending = |_| StartRunRequest { deferred: true, ..in_thread("pending") };
                start_many(server, size.of(100_000), pending).await;
            }
            Self::ManyNamespaces => {
                let mut namespaces = NamespaceServiceClient::new(server.wire());
                for nth in 0..NAMESPACES {
                    let made = CreateNamespaceRequest { name: format!("many-{nth}"), ..Default::default() };
                    namespaces.create_namespace(made).await.unwrap();
                }
                let within = |nth: usize| in_one_of_many(nth as u64, in_thread("listed"));
                start_many(server, size.of(40_000), within).await;
            }
            Self::ManyKeys => {
                put_masks(server).await;
                let (run_id, lifecycle) = ("keys".to_owned(), "masks".to_owned());
                let lease_ttl = Some(Duration::from_mins(10).try_into().unwrap());
                let start = StartRunRequest { run_id, lifecycle, lease_ttl, ..in_thread("keys") };
                server.hasty().start_run(start).await.unwrap();
            }
            Self::Redactions => {
                let mut client = server.hasty();
                ask(&mut client, "long", Step::Start, "").await.unwrap();
                ask(&mut client, "long", Step::Bulk, "").await.unwrap();
                for nth in 0..size.of(1_300) {
                    ask(&mut client, "long", Step::Update(nth), "").await.unwrap();
                }
            }
            Self::WholeReads => {
                let mut client = server.hasty();
                let contents = || Some(bulk());
                let start = StartRunRequest { run_id: "whole".to_owned(), input: contents(), ..in_thread("whole") };
                client.start_run(start).await.unwrap();
                let update = UpdateRunRequest { run_id: "whole".to_owned(), result: contents(), ..Default::default() };
                client.update_run(update).await.unwrap();
            }
            Self::Listers => start_many(server, size.of(2_000), |n| in_thread(&format!("thread-{}", n % 7))).await,
            Self::CountsGivenUp | Self::FallenBehind => {
                start_many(server, size.of(20_000), |_| in_thread("behind")).await;
            }
            Self::WaitsApart => {
                let apart = |n| StartRunRequest { run_id: format!("apart-{n}"), ..in_thread("apart") };
                start_many(server, size.of(10_000), apart).await;
            }
            Self::Waits => {
                let mut client = server.hasty();
                for nth in 0..size.of(100) {
                    let run_id = format!("waited-{nth}");
                    ask(&mut client, &run_id, Step::Start, "").await.unwrap();
                    ask(&mut client, &run_id, Step::Bulk, "").await.unwrap();
                }
            }
            Self::StoppedReading => {
                let mut client = server.hasty();
                for nth in 0..size.of(300) {
                    let run_id = format!("large-{nth}");
                    ask(&mut client, &run_id, Step::Start, "").await.unwrap();
                    ask(&mut client, &run_id, Step::Bulk, "").await.unwrap();
                    cursors.push(cursor(server).await);
                }
                for _ in 0..2 {
                    for nth in 0..size.of(300) {
                        ask(&mut client, &format!("large-{nth}"), Step::Update(nth), "").await.unwrap();
                    }
                }
            }
            Self::Values => {
                let pending = |n: usize| StartRunRequest {
                    deferred: true,
                    labels: [("value".to_owned(), format!("{}", n / 2))].into(),
                    ..in_thread("values")
                };
                start_many(server, 2 * size.of(size.values), pending).await;
                let (client, begun) = (server.hasty(), Instant::now());
                let claims = (0..64).map(|_| {
                    let mut client = client.clone();
                    async move { while let Ok(Some(_)) = claim_value(&mut client).await {} }
                });
                join_all(claims).await;
                println!("64 callers claimed one run of each value in {} ms", begun.elapsed().as_millis());
            }
        }
        cursors
    }

    /// Is greedy until then.
    pub(super) async fn take(self, asked: Arc<Asked>) {
        let clients: Vec<Client> = (0..CONNECTIONS).map(|_| hasty(asked.address)).collect();
        let mut tasks = JoinSet::new();
        for nth in 0..self.callers(asked.size) {
            // Those that list have a connection each.
            let client = if self == Self::Listers { hasty(asked.address) } else { clients[nth % CONNECTIONS].clone() };
            let asked = asked.clone();
            tasks.spawn(async move {
                let mut client = client;
                while Instant::now() < asked.until {
                    let _over = timeout_at(asked.until, self.call(&mut client, nth, &asked)).await;
                }
            });
        }
        tasks.join_all().await;
    }

    /// The number of calls at a time.
    fn callers(self, size: Size) -> usize {
        match self {
            Self::ClaimFilters => size.of(2_000),
            Self::NewClaimFilters => size.of(960),
            Self::Listers => size.of(64),
            Self::CountsGivenUp => size.of(48),
            Self::NamedClaims | Self::Waits | Self::WaitsApart => size.of(10_000),
            Self::NarrowWatchers | Self::LabelWatchers => size.of(5_000),
            Self::FallenBehind => size.of(50),
            Self::StoppedReading => size.of(300),
            Self::WholeReads => 64,
            Self::Values
            | Self::ClaimsOfNewcomers
            | Self::CountsOfNewcomers
            | Self::ManyNamespaces
            | Self::ManyKeys
            | Self::Redactions => 4,
        }
    }

    /// One call of the `nth` caller.
    async fn call(self, client: &mut Client, nth: usize, asked: &Asked) {
        let got = &asked.got;
        match self {
            Self::ClaimFilters => {
                let claim = claim(&format!("greedy-{nth}"), Duration::from_mins(1));
                got.note(client.claim_next_run(claim).await.map(drop)).await;
            }
            Self::NamedClaims => {
                static NAMED: AtomicU64 = AtomicU64::new(0);
                let name = format!("named-{}", NAMED.fetch_add(1, Ordering::Relaxed));
                let mut claim = Request::new(claim(&name, Duration::from_secs(10)));
                claim.metadata_mut().insert(AGENT_ID, name.parse().expect("visible characters"));
                got.note(client.claim_next_run(claim).await.map(drop)).await;
            }
            Self::NewClaimFilters => {
                static CLAIMS: AtomicU64 = AtomicU64::new(0);
                let claim = claim(&format!("new-{}", CLAIMS.fetch_add(1, Ordering::Relaxed)), Duration::ZERO);
                got.note(client.claim_next_run(claim).await.map(drop)).await;
            }
            Self::Listers => {
                let filter = RunFilter { labels: [("no".into(), "such".into())].into(), ..RunFilter::default() };
                let list = ListRunsRequest { filter: Some(filter), page_size: 1_000, ..ListRunsRequest::default() };
                got.note(client.list_runs(list).await.map(drop)).await;
            }
            Self::CountsGivenUp => {
                let filter = RunFilter { labels: [("no".into(), "such".into())].into(), ..RunFilter::default() };
                let count =
                    client.count_runs(CountRunsRequest { filter: Some(filter), by_phase: false, by_suspension: false });
                match tokio::time::timeout(Duration::from_millis(5), count).await {
                    Ok(counted) => got.note(counted.map(drop)).await,
                    Err(_given_up) => got.note(Ok(())).await,
                }
            }
            Self::Waits => wait(client, format!("waited-{}", nth % asked.size.of(100)), 60, got).await,
            Self::WaitsApart => wait(client, format!("apart-{nth}"), 2, got).await,
            Self::NarrowWatchers => {
                let filter = RunFilter { workflow_id: format!("narrow-{nth}"), ..RunFilter::default() };
                watch(client, filter, None, usize::MAX, got).await;
            }
            Self::LabelWatchers => {
                let labels = [("env".to_owned(), "prod".to_owned()), ("job".to_owned(), format!("{nth}"))].into();
                watch(client, RunFilter { labels, ..RunFilter::default() }, None, usize::MAX, got).await;
            }
            Self::FallenBehind => watch(client, RunFilter::default(), asked.cursors.first(), usize::MAX, got).await,
            Self::StoppedReading => {
                watch(client, RunFilter::default(), asked.cursors.get(nth), 200, got).await;
                sleep(Duration::from_mins(1)).await;
            }
            Self::Values => got.note(claim_value(client).await.map(drop)).await,
            Self::ClaimsOfNewcomers => {
                static NEWCOMERS: AtomicU64 = AtomicU64::new(0);
                let workflow_id = format!("newcomer-{}", NEWCOMERS.fetch_add(1, Ordering::Relaxed));
                let mut client = self::hasty(asked.address);
                got.note(client.claim_next_run(claim(&workflow_id, Duration::ZERO)).await.map(drop)).await;
            }
            Self::CountsOfNewcomers => {
                let count = CountRunsRequest { by_phase: true, by_suspension: true, ..CountRunsRequest::default() };
                got.note(self::hasty(asked.address).count_runs(count).await.map(drop)).await;
            }
            Self::ManyNamespaces => {
                static LISTS: AtomicU64 = AtomicU64::new(0);
                let list = ListRunsRequest { page_size: 1_000, ..ListRunsRequest::default() };
                let list = in_one_of_many(LISTS.fetch_add(1, Ordering::Relaxed), list);
                got.note(client.list_runs(list).await.map(drop)).await;
            }
            Self::ManyKeys => {
                let fields = (0..16_000).map(|nth| (format!("k{nth}"), Value { kind: Some(Kind::BoolValue(true)) }));
                let metadata = Some(Struct { fields: fields.collect() });
                let update = UpdateRunRequest { run_id: "keys".to_owned(), metadata, ..UpdateRunRequest::default() };
                got.note(client.update_run(update).await.map(drop)).await;
            }
            Self::Redactions => {
                let (run_id, paths) = ("long".to_owned(), vec!["/metadata/no/such".to_owned()]);
                let redact = RedactRunRequest { run_id, paths, ..RedactRunRequest::default() };
                got.note(client.redact_run(redact).await.map(drop)).await;
            }
            Self::WholeReads => {
                let view = Some(RunView::Whole.into());
                let get = GetRunRequest { run_id: "whole".to_owned(), view, ..GetRunRequest::default() };
                got.note(client.get_run(get).await.map(drop)).await;
            }
        }
    }
}

/// What a greedy caller is asked to do.
pub(super) struct Asked {
    pub(super) address: SocketAddr,
    pub(super) size: Size,
    pub(super) until: Instant,
    pub(super) cursors: Vec<String>,
    pub(super) got: Got,
}

/// How greedy it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// A part of the numbers of the kinds' descriptions.
    pub(super) one_in: usize,
    /// The values of the limited label.
    pub(super) values: usize,
}

impl Size {
    fn of(self, all: usize) -> usize {
        (all / self.one_in).max(4)
    }
}

/// The greedy caller's answers.
#[derive(Debug, Default)]
pub(super) struct Got {
    answered: AtomicU64,
    refused: AtomicU64,
    frames: AtomicU64,
}

impl Got {
    /// Counts an answer. A caller that is refused comes back a moment later, as it was asked to.
    async fn note(&self, answer: Result<(), Status>) {
        if answer.is_ok() {
            self.answered.fetch_add(1, Ordering::Relaxed);
        } else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(500)).await;
        }
    }
}

fn in_thread(task_thread_id: &str) -> StartRunRequest {
    StartRunRequest { task_thread_id: task_thread_id.to_owned(), ..StartRunRequest::default() }
}

/// Puts a lifecycle with as many patterns as there may be.
async fn put_masks(server: &Server) {
    let patterns: Vec<String> = (0..32).map(|nth| format!("\"*q{nth}z*\"")).collect();
    let declaration =
        format!("name: masks\nphases: {{any: {{initial: true}}}}\nredact_keys: [{}]\n", patterns.join(", "));
    LifecycleServiceClient::new(server.wire()).put_lifecycle(PutLifecycleRequest { declaration }).await.unwrap();
}

/// A claim of a workflow's runs.
pub(super) fn claim(workflow_id: &str, wait: Duration) -> ClaimNextRunRequest {
    ClaimNextRunRequest {
        filter: Some(RunFilter { workflow_id: workflow_id.to_owned(), ..RunFilter::default() }),
        lease_ttl: Some(Duration::from_mins(10).try_into().unwrap()),
        wait: Some(wait.try_into().unwrap()),
        ..ClaimNextRunRequest::default()
    }
}

/// Claims a run of a value that has none running.
async fn claim_value(client: &mut Client) -> Result<Option<Run>, Status> {
    let mut asked = claim("", Duration::ZERO);
    asked.filter = Some(RunFilter { task_thread_id: "values".to_owned(), ..RunFilter::default() });
    asked.max_running = Some(MaxRunning { label: "value".to_owned(), limit: 1 });
    Ok(client.claim_next_run(asked).await?.into_inner().run)
}

async fn wait(client: &mut Client, run_id: String, seconds: u64, got: &Got) {
    let timeout = Some(Duration::from_secs(seconds).try_into().unwrap());
    got.note(client.wait_run(WaitRunRequest { run_id, timeout, until: 0 }).await.map(drop)).await;
}

/// Watches until the stream ends, has caught up with the log from a cursor on, or has shown so many frames.
async fn watch(client: &mut Client, filter: RunFilter, cursor: Option<&String>, frames_max: usize, got: &Got) {
    let initial = if cursor.is_none() { Initial::None } else { Initial::Unspecified }.into();
    let asked = WatchRunsRequest { filter: Some(filter), initial, cursor: cursor.cloned().unwrap_or_default() };
    let mut frames = match client.watch_runs(asked).await {
        Ok(frames) => frames.into_inner(),
        Err(status) => return got.note(Err(status)).await,
    };
    got.answered.fetch_add(1, Ordering::Relaxed);
    for _ in 0..frames_max {
        let Ok(Some(frame)) = frames.message().await else { return };
        got.frames.fetch_add(1, Ordering::Relaxed);
        if cursor.is_some() && matches!(frame.frame, Some(Frame::CaughtUp(_))) {
            return;
        }
    }
    if frames_max < usize::MAX {
        // The stream stays open, and nobody reads it.
        sleep(Duration::from_mins(1)).await;
    }
}

/// The cursor of the log's end.
async fn cursor(server: &Server) -> String {
    let asked = WatchRunsRequest { initial: Initial::None.into(), ..WatchRunsRequest::default() };
    let mut frames = server.hasty().watch_runs(asked).await.unwrap().into_inner();
    let frame = frames.message().await.unwrap().unwrap().frame.unwrap();
    let Frame::CaughtUp(caught_up) = frame else { panic!("{frame:?}") };
    caught_up.cursor
}

/// A request in one of the many namespaces.
fn in_one_of_many<M>(nth: u64, message: M) -> Request<M> {
    let (mut request, namespace) = (Request::new(message), format!("many-{}", nth % NAMESPACES));
    request.metadata_mut().insert(NAMESPACE, namespace.parse().expect("visible characters"));
    request
}

async fn start_many<R>(server: &Server, count: usize, request: impl Fn(usize) -> R)
where
    R: IntoRequest<StartRunRequest>,
{
    let client = server.hasty();
    for chunk in (0..count).collect::<Vec<_>>().chunks(256) {
        let starts = chunk.iter().map(|n| {
            let (mut client, asked) = (client.clone(), request(*n));
            async move { client.start_run(asked).await }
        });
        assert!(join_all(starts).await.iter().all(Result::is_ok));
    }
}
