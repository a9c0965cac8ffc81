//! Runs that callers with a proven identity leased in the release before: its events said less of who holds a lease.

use runledger_proto::v1::run_service_client::RunServiceClient;
use runledger_proto::v1::{
    ClaimRunRequest, CompleteRunRequest, HeartbeatRunRequest, ReleaseRunRequest, ResumeRunRequest, StartRunRequest,
    SuspendRunRequest,
};
use tempfile::TempDir;
use tonic::transport::Endpoint;

use super::callers::{Caller, Client, entry, grant};
use crate::process::data::Data;
use crate::process::server::{Process, Server, run};
use crate::support::postgres::Database;

const TTL: Option<prost_types::Duration> = Some(prost_types::Duration { seconds: 3600, nanos: 0 });

/// A server's clients: of one that names no agent, of one that names one, and of an operator.
fn clients(server: &Server) -> [Client; 3] {
    let channel = Endpoint::from_shared(format!("http://{}", server.address)).unwrap().connect_lazy();
    [Caller::of("worker"), Caller::of("worker").acting("a-1"), Caller::of("operator")]
        .map(|caller| RunServiceClient::with_interceptor(channel.clone(), caller))
}

async fn verified(data: &Data) {
    let (code, said) = run(&["verify", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    data.sound().await;
}

async fn are_sound_and_go_on(data: &Data) {
    let directory = tempfile::tempdir().unwrap();
    let access = directory.path().join("access.toml");
    let rules =
        [entry("worker", &grant("*", "reporter", "\"*\"")), entry("operator", &grant("*", "operator", "\"*\""))];
    std::fs::write(&access, rules.concat()).unwrap();
    let serving = |store: &str| ["serve", "--listen", "127.0.0.1:0", "--store", store].map(str::to_owned);
    let args = [&serving(&data.store())[..], &["--access-file".to_owned(), access.display().to_string()]].concat();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();

    let mut older = Server::of(Process::spawn_older(&args)).await;
    older.is_ready().await;
    for (name, client) in ["unnamed", "named"].into_iter().zip(&mut clients(&older)) {
        for held in ["held", "taken-over", "released"] {
            let run_id = format!("{name}-{held}");
            let request = StartRunRequest {
                run_id: run_id.clone(),
                task_thread_id: "thread".to_owned(),
                lease_ttl: TTL,
                ..Default::default()
            };
            client.start_run(request).await.unwrap();
            if held != "held" {
                let request = ReleaseRunRequest { run_id: run_id.clone(), lease_epoch: 1, ..Default::default() };
                client.release_run(request).await.unwrap();
            }
            if held == "taken-over" {
                let request = ClaimRunRequest { run_id, lease_ttl: TTL, ..Default::default() };
                client.claim_run(request).await.unwrap();
            }
        }
    }
    older.process.kill();
    let (code, said) = run(&["migrate", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    verified(data).await;

    let mut newer = Server::of(Process::spawn(&args)).await;
    newer.is_ready().await;
    let mut clients = clients(&newer);
    for (number, name) in ["unnamed", "named"].into_iter().enumerate() {
        for (held, epoch) in [("held", 1), ("taken-over", 3)] {
            let run_id = format!("{name}-{held}");
            let client = &mut clients[number];
            let request = HeartbeatRunRequest { run_id: run_id.clone(), lease_epoch: epoch, ..Default::default() };
            client.heartbeat_run(request).await.unwrap();
            let request = SuspendRunRequest {
                run_id: run_id.clone(),
                kind: "HELP".to_owned(),
                reason: "which account?".to_owned(),
                lease_epoch: epoch,
                ..Default::default()
            };
            client.suspend_run(request).await.unwrap();
            let request = ResumeRunRequest { run_id: run_id.clone(), reason: "the first".into(), ..Default::default() };
            clients[2].resume_run(request).await.unwrap();
            let client = &mut clients[number];
            let request = ClaimRunRequest { run_id: run_id.clone(), lease_ttl: TTL, ..Default::default() };
            let claimed = client.claim_run(request).await.unwrap().into_inner().run.unwrap();
            let lease_epoch = claimed.lease.unwrap().epoch;
            assert_eq!(lease_epoch, epoch + 1);
            let request = CompleteRunRequest { run_id, lease_epoch, ..Default::default() };
            client.complete_run(request).await.unwrap();
        }
    }
    newer.process.kill();
    verified(data).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_proven_callers_leased_before_an_upgrade_are_sound_and_go_on_in_an_sqlite_file() {
    let directory = TempDir::new().unwrap();
    are_sound_and_go_on(&Data::Sqlite(directory.path().join("ledger.db"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_proven_callers_leased_before_an_upgrade_are_sound_and_go_on_in_a_postgres() {
    let database = Database::fresh().await;
    are_sound_and_go_on(&Data::Postgres(database.dsn())).await;
}
