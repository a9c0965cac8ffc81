//! Ledgers and replicas that are broken in one way each: the doctor names it in seconds, by a name for programs and by
//! a sentence for people, and its exit code is 1.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use runledger::store::finding::Fault;
use runledger::store::postgres::SCHEMA_MADE;
use runledger_client::Health;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::block_in_place;
use tokio::time::{Duration, Instant};

use super::ledger::Ledger;
use super::on_both_stores;
use crate::process::calls::{Step, ask};
use crate::process::data::Data;
use crate::process::server::{Process, SOON, Server, eventually, run};
use crate::support::mount::Mount;
use crate::support::postgres::{Cluster, Database, direct};

/// The time in which a fault is named. The promise is 3 s; a busy machine has more.
const NAMED_MAX: Duration = Duration::from_secs(12);

/// Runs the doctor, which is to find this fault; gives what it says of it.
pub(crate) async fn finds(store: &str, more: &[&str], name: &str) -> String {
    let begun = Instant::now();
    let (code, said) = run(&[&["doctor", "--store", store, "--output", "json"], more].concat()).await;
    assert_eq!(code, 1, "{name}: {said}");
    assert!(begun.elapsed() < NAMED_MAX, "{name} took {:?}", begun.elapsed());
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["healthy"], false, "{said}");
    let found = report["problems"].as_array().unwrap().iter().find(|problem| problem["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no {name} in:\n{said}"));
    assert!(found["todo"].as_str().is_some_and(|todo| !todo.is_empty()), "a remedy: {found}");
    found["what"].as_str().unwrap().to_owned()
}

/// The names of what a report in JSON has: its `problems`, or its `warnings`.
pub(crate) fn names(report: &str, kind: &str) -> Vec<String> {
    let report: Value = serde_json::from_str(report).unwrap();
    report[kind].as_array().unwrap().iter().map(|found| found["name"].as_str().unwrap().to_owned()).collect()
}

/// Where each fault is found by a test, by its name.
const TRIED: &[(&str, &str)] = &[
    ("no_answer", BROKEN),
    ("login", BROKEN),
    ("no_database", BROKEN),
    ("connection", BROKEN),
    ("server", "tests/it/postgres/pooled.rs"),
    ("no_access", STORES),
    ("foreign", STORES),
    ("parts", STORES),
    ("damaged", STORES),
    ("table_held", BROKEN),
    ("head_held", DOCTOR),
    ("head_awaited", DOCTOR),
    ("silent_session", BROKEN),
    ("encoding", BROKEN),
    ("schema", BROKEN),
    ("privileges", BROKEN),
    ("standby", BROKEN),
    ("other_ledger", BROKEN),
    ("outgrown", BROKEN),
    ("needs_migration", BROKEN),
    ("not_durable", DOCTOR),
    ("no_synchronous_standby", "tests/it/process/failover.rs"),
    ("no_space", BROKEN),
    ("read_only", BROKEN),
    ("clock_ahead", BROKEN),
    ("not_serving", BROKEN),
    ("replica_silent", DOCTOR),
    ("machine_clock", "tests/it/process/clocks.rs"),
    ("replica_of_another_ledger", DOCTOR),
    ("command_waits", DOCTOR),
];

const BROKEN: &str = "tests/it/inspect/broken.rs";
const DOCTOR: &str = "tests/it/inspect/doctor.rs";
const STORES: &str = "tests/it/process/stores.rs";

/// Faults that take more than a test has.
const UNTRIED: &[(&str, &str)] = &[
    ("several_names", "who reads may read such a file"),
    ("unopened", "what has no name"),
    ("old_transaction", "ten minutes"),
    ("connections", "all connections of the server that the tests share"),
    ("large_log", "256 MiB"),
    ("dead_rows", "100,000 of them"),
    ("unreadable", "a failure between two statements"),
    ("replica_refuses", "tests/it/identity has the refusal itself"),
    ("replica_opening", "a moment"),
    ("replica_memory", "a process without memory"),
];

#[test]
fn every_fault_is_tried_and_stands_on_the_page() {
    let page = fs::read_to_string("docs/operating.md").unwrap();
    for (name, means) in Fault::ALL {
        match TRIED.iter().find(|(tried, _)| tried == name) {
            Some((_, file)) => assert!(is_named(name, file), "{file} does not find {name}"),
            None => assert!(UNTRIED.iter().any(|(untried, _)| untried == name), "no test has {name}"),
        }
        let line = format!("| `{name}` | {} |\n", means.trim().trim_end_matches('.'));
        assert!(page.contains(&line), "docs/operating.md lacks: {line}");
    }
    assert_eq!(TRIED.len() + UNTRIED.len(), Fault::ALL.len());
    let (untried, _) = UNTRIED.last().unwrap();
    assert!(!is_named(untried, BROKEN), "the lists of this file find nothing");
}

/// Whether a file of tests names a fault, but for the lists of this one.
fn is_named(name: &str, file: &str) -> bool {
    let text = fs::read_to_string(file).unwrap();
    let lists = |list: &str| text.find(&format!("const {list}: ")).map(|at| at..at + text[at..].find("\n];").unwrap());
    let lists: Vec<_> = ["TRIED", "UNTRIED"].into_iter().filter_map(lists).collect();
    let outside = |at: &usize| !lists.iter().any(|list| list.contains(at));
    let name = format!("\"{name}\"");
    text.match_indices(&name).map(|(at, _)| at).any(|at| outside(&at))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_is_not_let_in_a_database_that_is_not_there_and_files_that_are_none() {
    let rules = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o644)).tempfile().unwrap();
    let text = "host all runledger 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    fs::write(rules.path(), text).unwrap();
    let cluster = block_in_place(|| Cluster::start(&[("hba_file", rules.path().to_str().unwrap())]));
    direct(&cluster.dsn()).await.batch_execute("create role other login password 'right'").await.unwrap();
    let at = format!("127.0.0.1:{}", cluster.port());
    for (store, name, words, remedy) in [
        (format!("postgres://other:s3cret@{at}/postgres"), "login", "FATAL 28P01: ", "the user and the password"),
        (format!("postgres://nobody:s3cret@{at}/postgres"), "login", "FATAL 28P01: ", "the user and the password"),
        (format!("postgres://other@{at}/postgres"), "connection", "password", "its user and password"),
        (format!("postgres://runledger@{at}/nodb"), "no_database", "FATAL 3D000: ", "createdb"),
        (format!("postgres://runledger@{at}/postgres?sslmode=require"), "connection", "TLS", "sslmode"),
        ("postgres://u:s3cret@127.0.0.1:1/d".to_owned(), "no_answer", "does not answer", "runs"),
        ("postgres://u:s3cret@nowhere.invalid/d".to_owned(), "no_answer", "does not answer", "runs"),
    ] {
        let said = finds(&store, &[], name).await;
        assert!(said.contains(words) && !said.contains("s3cret"), "{store}: {said}");
        let (code, said) = run(&["doctor", "--store", &store]).await;
        assert!(code == 1 && said.starts_with("NOT HEALTHY\nPROBLEM  "), "{store}: {said}");
        assert!(said.contains(remedy), "{store}: {said}");
        let (code, said) = run(&["verify", "--store", &store]).await;
        assert!(code == 3 && said.contains(words) && !said.contains("s3cret"), "{store}: {said}");
    }
}

async fn events_that_have_not_happened_yet_and_a_schema_of_before(ledger: Ledger) {
    ledger.fill().await;
    let later = match ledger.data {
        Data::Sqlite(_) => "at + 86400000000",
        Data::Postgres(_) => "at + interval '1 day'",
    };
    ledger.data.sql(&format!("update run_events set at = {later}")).await;
    let said = finds(&ledger.store(), &[], "clock_ahead").await;
    assert!(said.contains("ahead of the store's clock"), "{said}");
    let last = "select max(number) from ledger_migrations";
    ledger.data.sql(&format!("delete from ledger_migrations where number = ({last})")).await;
    finds(&ledger.store(), &[], "needs_migration").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_of_the_environment_is_asked_and_that_of_a_named_context() {
    let ledger = Ledger::sqlite();
    ledger.fill().await;
    let other = Server::start("memory").await;
    other.is_ready().await;
    let (home, address) = (TempDir::new().unwrap(), other.address.to_string());
    let environment = [("RUNLEDGER_SERVER", &*address), ("HOME", home.path().to_str().unwrap())];
    let (store, wanted) = (ledger.store(), format!("PROBLEM  {address} serves another ledger"));
    let doctor = ["doctor", "--store", &store];
    let (code, said) = Process::spawn_with(&doctor, &environment).exited(SOON).await;
    assert!(code == 1 && said.contains(&wanted), "{said}");
    let (code, said) =
        Process::spawn_with(&["context", "add", "other", "--server", &address], &environment[1..]).exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    let named = [&doctor[..], &["--context", "other"]].concat();
    let (code, said) = Process::spawn_with(&named, &environment[1..]).exited(SOON).await;
    assert!(code == 1 && said.contains(&wanted), "{said}");
    let (code, said) = Process::spawn_with(&doctor, &environment[1..]).exited(SOON).await;
    assert_eq!(code, 0, "{said}");
}

/// Writes until nothing fits any more, but for so many bytes.
fn fill(path: &Path, but_for: usize) {
    let reserve = path.with_extension("reserve");
    fs::write(&reserve, vec![0; but_for]).unwrap();
    let mut file = fs::File::create(path).unwrap();
    for size in [65536, 4096, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    fs::remove_file(reserve).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_and_a_replica_that_does_not_serve_for_it() {
    let Some(mount) = Mount::tmpfs("size=64m") else { return };
    let store = Data::Sqlite(mount.path().join("ledger.db")).store();
    let server = Server::start(&store).await;
    server.is_ready().await;
    ask(&mut server.client(), "before", Step::Start, "request").await.unwrap();
    server.becomes("", Health::Serving, SOON).await;
    let address = server.address.to_string();
    let (code, said) = run(&["doctor", "--store", &store, "--server", &address]).await;
    assert_eq!((code, said.contains("health: serving and ready; last commit: ")), (0, true), "{said}");
    fill(&mount.path().join("filler"), 0);
    let mut number = 0;
    while ask(&mut server.hasty(), &format!("run-{number}"), Step::Start, "request").await.is_ok() {
        number += 1;
        assert!(number < 5000, "the disk was never full");
    }
    server.becomes("", Health::NotServing, SOON).await;
    let said = finds(&store, &["--server", &address], "not_serving").await;
    for wanted in [&*address, "full", "the last commit that worked was "] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let said = finds(&store, &[], "no_space").await;
    assert!(said.contains("0 KiB are left on the file system"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn little_space() {
    let Some(mount) = Mount::tmpfs("size=64m") else { return };
    let store = Data::Sqlite(mount.path().join("ledger.db")).store();
    assert_eq!(run(&["migrate", "--store", &store]).await.0, 0);
    assert_eq!(run(&["doctor", "--store", &store]).await.0, 0);
    fill(&mount.path().join("filler"), 8 * 1024 * 1024);
    finds(&store, &[], "no_space").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_system_that_is_only_read() {
    let Some(mount) = Mount::tmpfs("size=64m") else { return };
    let store = Data::Sqlite(mount.path().join("ledger.db")).store();
    assert_eq!(run(&["migrate", "--store", &store]).await.0, 0);
    mount.only_read();
    finds(&store, &[], "read_only").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_on_any_table() {
    let ledger = Ledger::postgres().await;
    ledger.fill().await;
    let holder = direct(&ledger.store()).await;
    let pid: i32 = holder.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let tables: Vec<&str> =
        SCHEMA_MADE.lines().filter_map(|line| line.strip_prefix("table\t")?.split('\t').next()).collect();
    assert!(tables.len() >= 20, "{tables:?}");
    holder.batch_execute(&format!("begin; lock table {} in access exclusive mode", tables.join(", "))).await.unwrap();
    let (code, said) = ledger.run(&["doctor", "--output", "json"]).await;
    assert_eq!(code, 1, "{said}");
    for table in &tables {
        let wanted =
            format!("The table {table} is held (AccessExclusiveLock) by pid {pid} (127.0.0.1, idle in transaction, ");
        assert!(said.contains(&wanted), "{wanted} is not in: {said}");
    }
    holder.batch_execute("rollback; begin; lock table ledger in access exclusive mode").await.unwrap();
    let said = finds(&ledger.store(), &[], "table_held").await;
    assert!(said.contains("The table ledger is held"), "{said}");
    for command in ["verify", "export"] {
        let begun = Instant::now();
        let (code, said) = ledger.run(&[command]).await;
        assert_eq!(
            (code, said.contains(&format!("the table ledger is held (AccessExclusiveLock) by pid {pid}"))),
            (3, true),
            "{said}"
        );
        assert!(begun.elapsed() < NAMED_MAX, "{command} took {:?}", begun.elapsed());
    }
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(ledger.run(&["doctor"]).await.0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_another_program_keeps_locked() {
    let ledger = Ledger::sqlite();
    ledger.fill().await;
    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let Data::Sqlite(path) = &ledger.data else { panic!("it is SQLite") };
    let other = rusqlite::Connection::open(path).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let said = finds(&ledger.store(), &[], "table_held").await;
    assert!(said.contains(&format!("The file is locked by pid {}", std::process::id())), "{said}");
    other.execute_batch("rollback").unwrap();
    assert_eq!(ledger.run(&["doctor"]).await.0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_commits_fail() {
    let database = Database::fresh().await;
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let data = Data::Postgres(database.dsn());
    data.sql(
        "create function full_disk() returns trigger language plpgsql as $$
         begin raise exception 'could not extend file' using errcode = '53100'; end $$;
         create trigger full_disk before insert on run_events for each row execute function full_disk()",
    )
    .await;
    ask(&mut server.hasty(), "during", Step::Start, "request").await.unwrap_err();
    server.becomes("", Health::NotServing, SOON).await;
    let said = finds(&database.dsn(), &["--server", &server.address.to_string()], "not_serving").await;
    assert!(said.contains("could not extend file") && said.contains("no commit has worked"), "{said}");
    finds(&database.dsn(), &[], "schema").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_another_encoding() {
    let database = Database::fresh().await;
    let name = format!("{}_latin1", database.name());
    let admin = direct(&database.dsn()).await;
    let create = format!("create database {name} encoding 'LATIN1' locale 'C' template template0");
    admin.batch_execute(&create).await.unwrap();
    let said = finds(&database.dsn().replace(database.name(), &name), &[], "encoding").await;
    assert!(said.contains("is in the encoding LATIN1"), "{said}");
    admin.batch_execute(&format!("drop database {name} with (force)")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_ledgers_and_one_that_is_elsewhere() {
    let database = Database::fresh().await;
    let store = database.dsn();
    let in_own = format!("{store}{}options=-csearch_path%3Down", if store.contains('?') { '&' } else { '?' });
    direct(&store).await.batch_execute("create schema own").await.unwrap();
    assert_eq!(run(&["migrate", "--store", &in_own]).await.0, 0);
    let said = finds(&store, &[], "other_ledger").await;
    assert!(said.contains("leads to no ledger") && said.contains("in the schema own (owned by "), "{said}");
    assert_eq!(run(&["doctor", "--store", &in_own]).await.0, 0);
    let other = "create schema other; create table other.ledger (); create table other.ledger_migrations ()";
    direct(&store).await.batch_execute(other).await.unwrap();
    let said = finds(&in_own, &[], "other_ledger").await;
    assert!(said.contains("beside the one in the schema own: in other (owned by "), "{said}");
}

on_both_stores! {
    a_ledger_that_has_outgrown_this_release
    events_that_have_not_happened_yet_and_a_schema_of_before
}

async fn a_ledger_that_has_outgrown_this_release(ledger: Ledger) {
    ledger.fill().await;
    ledger.data.sql("update ledger set min_release = '98.7.6'").await;
    let said = finds(&ledger.store(), &[], "outgrown").await;
    assert!(said.contains("wants Runledger 98.7.6 or later"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_and_a_database_that_has_stopped() {
    let mut primary = block_in_place(|| Cluster::start(&[("wal_level", "replica"), ("max_wal_senders", "4")]));
    assert_eq!(run(&["migrate", "--store", &primary.dsn()]).await.0, 0);
    let standby = block_in_place(|| primary.standby());
    finds(&standby.dsn(), &[], "standby").await;
    let server = Server::start(&primary.dsn()).await;
    server.is_ready().await;
    block_in_place(|| primary.stop());
    let address = server.address.to_string();
    finds(&primary.dsn(), &["--server", &address], "no_answer").await;
    server.becomes("", Health::NotServing, SOON).await;
    finds(&primary.dsn(), &["--server", &address], "not_serving").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_accepts_and_says_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let said = finds(&format!("postgres://u:p@{}/d", silent.local_addr().unwrap()), &[], "no_answer").await;
    assert!(said.contains("does not answer"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_without_a_grant() {
    let ledger = Ledger::postgres().await;
    ledger.fill().await;
    let role = format!("bare_{}", std::process::id());
    ledger.data.sql(&format!("create role {role} login password 'bare'")).await;
    let store = ledger.store();
    let place = store.rsplit_once('@').unwrap().1;
    let said = finds(&format!("postgres://{role}:bare@{place}"), &[], "privileges").await;
    assert!(said.contains(&format!("The role {role} lacks privileges")), "{said}");
    ledger.data.sql(&format!("drop role {role}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_silent_in_a_transaction() {
    let ledger = Ledger::postgres().await;
    ledger.fill().await;
    let silent = direct(&ledger.store()).await;
    silent.batch_execute("begin; select from namespaces").await.unwrap();
    let seen = eventually(SOON, async || {
        let (code, said) = ledger.run(&["doctor", "--output", "json"]).await;
        (code == 1 && names(&said, "problems").contains(&"silent_session".to_owned())).then_some(())
    });
    assert!(seen.await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_ledger_at_all_is_no_diagnosis() {
    let directory = TempDir::new().unwrap();
    let missing = format!("sqlite:{}", directory.path().join("ledger.db").display());
    assert_eq!(run(&["doctor", "--store", &missing]).await.0, 3);
}
