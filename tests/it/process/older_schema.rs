//! The release before this one works on what this release makes of its database, or is refused by name: nothing between.

use std::collections::BTreeSet;

use prost_reflect::DescriptorPool;
use prost_types::value::Kind;
use prost_types::{Duration, Struct, Value};
use runledger::store::migrations::{MIN_RELEASE, RELEASE, later};
use runledger_proto::v1;
use runledger_proto::v1::identity_service_client::IdentityServiceClient;
use runledger_proto::v1::lifecycle_service_client::LifecycleServiceClient;
use runledger_proto::v1::namespace_service_client::NamespaceServiceClient;
use runledger_proto::v1::replica_service_client::ReplicaServiceClient;
use tempfile::TempDir;
use tokio::time::timeout;
use tonic::Status;

use super::data::Data;
use super::server::{Client, Process, SOON, Server, run};
use crate::support::postgres::Database;

/// The API of the release before this one.
const RELEASED: &[u8] = include_bytes!("../../../proto/released.binpb");

pub(super) async fn older(data: &Data) -> Server {
    Server::of(Process::spawn_older(&["serve", "--listen", "127.0.0.1:0", "--store", &data.store()])).await
}

/// Whether the release before this one is shut out by this one's migrations.
pub(super) async fn older_is_shut_out() -> bool {
    let (code, said) = Process::spawn_older(&["--version"]).exited(SOON).await;
    let older = said.trim().rsplit(' ').next().unwrap();
    assert!(code == 0 && older != RELEASE, "the release before this one is {said}");
    later(older, MIN_RELEASE) != older
}

/// Who makes the calls: each by its name, which an error has.
struct Caller {
    client: Client,
    made: BTreeSet<&'static str>,
    /// Tells the ids of one round from those of another.
    round: &'static str,
}

macro_rules! call {
    ($caller:expr, $client:expr, $method:ident, $name:literal, $request:expr) => {{
        $caller.made.insert($name);
        let answered = timeout(SOON, $client.$method($request)).await;
        let answered = answered.map_err(|_elapsed| format!(concat!($name, " has no answer within {:?}"), SOON))?;
        answered.map_err(|status| told($name, &status))?.into_inner()
    }};
}

fn told(name: &str, status: &Status) -> String {
    format!("{name}: {:?}: {}", status.code(), status.message())
}

#[expect(clippy::unnecessary_wraps, reason = "messages take options")]
fn seconds(seconds: i64) -> Option<Duration> {
    Some(Duration { seconds, nanos: 0 })
}

#[expect(clippy::unnecessary_wraps, reason = "messages take options")]
fn secret() -> Option<Struct> {
    let value = Value { kind: Some(Kind::StringValue("secret".to_owned())) };
    Some(Struct { fields: [("secret".to_owned(), value)].into() })
}

impl Caller {
    fn id(&self, name: &str) -> String {
        format!("{}-{name}", self.round)
    }

    /// The runs of this round.
    #[expect(clippy::unnecessary_wraps, reason = "messages take options")]
    fn filter(&self) -> Option<v1::RunFilter> {
        let labels = [("round".to_owned(), self.round.to_owned())].into();
        Some(v1::RunFilter { labels, ..Default::default() })
    }

    async fn start(&mut self, name: &str, deferred: bool) -> Result<String, String> {
        let run_id = self.id(name);
        let request = v1::StartRunRequest {
            task_thread_id: "thread".to_owned(),
            run_id: run_id.clone(),
            deferred,
            request_id: format!("start-{run_id}"),
            labels: [("round".to_owned(), self.round.to_owned())].into(),
            run_timeout: seconds(600),
            metadata: secret(),
            ..Default::default()
        };
        call!(self, self.client, start_run, "StartRun", request);
        Ok(run_id)
    }

    /// A run's life with a claim, a lease, and its history; and the ends of others.
    async fn lives(&mut self) -> Result<(), String> {
        let run_id = self.start("run", true).await?;
        let max_running = Some(v1::MaxRunning { label: "round".to_owned(), limit: 9 });
        let request = v1::ClaimNextRunRequest {
            filter: self.filter(),
            lease_ttl: seconds(60),
            max_running: max_running.clone(),
            request_id: self.id("claim"),
            ..Default::default()
        };
        let claimed = call!(self, self.client, claim_next_run, "ClaimNextRun", request).run.unwrap_or_default();
        let lease_epoch = claimed.lease.map(|lease| lease.epoch).unwrap_or_default();
        let request = v1::ReleaseRunRequest { run_id: run_id.clone(), lease_epoch, ..Default::default() };
        call!(self, self.client, release_run, "ReleaseRun", request);
        let request =
            v1::ClaimRunRequest { run_id: run_id.clone(), lease_ttl: seconds(60), max_running, ..Default::default() };
        let claimed = call!(self, self.client, claim_run, "ClaimRun", request).run.unwrap_or_default();
        let lease_epoch = claimed.lease.map(|lease| lease.epoch).unwrap_or_default();
        let progress = Some(v1::Progress { message: "half".to_owned(), ..Default::default() });
        let request = v1::UpdateRunRequest {
            run_id: run_id.clone(),
            lease_epoch,
            progress: progress.clone(),
            links: vec![v1::Link { rel: "log".to_owned(), target: "file:///log".to_owned(), ..Default::default() }],
            ..Default::default()
        };
        call!(self, self.client, update_run, "UpdateRun", request);
        let request = v1::HeartbeatRunRequest { run_id: run_id.clone(), lease_epoch, progress };
        call!(self, self.client, heartbeat_run, "HeartbeatRun", request.clone());
        let request = v1::HeartbeatRunsRequest { heartbeats: vec![request] };
        let beaten = call!(self, self.client, heartbeat_runs, "HeartbeatRuns", request).results.remove(0);
        if let Some(error) = beaten.error {
            return Err(format!("HeartbeatRuns: {error:?}"));
        }
        let (kind, reason) = ("PAUSED".to_owned(), "for a moment".to_owned());
        let request = v1::SuspendRunRequest { run_id: run_id.clone(), kind, reason, lease_epoch, ..Default::default() };
        call!(self, self.client, suspend_run, "SuspendRun", request);
        let request = v1::ResumeRunRequest { run_id: run_id.clone(), lease_ttl: seconds(60), ..Default::default() };
        let resumed = call!(self, self.client, resume_run, "ResumeRun", request).run.unwrap_or_default();
        let lease_epoch = resumed.lease.map(|lease| lease.epoch).unwrap_or_default();
        let request =
            v1::RequestAbortRequest { run_id: run_id.clone(), reason: "enough".to_owned(), ..Default::default() };
        call!(self, self.client, request_abort, "RequestAbort", request);
        let request = v1::CheckTransitionRequest {
            run_id: run_id.clone(),
            to: v1::RunStatus::Completed.into(),
            ..Default::default()
        };
        call!(self, self.client, check_transition, "CheckTransition", request);
        let request = v1::CompleteRunRequest { run_id: run_id.clone(), lease_epoch, ..Default::default() };
        call!(self, self.client, complete_run, "CompleteRun", request);
        let request = v1::WaitRunRequest { run_id: run_id.clone(), timeout: seconds(5), until: 0 };
        call!(self, self.client, wait_run, "WaitRun", request);
        let request = v1::ArchiveRunRequest { run_id: run_id.clone(), ..Default::default() };
        call!(self, self.client, archive_run, "ArchiveRun", request);
        let request = v1::RestoreRunRequest { run_id: run_id.clone(), ..Default::default() };
        call!(self, self.client, restore_run, "RestoreRun", request);
        let paths = vec!["/metadata/secret".to_owned()];
        let request = v1::RedactRunRequest { run_id: run_id.clone(), paths, ..Default::default() };
        call!(self, self.client, redact_run, "RedactRun", request);
        let request = v1::AbortRunRequest { run_id: self.start("aborts", false).await?, ..Default::default() };
        call!(self, self.client, abort_run, "AbortRun", request);
        let request = v1::FailRunRequest {
            run_id: self.start("fails", false).await?,
            failure_reason: "it failed".to_owned(),
            ..Default::default()
        };
        call!(self, self.client, fail_run, "FailRun", request);
        let request = v1::CompleteRunRequest { run_id: self.start("listed", false).await?, ..Default::default() };
        let command = Some(v1::run_command::Command::Complete(request));
        let request = v1::ApplyCommandsRequest { commands: vec![v1::RunCommand { command }], ..Default::default() };
        let result = call!(self, self.client, apply_commands, "ApplyCommands", request).results.remove(0);
        result.error.map_or(Ok(()), |error| Err(format!("ApplyCommands: {error:?}")))
    }

    async fn reads(&mut self) -> Result<(), String> {
        let run_id = self.id("run");
        let request =
            v1::GetRunRequest { run_id: run_id.clone(), queue_label: Some("round".to_owned()), ..Default::default() };
        let run = call!(self, self.client, get_run, "GetRun", request).run.unwrap_or_default();
        let request = v1::ListRunEventsRequest { run_id: run_id.clone(), ..Default::default() };
        let events = call!(self, self.client, list_run_events, "ListRunEvents", request).events;
        let request = v1::ListLinksRequest { run_id: run_id.clone(), ..Default::default() };
        call!(self, self.client, list_links, "ListLinks", request);
        let request = v1::ListRunsRequest { filter: self.filter(), ..Default::default() };
        let listed = call!(self, self.client, list_runs, "ListRuns", request).runs;
        let request = v1::CountRunsRequest { filter: self.filter(), by_phase: false, by_suspension: false };
        call!(self, self.client, count_runs, "CountRuns", request);
        if listed.len() != 4 || events.last().map(|event| event.revision) != Some(run.revision) {
            return Err(format!("ListRuns shows {listed:?}, and ListRunEvents of {run:?} shows {events:?}"));
        }
        let request = v1::WatchRunRequest { run_id, after_revision: Some(1), ..Default::default() };
        let mut frames = call!(self, self.client, watch_run, "WatchRun", request);
        first("WatchRun", frames.message()).await?;
        let initial = v1::watch_runs_request::Initial::All.into();
        let request = v1::WatchRunsRequest { filter: self.filter(), initial, ..Default::default() };
        let mut frames = call!(self, self.client, watch_runs, "WatchRuns", request);
        first("WatchRuns", frames.message()).await
    }

    async fn others(&mut self, server: &Server) -> Result<(), String> {
        let mut client = ReplicaServiceClient::new(server.wire());
        call!(self, client, get_replica, "GetReplica", v1::GetReplicaRequest {});
        let mut client = IdentityServiceClient::new(server.wire());
        call!(self, client, who_am_i, "WhoAmI", v1::WhoAmIRequest {});
        let mut client = NamespaceServiceClient::new(server.wire());
        let name = self.id("namespace");
        let request = v1::CreateNamespaceRequest { name: name.clone(), ..Default::default() };
        call!(self, client, create_namespace, "CreateNamespace", request);
        let retention = Some(v1::NamespaceRetention { completed: seconds(86_400), ..Default::default() });
        let request = v1::UpdateNamespaceRequest {
            name: name.clone(),
            retention,
            max_active_runs: Some(9),
            max_stored_bytes: Some(1 << 30),
            ..Default::default()
        };
        call!(self, client, update_namespace, "UpdateNamespace", request);
        call!(self, client, get_namespace, "GetNamespace", v1::GetNamespaceRequest { name: name.clone() });
        call!(self, client, list_namespaces, "ListNamespaces", v1::ListNamespacesRequest::default());
        let mut client_of_lifecycles = LifecycleServiceClient::new(server.wire());
        let lifecycle = self.id("lifecycle");
        let declaration = format!("name: {lifecycle}\nphases:\n  all: {{initial: true, may_complete: true}}\n");
        let request = v1::PutLifecycleRequest { declaration };
        call!(self, client_of_lifecycles, put_lifecycle, "PutLifecycle", request);
        let request = v1::GetLifecycleRequest { lifecycle };
        call!(self, client_of_lifecycles, get_lifecycle, "GetLifecycle", request);
        let request = v1::ListLifecyclesRequest::default();
        call!(self, client_of_lifecycles, list_lifecycles, "ListLifecycles", request);
        let cursor = self.caught_up(&name).await?;
        let request = v1::NoteExportedRequest { name: name.clone(), cursor };
        call!(self, client, note_exported, "NoteExported", request);
        let request = v1::DeleteNamespaceRequest { name, ..Default::default() };
        call!(self, client, delete_namespace, "DeleteNamespace", request);
        Ok(())
    }

    /// The cursor of a watch of a namespace that has caught up.
    async fn caught_up(&self, namespace: &str) -> Result<String, String> {
        let initial = v1::watch_runs_request::Initial::None.into();
        let mut request = tonic::Request::new(v1::WatchRunsRequest { initial, ..Default::default() });
        request.metadata_mut().insert("runledger-namespace", namespace.parse().unwrap());
        let refused = |status| told("WatchRuns", &status);
        let mut frames = self.client.clone().watch_runs(request).await.map_err(refused)?.into_inner();
        loop {
            match frames.message().await.map_err(refused)?.and_then(|frame| frame.frame) {
                Some(v1::watch_runs_response::Frame::CaughtUp(caught_up)) => return Ok(caught_up.cursor),
                Some(_) => {}
                None => return Err("WatchRuns ends before it has caught up".to_owned()),
            }
        }
    }
}

async fn first<T>(name: &str, frame: impl Future<Output = Result<Option<T>, Status>>) -> Result<(), String> {
    let frame = timeout(SOON, frame).await.map_err(|_elapsed| format!("{name} shows nothing within {SOON:?}"))?;
    frame.map_err(|status| told(name, &status))?.map(drop).ok_or_else(|| format!("{name} ends at once"))
}

/// Makes every call that a server of the release before has, and gives their names; else the call that failed.
async fn every_call(server: &Server, round: &'static str) -> Result<BTreeSet<&'static str>, String> {
    server.is_ready().await;
    let mut caller = Caller { client: server.client(), made: BTreeSet::new(), round };
    caller.lives().await?;
    caller.reads().await?;
    caller.others(server).await?;
    Ok(caller.made)
}

/// The methods that the release before this one has.
fn released() -> BTreeSet<String> {
    let pool = DescriptorPool::decode(RELEASED).unwrap();
    let ours = pool.services().filter(|service| service.package_name() == "runledger.v1");
    ours.flat_map(|service| service.methods().map(|method| method.name().to_owned()).collect::<Vec<_>>()).collect()
}

/// The promise of `MIN_RELEASE`: where it lets the release before this one in, that one works, with every call and tool.
async fn works_or_is_refused_by_name(data: &Data) {
    let mut server = older(data).await;
    every_call(&server, "before").await.unwrap();
    if let Data::Sqlite(_) = data {
        server.process.kill();
    }
    let (code, said) = run(&["migrate", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    if older_is_shut_out().await {
        let args = ["serve", "--listen", "127.0.0.1:0", "--store", &data.store()];
        let (code, said) = Process::spawn_older(&args).exited(SOON).await;
        let wanted = format!("wants Runledger {MIN_RELEASE} or later; this is ");
        assert!(code == 1 && said.contains(&wanted) && !said.contains(&format!("this is {RELEASE}")), "{code}: {said}");
        return;
    }
    if let Data::Postgres(_) = data {
        every_call(&server, "meanwhile").await.expect("a replica that was serving works on: else raise MIN_RELEASE");
    }
    server.process.kill();
    let server = older(data).await;
    every_call(&server, "after").await.expect("the release before works on this schema: else raise MIN_RELEASE");
    for tool in ["verify", "export"] {
        let (code, said) = Process::spawn_older(&[tool, "--store", &data.store()]).exited(SOON).await;
        assert_eq!(code, 0, "{tool} of the release before works on this schema: else raise MIN_RELEASE: {said}");
    }
    data.sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_before_works_on_an_sqlite_file_of_this_one_or_is_refused_by_name() {
    let directory = TempDir::new().unwrap();
    works_or_is_refused_by_name(&Data::Sqlite(directory.path().join("ledger.db"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_before_works_on_a_postgres_of_this_one_or_is_refused_by_name() {
    let database = Database::fresh().await;
    works_or_is_refused_by_name(&Data::Postgres(database.dsn())).await;
}

/// The test above sees what it must: a step that only adds leaves every call as it was, and one that takes something
/// away is noticed by the calls that need it, or at the start.
async fn a_step_that_breaks_is_seen(data: &Data) {
    let mut server = older(data).await;
    let made = every_call(&server, "before").await.unwrap();
    assert_eq!(made.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), released(), "every call was made");
    server.process.kill();
    data.sql("alter table runs add column of_a_later_release text").await;
    data.sql("create table of_a_later_release (number integer primary key)").await;
    let now = if matches!(data, Data::Postgres(_)) { "now()" } else { "1" };
    data.sql(&format!("insert into ledger_migrations (number, name, applied_at) values (99, 'later', {now})")).await;
    let mut server = older(data).await;
    every_call(&server, "added").await.unwrap();
    server.process.kill();
    for (round, statement, call) in BREAKS {
        data.sql(statement).await;
        if matches!(data, Data::Postgres(_)) {
            // It tries each statement before it serves.
            let serve = ["serve", "--listen", "127.0.0.1:0", "--store", &data.store()];
            let (code, said) = Process::spawn_older(&serve).exited(SOON).await;
            assert!(code == 1 && said.contains("the database refuses the statement"), "{statement}: {said}");
            continue;
        }
        let mut server = older(data).await;
        let failed = every_call(&server, round).await.unwrap_err();
        assert!(failed.starts_with(call), "{statement}: {failed}");
        server.process.kill();
    }
}

/// Steps that take something away, and the first call that misses it.
const BREAKS: [(&str, &str, &str); 2] = [
    ("first", "alter table namespaces rename column description to purpose", "CreateNamespace: "),
    ("second", "alter table max_running rename column runs to holders", "ClaimNextRun: "),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_breaks_the_release_before_is_seen_on_sqlite() {
    let directory = TempDir::new().unwrap();
    a_step_that_breaks_is_seen(&Data::Sqlite(directory.path().join("ledger.db"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_breaks_the_release_before_is_seen_on_postgres() {
    let database = Database::fresh().await;
    a_step_that_breaks_is_seen(&Data::Postgres(database.dsn())).await;
}
