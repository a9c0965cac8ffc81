//! The role that a server connects as: the grants that it needs, and that no operator has to guess them.

use runledger_proto::v1::{RunStatus, StartRunRequest, WaitRunRequest};

use super::server::{Process, SOON, Server, run};
use crate::support::postgres::{Database, direct};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_is_told_which_grants_it_lacks_and_serves_everything_with_these() {
    let database = Database::fresh().await;
    let (code, said) = run(&["migrate", "--store", &database.dsn()]).await;
    assert_eq!(code, 0, "{said}");
    let owner = direct(&database.dsn()).await;
    let role = format!("App {}", database.name());
    owner.batch_execute(&format!("create role \"{role}\" login password 'x'")).await.unwrap();
    let place = database.dsn().rsplit_once('@').unwrap().1.to_owned();
    let store = format!("postgres://{}:x@{place}", role.replace(' ', "%20"));

    // Of a schema that it may not use it sees nothing, not even that there is a ledger.
    owner.batch_execute("revoke usage on schema public from public").await.unwrap();
    let (code, said) = run(&["doctor", "--store", &store]).await;
    assert_eq!((code, grants(&said)), (1, &*format!("GRANT USAGE ON SCHEMA public TO \"{role}\"")), "{said}");
    owner.batch_execute(grants(&said)).await.unwrap();
    let (code, said) = run(&["doctor", "--store", &store]).await;
    assert_eq!(code, 1, "{said}");
    owner.batch_execute(grants(&said)).await.unwrap();
    let (code, said) = run(&["doctor", "--store", &store]).await;
    assert!([0, 1].contains(&code), "{said}");

    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", &store, "--allow-unsafe-store"];
    let (code, said) = Process::spawn(&serve).exited(SOON).await;
    assert_eq!(code, 1, "{said}");
    assert!(!grants(&said).contains("SELECT ON ledger"), "doctor was granted that: {said}");
    owner.batch_execute(grants(&said)).await.unwrap();
    let server = Server::of(Process::spawn(&serve)).await;
    server.is_ready().await;

    let address = server.address.to_string();
    for measurement in [
        &["lifecycle", "--callers", "4", "--seconds", "1"][..],
        &["leases", "heartbeats", "--runs", "20", "--every", "1", "--seconds", "2"],
        &["leases", "claims", "--runs", "20", "--workers", "4", "--instances", "2"],
    ] {
        let (code, said) = run(&[&["bench"], measurement, &["--server", &address]].concat()).await;
        assert_eq!(code, 0, "{measurement:?}: {said}");
    }
    let mut client = server.client();
    let lease_ttl = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let dead = StartRunRequest { task_thread_id: "t".into(), run_id: "dead".into(), lease_ttl, ..Default::default() };
    client.start_run(dead).await.unwrap();
    let pending =
        StartRunRequest { task_thread_id: "t".into(), run_id: "next".into(), deferred: true, ..Default::default() };
    client.start_run(pending).await.unwrap();
    for command in [
        &["run", "claim-next", "--server", &address][..],
        &["run", "release", "next", "--lease-epoch", "1", "--not-begun", "--server", &address],
        &["run", "claim-next", "--server", &address],
    ] {
        let (code, said) = run(command).await;
        assert_eq!(code, 0, "{command:?}: {said}");
    }
    let ended = WaitRunRequest { run_id: "dead".into(), ..Default::default() };
    let ended = client.wait_run(ended).await.unwrap().into_inner().run.unwrap();
    assert_eq!((ended.status(), ended.reason_code.as_str()), (RunStatus::Failed, "ORPHANED"));
    assert!(!server.process.said().contains("permission denied"), "{}", server.process.said());
    owner.batch_execute(&format!("drop owned by \"{role}\"")).await.unwrap();
}

/// The statements that mend it, as they are said.
fn grants(said: &str) -> &str {
    let (_, told) = said.split_once(" lacks privileges").unwrap_or_else(|| panic!("{said}"));
    let begun = told.find("GRANT ").unwrap_or_else(|| panic!("{said}"));
    told[begun..].lines().next().unwrap().trim_end_matches('.')
}
