//! The report to an operator at night.

use std::collections::BTreeSet;

use runledger_proto::v1::SuspendRunRequest;
use serde_json::Value;
use tokio::task::block_in_place;

use super::broken::{finds, names};
use super::ledger::Ledger;
use super::on_both_stores;
use crate::process::server::{SOON, Server, eventually, run};
use crate::support::commands::start;
use crate::support::postgres::{Cluster, direct};

on_both_stores! {
    a_healthy_ledger_is_called_healthy
    a_program_reads_the_same_as_json
    a_server_of_another_ledger_is_a_problem
}

async fn a_healthy_ledger_is_called_healthy(ledger: Ledger) {
    ledger.fill().await;
    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let (run_id, kind, reason) = ("running".to_owned(), "HELP".to_owned(), "which account?".to_owned());
    let asked = SuspendRunRequest { run_id, kind, reason, ..SuspendRunRequest::default() };
    server.client().suspend_run(asked).await.unwrap();
    let (code, said) = ledger.run(&["doctor"]).await;
    assert_eq!(code, 0, "{said}");
    for wanted in [
        "HEALTHY",
        "1 pending, 1 running",
        "agent-1",
        "suspended (HELP)",
        "SHARD",
        "durable  yes",
        "none waits",
        "migration ",
    ] {
        assert!(said.contains(wanted), "{wanted:?} is not in:\n{said}");
    }
    assert!(!said.contains("PROBLEM"), "{said}");
}

async fn a_program_reads_the_same_as_json(ledger: Ledger) {
    ledger.fill().await;
    let (code, said) = ledger.run(&["doctor", "--output", "json"]).await;
    assert_eq!(code, 0, "{said}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["healthy"], true);
    assert_eq!(report["active"], serde_json::json!({"pending": 1, "running": 1}));
    let positions = report["heads"].as_array().unwrap().iter().map(|head| head["position"].as_u64().unwrap());
    assert_eq!(positions.sum::<u64>(), 82);
    assert_eq!(report["oldestActive"][0]["runId"], "running", "who was started first is first");
}

async fn a_server_of_another_ledger_is_a_problem(ledger: Ledger) {
    ledger.fill().await;
    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let other = Server::start("memory").await;
    other.is_ready().await;
    let (own, foreign) = (server.address.to_string(), other.address.to_string());
    let (code, said) = ledger.run(&["doctor", "--server", &own, "--output", "json"]).await;
    assert_eq!(code, 0, "{said}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["replicas"][0]["sameLedger"], true);
    let (code, said) = ledger.run(&["doctor", "--server", &own, "--server", &foreign]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("PROBLEM  {foreign} serves another ledger")), "{said}");
    finds(&ledger.store(), &["--server", &foreign], "replica_of_another_ledger").await;
    assert!(!said.contains(&format!("PROBLEM  {own}")), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_a_head_and_who_waits_for_it_is_named() {
    let ledger = Ledger::postgres().await;
    ledger.commit(vec![start("run")]).await;
    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let holder = direct(&ledger.store()).await;
    holder.batch_execute("set application_name = 'a shell'; begin; select from shards for update").await.unwrap();
    let pid: i32 = holder.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let mut client = server.client();
    let request = runledger_proto::v1::StartRunRequest {
        task_thread_id: "thread".to_owned(),
        run_id: "waiting".to_owned(),
        request_id: "waiting/1".to_owned(),
        ..Default::default()
    };
    let wanted = [
        "PROBLEM  The heads of shards 0, 1, 2 have been held for ".to_owned(),
        format!("by pid {pid} (a shell, 127.0.0.1, idle in transaction"),
        format!("select pg_terminate_backend({pid})"),
        " is awaited by ".to_owned(),
        "runledger, 127.0.0.1, active, commit.lock_head".to_owned(),
        "silent in a transaction for".to_owned(),
        format!("has waited at {} for ", server.address),
        "commands without an answer: 1, the oldest for ".to_owned(),
    ];
    let address = server.address.to_string();
    let asked = ["doctor", "--server", &address];
    // What waits, and where, is another thing from one report to the next.
    let (mut said, mut unsaid, mut named) = (String::new(), wanted.to_vec(), BTreeSet::new());
    // A caller's wait ends after 2 s, and then it calls again: there is always one.
    let mut caller = client.clone();
    let calls = async {
        loop {
            drop(caller.start_run(request.clone()).await);
        }
    };
    let seen = eventually(4 * SOON, async || {
        let (code, report) = ledger.run(&asked).await;
        unsaid.retain(|wanted| code != 1 || !report.contains(wanted));
        said = report;
        named.extend(names(&ledger.run(&[&asked[..], &["--output", "json"]].concat()).await.1, "problems"));
        let all = ["head_held", "head_awaited", "command_waits"];
        (unsaid.is_empty() && all.into_iter().all(|name| named.contains(name))).then_some(())
    });
    let seen = tokio::select! {
        () = calls => unreachable!("it calls for ever"),
        seen = seen => seen,
    };
    assert!(seen.is_some(), "{unsaid:?} was in no report; the last:\n{said}\nnamed: {named:?}");
    holder.batch_execute("rollback").await.unwrap();
    let _ = client.start_run(request).await.unwrap();
    // Where its commits failed for long, it serves again with the write that it tries each second.
    let healthy = eventually(SOON, async || (ledger.run(&asked).await.0 == 0).then_some(())).await;
    assert!(healthy.is_some(), "{}", ledger.run(&asked).await.1);
    server.process.signal("KILL");
    let (code, said) = ledger.run(&asked).await;
    assert_eq!((code, said.contains(&format!("{address} does not answer"))), (1, true), "{said}");
    finds(&ledger.store(), &["--server", &address], "replica_silent").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_sees_little_is_told_so() {
    let ledger = Ledger::postgres().await;
    ledger.fill().await;
    let role = format!("little_{}", std::process::id());
    ledger
        .data
        .sql(&format!(
            "create role {role} login password 'little'; grant select on all tables in schema public to {role}"
        ))
        .await;
    let store = ledger.store();
    let place = store.rsplit_once('@').unwrap().1;
    let (code, said) = run(&["doctor", "--store", &format!("postgres://{role}:little@{place}")]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("grant it pg_monitor"), "{said}");
    let (code, said) = run(&["verify", "--store", &format!("postgres://{role}:little@{place}")]).await;
    assert_eq!(code, 0, "{said}");
    ledger.data.sql(&format!("drop owned by {role}; drop role {role}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_that_may_lose_calls_is_a_problem() {
    let cluster = block_in_place(|| Cluster::start(&[("fsync", "off")]));
    let (code, said) = run(&["migrate", "--store", &cluster.dsn()]).await;
    assert_eq!(code, 0, "{said}");
    let (code, said) = run(&["doctor", "--store", &cluster.dsn()]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("PROBLEM") && said.contains("fsync is off (set it on in postgresql.conf)"), "{said}");
    finds(&cluster.dsn(), &[], "not_durable").await;
}
