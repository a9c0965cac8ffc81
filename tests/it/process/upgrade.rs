//! A database of an older release, with runs in it, is brought to this release's schema.

use runledger::store::migrations::{MIN_RELEASE, POSTGRES, SQLITE};
use runledger_proto::v1::{ListRunsRequest, RunFilter, RunStatus};
use tempfile::TempDir;
use tokio::sync::watch;
use tonic::Code;

use super::calls::{Answer, Step, ask, reason};
use super::data::Data;
use super::load::{Load, answered, are_replayed, slowest};
use super::older_schema::{older, older_is_shut_out};
use super::server::{SOON, Server, run};
use crate::support::postgres::Database;

/// Runs of which one has ended.
pub(super) async fn some_runs(server: &Server, ids: [&str; 3]) {
    server.is_ready().await;
    for id in ids {
        ask(&mut server.client(), id, Step::Start, "start").await.unwrap();
    }
    ask(&mut server.client(), ids[1], Step::Complete, "end").await.unwrap();
}

/// Takes back what later migrations brought: the schema as the first release left it, but for the columns that the
/// stand-in for an older replica looks at.
async fn as_the_first_release_left_it(data: &Data) {
    data.sql("drop index active_by_start").await;
    data.sql("drop index run_events_by_namespace").await;
    data.sql("drop index runs_by_parent").await;
    data.sql("drop index runs_by_continued").await;
    for table in [
        "leases",
        "uptime",
        "max_running",
        "suspended",
        "claims",
        "namespaces",
        "stored_bytes",
        "purged",
        "retention_walks",
        "exported",
        "run_input",
        "run_results",
        "run_links",
        "lifecycles",
    ] {
        data.sql(&format!("drop table {table}")).await;
    }
    data.sql("drop index active_by_priority").await;
    data.sql("alter table active drop column priority").await;
    data.sql("drop index active_by_due").await;
    data.sql("alter table active drop column due_at").await;
    data.sql("alter table ledger add column alive_at integer").await;
    data.sql("alter table ledger drop column seal_key").await;
    if let Data::Sqlite(_) = data {
        data.sql("alter table ledger drop column cleaning_owed").await;
        for (index, columns) in [("runs_by_start", ""), ("runs_by_task_thread", "task_thread_id, ")] {
            data.sql(&format!("drop index {index}")).await;
            data.sql(&format!("create index {index} on runs (namespace, {columns}started_at, run_id)")).await;
        }
        for column in ["archived_at", "purged_at", "parent_run_id", "continues_run_id"] {
            data.sql(&format!("alter table runs drop column {column}")).await;
        }
    }
    data.sql("delete from ledger_migrations where number > 1").await;
}

async fn active(server: &Server) -> Vec<String> {
    server.is_ready().await;
    let filter = RunFilter { statuses: vec![RunStatus::Running.into()], ..RunFilter::default() };
    let asked = ListRunsRequest { filter: Some(filter), ..ListRunsRequest::default() };
    let listed = server.client().list_runs(asked).await.unwrap().into_inner();
    listed.runs.into_iter().map(|run| run.run_id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_sqlite_file_of_the_first_release_is_migrated_by_serving_it() {
    let directory = TempDir::new().unwrap();
    let data = Data::Sqlite(directory.path().join("ledger.db"));
    let mut server = Server::start(&data.store()).await;
    some_runs(&server, ["run-1", "run-2", "run-3"]).await;
    server.process.kill();
    as_the_first_release_left_it(&data).await;
    let server = Server::start(&data.store()).await;
    assert_eq!(active(&server).await, ["run-3", "run-1"]);
    assert_eq!(data.sql("select max(number) from ledger_migrations").await, [[Some(SQLITE.len().to_string())]]);
    data.sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_of_the_first_release_is_migrated_while_a_replica_of_it_serves() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let older = Server::start(&data.store()).await;
    some_runs(&older, ["run-1", "run-2", "run-3"]).await;
    as_the_first_release_left_it(&data).await;
    let newer = Server::start(&data.store()).await;
    newer.process.says(&format!("is at migration 1 and this release needs {}", POSTGRES.len())).await;
    some_runs(&older, ["run-4", "run-5", "run-6"]).await;
    let (code, said) = run(&["migrate", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("applied active_by_start") && !said.contains("applied ledger"), "{said}");
    some_runs(&older, ["run-7", "run-8", "run-9"]).await;
    let running = ["run-9", "run-7", "run-6", "run-4", "run-3", "run-1"];
    assert_eq!(active(&newer).await, running);
    assert_eq!(active(&older).await, running);
    data.sound().await;
}

/// The old replica's events stay and are understood; from a migration on that shuts it out, it writes no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_of_the_release_before_writes_nothing_after_a_migration_that_shuts_it_out() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let older = older(&data).await;
    some_runs(&older, ["run-1", "run-2", "run-3"]).await;
    let (code, said) = run(&["migrate", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    let mut running = vec!["run-3", "run-1"];
    let started = ask(&mut older.hasty(), "run-4", Step::Start, "start").await;
    if older_is_shut_out().await {
        let status = started.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"));
        older.process.says("this replica is too old for its database and writes no more").await;
    } else {
        started.unwrap();
        running.insert(0, "run-4");
    }
    let newer = Server::start(&data.store()).await;
    assert_eq!(active(&newer).await, running);
    let (code, said) = run(&["verify", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    data.sound().await;
}

/// Both releases serve one database under load while it is migrated, and the older one leaves in the end: every call
/// that is sent again when it was put off is acknowledged, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_under_load_fails_no_call_that_is_sent_again() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let mut old = [older(&data).await, older(&data).await];
    for server in &old {
        server.is_ready().await;
    }
    let [first, second] = [old[0].address, old[1].address];
    let (targets, watched) = watch::channel(vec![first, second]);
    let mut load = Load::known_before("upgrade", 8, &watched);
    load.progresses(200).await;
    let newer = Server::start(&data.store()).await;
    newer.process.says("and this release needs").await;
    let (code, said) = run(&["migrate", "--dry-run", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    let shut_out = older_is_shut_out().await;
    assert_eq!(
        said.contains(&format!("binaries older than {MIN_RELEASE} are refused from then on")),
        shut_out,
        "{said}"
    );
    load.progresses(200).await;
    let (code, said) = run(&["migrate", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    newer.is_ready().await;
    targets.send_replace(vec![first, second, newer.address]);
    load.progresses(400).await;
    for (server, left) in old.iter_mut().zip([vec![second, newer.address], vec![newer.address]]) {
        server.process.signal("TERM");
        targets.send_replace(left);
        let (code, said) = server.process.exited(SOON).await;
        assert_eq!(code, 0, "{said}");
        load.progresses(100).await;
    }
    let mut calls = load.finish().await;
    let slowest = slowest(&calls).slowest;
    eprintln!("{} calls, {} answers put them off, slowest {slowest:?}", calls.len(), answered(&calls, is_no_answer));
    data.sound().await.agree_with(&calls);
    are_replayed(&newer, &mut calls).await;
}

fn is_no_answer(answer: &Answer) -> bool {
    !matches!(answer, Answer::Applied(_) | Answer::Replayed(_))
}

/// What a look says of a database of the release before, which it leaves as it is; and of others.
async fn a_look_says_what_a_migration_would_do(data: &Data) {
    let look = async || run(&["migrate", "--dry-run", "--store", &data.store()]).await;
    let newest = SQLITE.len();
    let (code, said) = look().await;
    assert!(code == 0 && said.contains(&format!("would make one at migration {newest}, for Runledger ")), "{said}");
    if let Data::Sqlite(path) = data {
        assert!(!path.exists(), "nothing was made");
    }
    let mut server = older(data).await;
    some_runs(&server, ["run-1", "run-2", "run-3"]).await;
    let state = "select number from ledger_migrations union all select count(*) from runs order by 1";
    let (before, releases) = (data.sql(state).await, "select schema_release, min_release from ledger");
    let stated = data.sql(releases).await;
    let min_release = stated[0][1].clone().unwrap();
    let (code, said) = look().await;
    assert_eq!(code, 0, "{said}");
    let at = before.len() - 1;
    assert!(said.contains(&format!(" is at migration {at}, for Runledger {min_release} or later\n")), "{said}");
    for step in &SQLITE[at..] {
        assert!(said.contains(&format!("\nwould apply {} {}", step.number, step.name)), "{said}");
    }
    let raise = format!(
        "would raise min_release from {min_release} to {MIN_RELEASE}: binaries older than {MIN_RELEASE} are refused"
    );
    assert_eq!(said.contains(&raise), min_release != MIN_RELEASE, "{said}");
    assert_eq!(
        said.contains("stop writing"),
        min_release != MIN_RELEASE && matches!(data, Data::Postgres(_)),
        "{said}"
    );
    assert_eq!((data.sql(state).await, data.sql(releases).await), (before, stated), "nothing was changed");
    some_runs(&server, ["run-4", "run-5", "run-6"]).await;
    server.process.kill();

    let (code, said) = run(&["migrate", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    let (code, said) = look().await;
    assert!(code == 0 && said.ends_with("\nnothing to apply\n") && !said.contains("would"), "{said}");
    data.sql("update ledger set min_release = '999.0.0'").await;
    let (code, said) = look().await;
    assert!(code == 1 && said.contains("wants Runledger 999.0.0 or later; this is "), "{code}: {said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_says_what_a_migration_would_do_to_an_sqlite_file() {
    let directory = TempDir::new().unwrap();
    a_look_says_what_a_migration_would_do(&Data::Sqlite(directory.path().join("ledger.db"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_says_what_a_migration_would_do_to_a_postgres() {
    let database = Database::fresh().await;
    a_look_says_what_a_migration_would_do(&Data::Postgres(database.dsn())).await;
}

/// Of the first release's Postgres a look names what callers would notice, step by step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_names_the_steps_that_hold_up_writers() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let server = Server::start(&data.store()).await;
    some_runs(&server, ["run-1", "run-2", "run-3"]).await;
    as_the_first_release_left_it(&data).await;
    let (code, said) = run(&["migrate", "--dry-run", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    for line in
        ["would apply 2 active_by_start\n", "would apply 3 growth: nobody writes while ", "would apply 10 namespaces: "]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
}
