//! Stores that a ledger cannot work in are refused when they are opened, by the sentence that says what to do; and what
//! breaks one that is served is not taken for an outage.

use std::path::Path;

use runledger_client::Health;
use tempfile::TempDir;

use super::calls::{Step, ask, reason};
use super::data::Data;
use super::server::{Process, SOON, Server, run};
use crate::support::postgres::{Database, direct};

async fn serve(store: &str) -> (i32, String) {
    Process::spawn(&["serve", "--listen", "127.0.0.1:0", "--store", store]).exited(SOON).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_another_encoding_is_refused_before_anything_is_made_in_it() {
    let database = Database::fresh().await;
    let admin = direct(&database.dsn()).await;
    for encoding in ["LATIN1", "LATIN2", "WIN1252", "KOI8R", "EUC_JP", "SQL_ASCII"] {
        let name = format!("{}_{}", database.name(), encoding.to_lowercase());
        admin
            .batch_execute(&format!("create database {name} encoding '{encoding}' locale 'C' template template0"))
            .await
            .unwrap();
        let store = database.dsn().replace(database.name(), &name);
        let wanted =
            format!("is in the encoding {encoding}, and a ledger needs UTF8: make a database in it (createdb -E UTF8");
        let (code, said) = serve(&store).await;
        assert_eq!((code, said.contains(&wanted), said.contains("listens on")), (1, true, false), "{said}");
        let (code, said) = run(&["migrate", "--store", &store]).await;
        assert!(code != 0 && said.contains(&wanted), "{said}");
        let tables = Data::Postgres(store.clone()).sql("select 1 from pg_tables where schemaname = 'public'").await;
        assert_eq!(tables.len(), 0, "{encoding}");
        let (code, said) = run(&["doctor", "--store", &store, "--output", "json"]).await;
        assert!(code == 1 && said.contains("\"name\":\"encoding\""), "{said}");
        admin.batch_execute(&format!("drop database {name} with (force)")).await.unwrap();
    }
}

/// What somebody did to a ledger's tables, what is said of it, and how it is undone.
const DONE_ON_POSTGRES: &[(&str, &str, &str)] = &[
    (
        "create rule theirs as on insert to active do instead nothing",
        "the table active has a rule theirs",
        "drop rule theirs on active",
    ),
    (
        "create function theirs() returns trigger language plpgsql as 'begin return null; end';
         create trigger theirs before insert on run_events for each row execute function theirs()",
        "the table run_events has a trigger theirs",
        "drop trigger theirs on run_events; drop function theirs",
    ),
    (
        "create table theirs (name text collate \"C\" references namespaces)",
        "the table theirs has a foreign key theirs_name_fkey to namespaces",
        "drop table theirs",
    ),
    (
        "alter table runs add constraint theirs check (revision < 1000)",
        "the table runs has a constraint theirs (check)",
        "alter table runs drop constraint theirs",
    ),
    (
        "create unique index theirs on leases (run_id)",
        "the table leases has a unique index theirs",
        "drop index theirs",
    ),
    (
        "alter table claims add column theirs text not null",
        "the table claims has a column theirs",
        "alter table claims drop column theirs",
    ),
    ("create table theirs () inherits (purged)", "the table theirs inherits from purged", "drop table theirs"),
    (
        "alter table active replica identity nothing; create publication theirs for table active",
        "the publication theirs has the table active without",
        "drop publication theirs; alter table active replica identity default",
    ),
    (
        "create publication theirs for table runs (shard)",
        "the publication theirs has the table runs without",
        "drop publication theirs",
    ),
    (
        "create publication theirs for table runs where (revision > 1)",
        "the publication theirs has the table runs without",
        "drop publication theirs",
    ),
    (
        "create publication theirs for table runs (shard, namespace, run_id, status) where (status = 1)",
        "the publication theirs has the table runs without",
        "drop publication theirs",
    ),
    (
        "create publication theirs for table runs (shard, namespace, run_id, status) where (revision > 1 and status = 1)",
        "the publication theirs has the table runs without",
        "drop publication theirs",
    ),
    ("alter table suspended set unlogged", "the table suspended is unlogged", "alter table suspended set logged"),
    (
        "alter index runs_by_start rename to theirs",
        "the index runs_by_start of the table runs (of namespace, started_at, run_id, partial) is missing",
        "alter index theirs rename to runs_by_start",
    ),
    (
        "alter table runs alter column route type text collate \"default\"",
        "the column route of the table runs is text, and not text collate C",
        "alter table runs alter column route type text collate \"C\"",
    ),
    ("alter table exported rename to theirs", "the table exported is missing", "alter table theirs rename to exported"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_did_to_the_tables_of_a_database_is_named_when_it_is_opened() {
    let database = Database::fresh().await;
    let (code, said) = run(&["migrate", "--store", &database.dsn()]).await;
    assert_eq!(code, 0, "{said}");
    let other = direct(&database.dsn()).await;
    for (done, wanted, undone) in DONE_ON_POSTGRES {
        other.batch_execute(done).await.unwrap();
        let (code, said) = serve(&database.dsn()).await;
        assert_eq!((code, said.contains(wanted)), (1, true), "{done}: {said}");
        other.batch_execute(undone).await.unwrap();
    }
    let harmless = "create index theirs on runs (route); alter table runs add column theirs text;
                    create publication theirs for all tables;
                    create publication inserted for table runs (run_id) with (publish = 'insert');
                    create publication filtered for table runs (shard, namespace, run_id, status) where (run_id > '')";
    other.batch_execute(harmless).await.unwrap();
    Server::start(&database.dsn()).await.is_ready().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_later_release_has_is_tried_all_the_same_and_the_refusal_says_the_servers_details() {
    let database = Database::fresh().await;
    let (code, said) = run(&["migrate", "--store", &database.dsn()]).await;
    assert_eq!(code, 0, "{said}");
    // The catalogue is that of this release alone.
    let later = "insert into ledger_migrations (number, name, applied_at) values (9999, 'later', now());
                 create publication theirs for table runs where (revision > 1)";
    direct(&database.dsn()).await.batch_execute(later).await.unwrap();
    let (code, said) = serve(&database.dsn()).await;
    let wanted = "(Column used in the publication WHERE expression is not part of the replica identity)";
    assert!(code == 1 && said.contains("refuses the statement") && said.contains(wanted), "{code}: {said}");
}

/// The same on SQLite.
const DONE_ON_SQLITE: &[(&str, &str, &str)] = &[
    (
        "create trigger theirs before insert on active begin select raise(ignore); end",
        "the table active has a trigger theirs",
        "drop trigger theirs",
    ),
    (
        "create unique index theirs on leases (run_id)",
        "the table leases has a unique index theirs",
        "drop index theirs",
    ),
    ("alter table exported rename to theirs", "the table exported is missing", "alter table theirs rename to exported"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_did_to_the_tables_of_a_file_is_named_when_it_is_opened() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("ledger.db");
    let store = format!("sqlite:{}", path.display());
    let (code, said) = run(&["migrate", "--store", &store]).await;
    assert_eq!(code, 0, "{said}");
    let change = |statement: &str| rusqlite::Connection::open(&path).unwrap().execute_batch(statement).unwrap();
    for (done, wanted, undone) in DONE_ON_SQLITE {
        change(done);
        let (code, said) = serve(&store).await;
        assert_eq!((code, said.contains(wanted)), (1, true), "{done}: {said}");
        let (code, said) = run(&["doctor", "--store", &store, "--output", "json"]).await;
        assert!(code == 1 && said.contains("\"name\":\"schema\""), "{done}: {said}");
        change(undone);
    }
    let definition = "select sql from sqlite_schema where name = 'runs_by_start'";
    let made: String = rusqlite::Connection::open(&path).unwrap().query_row(definition, [], |row| row.get(0)).unwrap();
    change("drop index runs_by_start");
    let (code, said) = serve(&store).await;
    assert_eq!((code, said.contains("the index runs_by_start of the table runs")), (1, true), "{said}");
    change(&made);
    change("create index theirs on runs (route)");
    Server::start(&store).await.is_ready().await;
}

fn in_utf_16(path: &Path) {
    let other = rusqlite::Connection::open(path).unwrap();
    other.execute_batch("pragma encoding = 'UTF-16le'; create table theirs (text); drop table theirs").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_another_encoding_is_refused_and_nothing_is_made_in_it() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("ledger.db");
    in_utf_16(&path);
    let (code, said) = serve(&format!("sqlite:{}", path.display())).await;
    assert_eq!((code, said.contains("is in the encoding UTF-16le, and a ledger needs UTF-8")), (1, true), "{said}");
    let tables = Data::Sqlite(path).sql("select 1 from sqlite_schema").await;
    assert_eq!(tables.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_somebody_makes_while_it_is_served_is_no_outage_to_be_waited_for() {
    let database = Database::fresh().await;
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let other = direct(&database.dsn()).await;
    other.batch_execute("create rule theirs as on insert to active do instead nothing").await.unwrap();
    let mut client = server.hasty();
    let mut refused = Vec::new();
    for number in 0..6 {
        let status = ask(&mut client, &format!("run-{number}"), Step::Start, "request").await.unwrap_err();
        refused.push(reason(&status));
    }
    assert!(refused.contains(&"STORE_REFUSED".to_owned()), "{refused:?}");
    server.becomes("", Health::NotServing, SOON).await;
    other.batch_execute("drop rule theirs on active").await.unwrap();
    server.becomes("", Health::Serving, SOON).await;
    ask(&mut client, "run", Step::Start, "request").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_a_table_is_named_by_a_server_that_waits_for_it_and_it_serves_when_it_is_free() {
    let database = Database::fresh().await;
    let (code, said) = run(&["migrate", "--store", &database.dsn()]).await;
    assert_eq!(code, 0, "{said}");
    let holder = direct(&database.dsn()).await;
    holder.batch_execute("set application_name = 'a shell'").await.unwrap();
    let pid: i32 = holder.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let rows = "select from shards for update; select from uptime for update; select from ledger for update";
    for (held, wanted) in [
        ("lock table ledger in access exclusive mode", "the table ledger is held (AccessExclusiveLock) by pid"),
        ("lock table retention_walks in exclusive mode", "the table retention_walks is held (ExclusiveLock) by pid"),
        (rows, ""),
    ] {
        holder.batch_execute(&format!("begin; {held}")).await.unwrap();
        let server = Server::start(&database.dsn()).await;
        if !wanted.is_empty() {
            server.process.says(wanted).await;
            server
                .process
                .says(&format!("pid {pid} (a shell, 127.0.0.1, idle in transaction, begin; {}", &held[..20]))
                .await;
            server.process.says(&format!("select pg_terminate_backend({pid})")).await;
        }
        holder.batch_execute("rollback").await.unwrap();
        server.is_ready().await;
    }
}
