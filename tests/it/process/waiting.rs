//! A Postgres that is not there, not safe, or not ready: refused in words, or waited for.

use std::net::TcpListener;
use std::time::Duration;

use runledger::store::migrations::MIN_RELEASE;
use runledger_client::Health;
use runledger_proto::v1::{Disposition, StartRunRequest};
use tokio::task::block_in_place;
use tokio::time::Instant;

use super::calls::{Answer, Step, ask, meaning};
use super::data::Data;
use super::server::{Process, SOON, Server, run};
use crate::support::postgres::{Cluster, Database, direct};

/// Listening, alive, and not ready.
async fn waits(server: &mut Server) {
    server.process.says("not open yet: waiting for it").await;
    assert_eq!(server.health("readiness").await, Some(Health::NotServing));
    assert_eq!(server.health("").await, Some(Health::NotServing));
    assert_eq!(server.health("liveness").await, Some(Health::Serving));
    let refused = ask(&mut server.hasty(), "run-1", Step::Start, "request").await.unwrap_err();
    assert_eq!(meaning(&refused), Answer::NothingWritten("STORE_UNAVAILABLE".to_owned()));
}

async fn serves(server: &Server) {
    server.is_ready().await;
    let answer = ask(&mut server.client(), "run-1", Step::Start, "request").await.unwrap();
    assert_eq!(answer, (Disposition::Applied, 1, 1));
    server.becomes("", Health::Serving, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_would_lose_acknowledged_calls_is_refused_unless_that_is_allowed() {
    let mut cluster = block_in_place(|| Cluster::start(&[("fsync", "off")]));
    let (code, said) = run(&["serve", "--listen", "127.0.0.1:0", "--store", &cluster.dsn()]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("fsync is off") && said.contains("--allow-unsafe-store"), "{said}");
    assert!(!said.contains("listens on"), "{said}");

    let server = Server::start_with(&["--store", &cluster.dsn(), "--allow-unsafe-store"]).await;
    serves(&server).await;
    assert_eq!(server.health("durability").await, Some(Health::NotServing));
    server.process.says("NOT DURABLE: fsync is off").await;

    // Whoever starts the server before its store is told no less.
    block_in_place(|| cluster.stop());
    let server = Server::start_with(&["--store", &cluster.dsn(), "--allow-unsafe-store"]).await;
    server.process.says("not open yet: waiting for it").await;
    block_in_place(|| cluster.restart());
    server.process.says("WARN runledger::app: NOT DURABLE: fsync is off").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_default_that_makes_commits_volatile_is_refused_too() {
    let database = Database::fresh().await;
    let off = format!("alter database {} set synchronous_commit = off", database.name());
    direct(&database.dsn()).await.batch_execute(&off).await.unwrap();
    let (code, said) = run(&["serve", "--listen", "127.0.0.1:0", "--store", &database.dsn()]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("synchronous_commit is off"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_down_at_the_start_is_waited_for() {
    let mut cluster = block_in_place(|| {
        let mut cluster = Cluster::start(&[]);
        cluster.stop();
        cluster
    });
    let mut server = Server::start(&cluster.dsn()).await;
    waits(&mut server).await;
    block_in_place(|| cluster.restart());
    serves(&server).await;
    server.becomes("durability", Health::Serving, SOON).await;
    server.process.says(&format!("the store is open address={}", server.address)).await;
    let said = server.process.said();
    let reasons = said.lines().filter_map(|line| line.split_once("waiting for it error=").map(|(_, reason)| reason));
    let reasons: Vec<_> = reasons.collect();
    assert!(!reasons.is_empty() && reasons.windows(2).all(|two| two[0] != two[1]), "one reason is one line: {said}");
}

/// The database takes connections and never answers: an attempt to open it goes on for many seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_hangs_at_the_start_leaves_a_server_that_answers_and_stops() {
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    let mut server = Server::start(&format!("postgres://user@{}/nothing", hung.local_addr().unwrap())).await;
    waits(&mut server).await;
    server.process.signal("TERM");
    let (code, said) = server.process.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_waits_for_its_store_stops_when_it_is_told_to() {
    let dsn = "postgres://user:hunter2@127.0.0.1:1/nothing";
    let mut server = Server::start(dsn).await;
    waits(&mut server).await;
    server.process.signal("TERM");
    let (code, said) = server.process.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    assert!(said.contains("postgres://user:***@127.0.0.1:1/nothing"), "it says where it waits: {said}");
}

/// Puts an older schema with data in front of the binary: a ledger whose first step was not taken here. The tables are
/// in a schema behind the one that the step will fill, and the step's ledger gets its row as a real one would; the list of
/// migrations comes to it.
const OLDER: &str = "
create schema older;
create table older.ledger_migrations (number integer primary key, name text not null, applied_at timestamptz not null);
create table older.shards (shard smallint primary key);
create table older.ledger as
    select true as singleton, gen_random_uuid() as id, 0::bigint as epoch, 1::smallint as shard_count,
           '0.0.1'::text as schema_release, '0.0.1'::text as min_release, now() as created_at, now() as alive_at;
create function older.fill() returns event_trigger language plpgsql as $$
begin
    if to_regclass('public.shards') is null then return; end if;
    if exists (select from public.shards) then return; end if;
    insert into public.ledger select * from older.ledger;
    insert into public.shards values (0);
    alter table older.ledger_migrations set schema public;
end $$;
create event trigger fill on ddl_command_end when tag in ('CREATE TABLE') execute function older.fill()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_whose_schema_is_older_is_waited_for_until_somebody_migrates_it() {
    let database = Database::fresh().await;
    let client = direct(&database.dsn()).await;
    client.batch_execute(OLDER).await.unwrap();
    let path = format!("alter database {} set search_path = public, older", database.name());
    client.batch_execute(&path).await.unwrap();

    let mut server = Server::start(&database.dsn()).await;
    waits(&mut server).await;
    server.process.says("runledger migrate").await;
    let said = server.process.said();
    assert!(said.contains("is at migration 0 and this release needs") && said.contains("runledger migrate"), "{said}");
    let (code, said) = run(&["migrate", "--store", &database.dsn()]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("applied ledger"), "{said}");
    let raised = client.query_one("select min_release from public.ledger", &[]).await.unwrap();
    assert_eq!(raised.get::<_, &str>(0), MIN_RELEASE);
    serves(&server).await;
    Data::Postgres(database.dsn()).sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migrated_postgres_is_migrated_only_once() {
    let database = Database::fresh().await;
    let (code, said) = run(&["migrate", "--store", &database.dsn()]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("applied ledger") && said.contains("is at migration"), "{said}");
    let (code, said) = run(&["migrate", "--store", &database.dsn()]).await;
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("applied"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_an_error_and_is_shown_nowhere() {
    const WRONG: &str = "hunter2-is-wrong";
    let database = Database::fresh().await;
    // A role of its own: the cluster may trust a user that comes without a password.
    let role = format!("guarded_{}", database.name());
    direct(&database.dsn()).await.batch_execute(&format!("create role {role} login password 'right'")).await.unwrap();
    let (_, place) = database.dsn().rsplit_once('@').map(|(user, place)| (user.to_owned(), place.to_owned())).unwrap();
    let dsn = format!("postgres://{role}:{WRONG}@{place}");
    for command in [&["serve", "--listen", "127.0.0.1:0", "--log", "trace"][..], &["migrate"]] {
        let args = [command, &["--store", &dsn]].concat();
        let (code, said) = Process::spawn(&args).exited(SOON).await;
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("password authentication failed"), "{said}");
        assert!(!said.contains(WRONG), "{said}");
    }
    direct(&database.dsn()).await.batch_execute(&format!("drop role {role}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_password_that_works_is_shown_nowhere_either() {
    const SECRET: &str = "hunter2-is-right";
    let database = Database::fresh().await;
    let role = format!("trusted_{}", database.name());
    let grants = format!(
        "create role {role} login superuser password '{SECRET}'; alter database {} owner to {role}",
        database.name()
    );
    direct(&database.dsn()).await.batch_execute(&grants).await.unwrap();
    let (_, place) = database.dsn().rsplit_once('@').map(|(user, place)| (user.to_owned(), place.to_owned())).unwrap();
    let dsn = format!("postgres://{role}:{SECRET}@{place}");
    let mut server = Server::start_with(&["--store", &dsn, "--log", "trace"]).await;
    serves(&server).await;
    let payload = "what-a-caller-sent";
    let asked =
        StartRunRequest { task_thread_id: payload.into(), run_id: "run-2".into(), ..StartRunRequest::default() };
    server.client().start_run(asked).await.unwrap();
    server.process.signal("TERM");
    let (code, said) = server.process.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains(SECRET), "the password is in what it said");
    assert!(!said.contains(payload), "what callers send is in what it said");
    assert!(said.contains(":***@"), "the banner hides it: {said}");
}
