//! Tests of SQLite's own parts: its lock, its file, its pages. The list of behaviours tests the promises of both
//! stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::Connection;
use uuid::Uuid;

use super::SqliteStore;
use crate::clock::{Clock, draw_id};
use crate::domain::ids::shard_of;
use crate::domain::{
    Agents, Ask, BindingsChange, Command, Complete, Decided, End, Metadata, Positions, Principal, Request, Rules,
    RunKey, Start, Status, Time, Update, Verdict,
};
use crate::store::OpenOptions;
use crate::store::finding::Fault;
use crate::store::migrations::SQLITE;
use crate::store::open::Location;
use crate::store::{
    CommitError, Commits as _, OfLedger as _, OpenError, PAGE_BYTES_MAX, RunLog as _, Runs as _, Store as _,
    StoreError, Unsettled, run_at,
};

/// A clock that is a second later at every look.
struct Ticks(AtomicI64);

impl Clock for Ticks {
    fn now(&self) -> Time {
        Time::from_micros(self.0.fetch_add(1_000_000, Ordering::Relaxed))
    }
}

fn ticks() -> Arc<dyn Clock> {
    Arc::new(Ticks(AtomicI64::new(1_764_000_000_000_000)))
}

fn key(run_id: &str) -> RunKey {
    RunKey { namespace: "default".into(), run_id: run_id.into() }
}

fn command(run_id: &str, ask: Ask) -> Command {
    Command {
        key: key(run_id),
        ask,
        expected_revision: None,
        request: None,
        principal: Principal::anonymous(),
        oversize: Vec::new(),
        prepared: crate::domain::Prepared::default(),
        trace: None,
        agents: Agents::All,
    }
}

fn start(run_id: &str) -> Command {
    command(run_id, Ask::Start(Start { task_thread_id: "thread".to_owned(), ..Start::default() }))
}

fn tab_group(run_id: &str, tab_group_id: &str) -> Command {
    let bindings = BindingsChange { tab_group_id: Some(tab_group_id.to_owned()), ..BindingsChange::default() };
    command(run_id, Ask::Update(Update { bindings, ..Update::default() }))
}

async fn commit(store: &SqliteStore, commands: Vec<Command>) -> Result<Decided, CommitError> {
    let ledger = store.ledger();
    let shard = shard_of(ledger.id, ledger.shard_count, &commands[0].key);
    store.commit(shard, draw_id(), commands.into_iter().map(Arc::new).collect(), &Rules::shared()).await
}

async fn memory() -> SqliteStore {
    SqliteStore::in_memory(&OpenOptions::default(), ticks()).await.unwrap()
}

async fn at(path: &std::path::Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(path.to_owned(), &OpenOptions::default(), ticks()).await
}

#[tokio::test]
async fn a_run_is_committed_read_back_and_replayed_across_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made/on/the/way/runs.db");
    let store = at(&path).await.unwrap();
    let ledger = store.ledger();
    let mut begun = start("run");
    begun.request = Some(Request { id: "request".to_owned(), digest: begun.digest() });
    commit(&store, vec![begun.clone(), tab_group("run", "tabs"), start("other")]).await.unwrap();
    let decided = commit(
        &store,
        vec![
            command("run", Ask::Complete(Complete::default())),
            start("brief"),
            command("brief", Ask::Abort(End::default())),
        ],
    )
    .await
    .unwrap();
    assert_eq!(decided.events.iter().map(|event| event.position).collect::<Vec<_>>(), [4, 5, 6]);
    store.close().await;

    let store = at(&path).await.unwrap();
    assert_eq!(store.ledger(), ledger);
    let again = commit(&store, vec![begun]).await.unwrap();
    assert_eq!(again.verdicts, [Ok(Verdict::Replayed { revision: 1.into(), current_revision: 3.into() })]);
    assert!(again.events.is_empty());
    let run = store.run(&key("run")).await.unwrap().unwrap();
    assert_eq!((run.status, run.revision), (Status::Completed, 3.into()));
    assert_eq!(run_at(&store, &key("run"), 3.into()).await.unwrap(), Some(run));
    assert_eq!(run_at(&store, &key("run"), 1.into()).await.unwrap().unwrap().bindings.tab_group_id, None);
    assert_eq!(run_at(&store, &key("run"), 0.into()).await.unwrap(), None);
    assert_eq!(run_at(&store, &key("run"), u64::MAX.into()).await.unwrap(), None);
    assert_eq!(store.run_events(&key("run"), 1.into(), 1, PAGE_BYTES_MAX).await.unwrap()[0].revision, 2);
    assert_eq!(store.ends().await.unwrap(), [6]);
    let page = store.changes(&vec![2].into(), 3, PAGE_BYTES_MAX).await.unwrap();
    assert_eq!(page.places().map(|(_, position)| position).collect::<Vec<_>>(), [3, 4, 5]);
    assert!(page.cut);
    assert!(!store.changes(&vec![2].into(), 4, PAGE_BYTES_MAX).await.unwrap().cut);
    store.close().await;

    let file = Connection::open(&path).unwrap();
    let active: Vec<String> = file
        .prepare("select run_id from active")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(active, ["other"]);
}

#[tokio::test]
async fn the_state_after_any_event_is_found_across_keyframes() {
    let store = memory().await;
    commit(&store, vec![start("run")]).await.unwrap();
    for revision in 2..=70 {
        commit(&store, vec![tab_group("run", &revision.to_string())]).await.unwrap();
    }
    for revision in [2, 31, 32, 33, 63, 64, 65, 70] {
        let run = run_at(&store, &key("run"), revision.into()).await.unwrap().unwrap();
        assert_eq!((run.revision, run.bindings.tab_group_id), (revision.into(), Some(revision.to_string())));
    }
    assert_eq!(run_at(&store, &key("run"), 71.into()).await.unwrap(), None);
}

#[tokio::test]
async fn pages_of_several_shards_never_go_back_in_time() {
    let options = OpenOptions { shards: Some(4), ..OpenOptions::default() };
    let store = SqliteStore::in_memory(&options, ticks()).await.unwrap();
    for n in 0..40 {
        commit(&store, vec![start(&format!("run-{n}"))]).await.unwrap();
    }
    let mut after = Positions::start(4);
    let mut seen = Vec::new();
    loop {
        let page = store.changes(&after, 3, PAGE_BYTES_MAX).await.unwrap();
        for logged in page.events.iter().map(|event| event.as_ref().unwrap()) {
            assert_eq!(logged.position, after.of(logged.shard) + 1);
            after.set(logged.shard, logged.position);
            seen.push(logged.event.at);
        }
        if !page.cut {
            break;
        }
    }
    assert_eq!(seen.len(), 40);
    assert!(seen.is_sorted());
    assert_eq!(store.ends().await.unwrap(), after);
}

#[tokio::test]
async fn a_commit_reaches_the_disk_before_it_is_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let store = at(&directory.path().join("runs.db")).await.unwrap();
    let settings = |connection: &mut Connection| {
        ["journal_mode", "synchronous", "fullfsync"].map(|name| {
            connection.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0)).unwrap()
        })
    };
    let full: i64 = 2;
    assert_eq!(store.connections.write(settings).await.unwrap(), ["wal".to_owned().into(), full.into(), 1_i64.into()]);
    assert_eq!(store.describe().not_durable, None);
    assert!(memory().await.describe().not_durable.is_some());
}

#[tokio::test]
async fn a_second_server_is_refused_with_the_pid_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = at(&path).await.unwrap();
    match at(&path).await.err() {
        Some(OpenError::Locked { location, pid }) => {
            assert_eq!(location, path.display().to_string());
            assert_eq!(pid, Some(std::process::id().to_string()));
        }
        other => panic!("{other:?}"),
    }
    let link = directory.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(at(&link).await.err(), Some(OpenError::Locked { .. })));
    store.close().await;
    at(&path).await.unwrap();
}

#[tokio::test]
async fn a_link_to_nothing_is_locked_as_what_it_makes() {
    let directory = tempfile::tempdir().unwrap();
    let (path, link) = (directory.path().join("runs.db"), directory.path().join("link.db"));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let store = at(&link).await.unwrap();
    for name in [&path, &link] {
        assert!(matches!(at(name).await.err(), Some(OpenError::Locked { .. })));
    }
    store.close().await;
}

#[tokio::test]
async fn where_it_is_can_be_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let location = at(&path).await.unwrap().describe().location;
    assert_eq!(location.parse(), Ok(Location::Sqlite(path)));
    assert_eq!(memory().await.describe().location.parse(), Ok(Location::Memory));
}

#[tokio::test]
async fn a_damaged_file_is_corrupt_and_not_only_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    at(&path).await.unwrap().close().await;
    let store = at(&path).await.unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![0xff; length - 4096], 4096).unwrap();
    let read = store.run(&key("run")).await;
    assert!(matches!(read, Err(StoreError::Corrupt { table: "database", .. })), "{read:?}");
}

#[tokio::test]
async fn a_ledger_has_a_key_of_its_own_and_gets_no_other_for_a_lost_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = at(&path).await.unwrap();
    let key = store.ledger().seal_key;
    assert_ne!(key, memory().await.ledger().seal_key);
    store.close().await;
    let store = at(&path).await.unwrap();
    assert_eq!(store.ledger().seal_key, key);
    store.close().await;
    Connection::open(&path).unwrap().execute("update ledger set seal_key = null", []).unwrap();
    assert!(matches!(at(&path).await.err(), Some(OpenError::Failed { .. })));
}

#[tokio::test]
async fn a_database_of_a_newer_release_is_left_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    at(&path).await.unwrap().close().await;
    Connection::open(&path).unwrap().execute("update ledger set min_release = '999.0.0'", []).unwrap();
    let before = std::fs::read(&path).unwrap();
    match at(&path).await.err() {
        Some(OpenError::NeedsNewerRelease { min_release, .. }) => assert_eq!(min_release, "999.0.0"),
        other => panic!("{other:?}"),
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_database_that_is_further_migrated_but_admits_us_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let migrated = SqliteStore::migrate(path.clone(), &OpenOptions::default(), ticks()).await.unwrap();
    assert!(migrated.applied.iter().eq(SQLITE.iter().map(|step| step.name)), "{migrated:?}");
    Connection::open(&path).unwrap().execute("insert into ledger_migrations values (99, 'later', 0)", []).unwrap();
    let migrated = SqliteStore::migrate(path.clone(), &OpenOptions::default(), ticks()).await.unwrap();
    assert_eq!((migrated.applied.len(), migrated.at), (0, 99));
    commit(&at(&path).await.unwrap(), vec![start("run")]).await.unwrap();
}

#[tokio::test]
async fn another_programs_file_is_not_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.db");
    Connection::open(&path).unwrap().execute_batch("create table books (title text)").unwrap();
    assert!(matches!(at(&path).await.err(), Some(OpenError::Unfit { fault: Fault::Foreign, .. })));
    std::fs::write(
        &path,
        "not a database, and longer than the header that a database begins with: a hundred bytes of something else",
    )
    .unwrap();
    assert!(matches!(at(&path).await.err(), Some(OpenError::Unfit { fault: Fault::Foreign, .. })));
    assert!(matches!(at(directory.path()).await.err(), Some(OpenError::Unfit { fault: Fault::Foreign, .. })));
}

#[tokio::test]
async fn the_shard_count_is_fixed_when_the_file_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    for asked in [Some(3), Some(3), None] {
        let options = OpenOptions { shards: asked, ..OpenOptions::default() };
        let store = SqliteStore::open(path.clone(), &options, ticks()).await.unwrap();
        assert_eq!(store.ledger().shard_count, 3);
        assert_eq!(store.ends().await.unwrap(), [0, 0, 0]);
        store.close().await;
    }
    let options = OpenOptions { shards: Some(5), ..OpenOptions::default() };
    let refused = SqliteStore::open(path, &options, ticks()).await.err();
    assert!(matches!(refused, Some(OpenError::OtherShards { found: 3, asked: 5, .. })), "{refused:?}");
}

#[tokio::test]
async fn a_closed_store_is_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let store = at(&directory.path().join("runs.db")).await.unwrap();
    store.close().await;
    store.close().await;
    assert!(matches!(store.ping().await, Err(StoreError::Unavailable(_))));
    let refused = commit(&store, vec![start("run")]).await;
    assert!(matches!(refused, Err(CommitError::NotApplied(StoreError::Unavailable(_)))));
}

#[tokio::test]
async fn a_full_disk_applies_nothing_and_passes() {
    let directory = tempfile::tempdir().unwrap();
    let store = at(&directory.path().join("runs.db")).await.unwrap();
    let pages_max = |pages: u32| {
        let set = move |connection: &mut Connection| {
            connection.query_row(&format!("pragma max_page_count = {pages}"), [], |_| Ok(())).unwrap();
        };
        store.connections.write(set)
    };
    pages_max(1).await.unwrap(); // No fewer than there are.
    let text = serde_json::Map::from_iter([("text".to_owned(), "because ".repeat(4096).into())]);
    let start_large = Start { task_thread_id: "thread".to_owned(), metadata: Metadata::from(text), ..Start::default() };
    let large = command("run", Ask::Start(start_large));
    let full = commit(&store, vec![large.clone()]).await;
    assert!(matches!(full, Err(CommitError::NotApplied(StoreError::Unavailable(_)))), "{full:?}");
    assert_eq!(store.run(&key("run")).await.unwrap(), None);
    assert_eq!(store.ends().await.unwrap(), [0]);
    pages_max(1_000_000).await.unwrap();
    commit(&store, vec![large]).await.unwrap();
}

#[tokio::test]
async fn what_the_database_refuses_is_refused_and_rolled_back() {
    let store = memory().await;
    let trigger = "create trigger no before insert on run_events when new.run_id = 'guilty'
                   begin select raise(abort, 'no'); end";
    store.connections.write(move |connection| connection.execute_batch(trigger).unwrap()).await.unwrap();
    let refused = commit(&store, vec![start("innocent"), start("guilty")]).await;
    assert!(matches!(refused, Err(CommitError::NotApplied(StoreError::Refused(_)))), "{refused:?}");
    assert_eq!(store.run(&key("innocent")).await.unwrap(), None);
    commit(&store, vec![start("innocent")]).await.unwrap();
}

#[tokio::test]
async fn a_commit_that_is_refused_at_its_very_end_is_not_applied() {
    let store = memory().await;
    let debt = "pragma foreign_keys = on;
                create table parent (id integer primary key);
                create table child (id integer references parent deferrable initially deferred);
                create trigger owe after insert on run_events begin insert into child values (1); end";
    store.connections.write(move |connection| connection.execute_batch(debt).unwrap()).await.unwrap();
    let refused = commit(&store, vec![start("run")]).await;
    assert!(matches!(refused, Err(CommitError::NotApplied(StoreError::Refused(_)))), "{refused:?}");
    assert_eq!(store.ends().await.unwrap(), [0]);
    store.connections.write(|connection| connection.execute_batch("drop trigger owe").unwrap()).await.unwrap();
    commit(&store, vec![start("run")]).await.unwrap();
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_corrupt_by_its_column() {
    let store = memory().await;
    commit(&store, vec![start("run")]).await.unwrap();
    let damage = |sql: &'static str| store.connections.write(move |connection| connection.execute(sql, []).unwrap());
    for (wrong, sound, expected) in [
        ("update runs set revision = -7", "update runs set revision = 1", "revision"),
        ("update runs set status = 7", "update runs set status = 2", "status"),
        ("update runs set route = 'x'", "update runs set route = null", "route"),
        ("update runs set labels = '['", "update runs set labels = null", "labels"),
        ("update runs set metadata = '['", "update runs set metadata = null", "metadata"),
    ] {
        damage(wrong).await.unwrap();
        let corrupt = commit(&store, vec![command("run", Ask::Complete(Complete::default()))]).await;
        let Err(CommitError::NotApplied(StoreError::Corrupt { table, column, key: row, .. })) = corrupt else {
            panic!("{corrupt:?}")
        };
        assert_eq!((table, column, row.as_str()), ("runs", expected, "default/run"));
        damage(sound).await.unwrap();
    }
    damage("update run_events set event = '{'").await.unwrap();
    let error = store.changes(&Positions::start(1), 1, PAGE_BYTES_MAX).await.unwrap().whole().unwrap_err();
    assert_eq!(error.to_string(), "run_events.event of default/run cannot be read");
    assert_eq!(store.ends().await.unwrap(), [1]);
}

#[tokio::test]
async fn a_panic_rolls_back_and_gives_the_connection_back() {
    let store = memory().await;
    let panicked = store
        .connections
        .write::<()>(|connection| {
            let transaction = connection.transaction().unwrap();
            transaction.execute("delete from shards", []).unwrap();
            panic!("on purpose");
        })
        .await;
    assert!(matches!(panicked, Err(StoreError::Refused(_))));
    commit(&store, vec![start("run")]).await.unwrap();
    let shards: i64 = store
        .connections
        .read(|connection| connection.query_row("select count(*) from shards", [], |row| row.get(0)).unwrap())
        .await
        .unwrap();
    assert_eq!(shards, 1);
}

#[tokio::test]
async fn an_unknown_outcome_is_settled_by_the_commit_id() {
    let store = memory().await;
    let (shard, commit_id) = (crate::domain::Shard(0), draw_id());
    let decided = store.commit(shard, commit_id, Arc::new([Arc::new(start("run"))]), &Rules::shared()).await.unwrap();
    let mut unsettled = Unsettled { shard, commit_id, first_position: 1, decided };
    assert!(store.settle(&unsettled).await.unwrap());
    unsettled.commit_id = Uuid::nil();
    assert!(!store.settle(&unsettled).await.unwrap());
    unsettled.first_position = 2;
    assert!(!store.settle(&unsettled).await.unwrap());
}

#[tokio::test]
async fn settling_what_was_not_applied_writes_a_page_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = at(&directory.path().join("runs.db")).await.unwrap();
    let log = directory.path().join("runs.db-wal");
    let ledger = || {
        let row = "select id || epoch || shard_count || schema_release || min_release || created_at from ledger";
        store.connections.read(move |connection| connection.query_row(row, [], |row| row.get::<_, String>(0)).unwrap())
    };
    let (before, mut length) = (ledger().await.unwrap(), std::fs::metadata(&log).unwrap().len());
    let unsettled = Unsettled {
        shard: crate::domain::Shard(0),
        commit_id: draw_id(),
        first_position: 1,
        decided: Decided::default(),
    };
    for _ in 0..3 {
        assert!(!store.settle(&unsettled).await.unwrap());
        let longer = std::fs::metadata(&log).unwrap().len();
        assert!(longer > length, "a frame was written behind {length}");
        length = longer;
    }
    assert_eq!(ledger().await.unwrap(), before);
}
