//! The kinds of store that must behave alike, and what a test may do to them from outside.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use runledger::clock::Clock;
use runledger::domain::Time;
use runledger::store::OpenOptions;
use runledger::store::Store;
use runledger::store::postgres::PostgresStore;
use runledger::store::sqlite::SqliteStore;
use rusqlite::types::ValueRef;
use tempfile::TempDir;
use tokio_postgres::SimpleQueryMessage;

use crate::support::postgres::{Database, direct};

const MINUTE_MICROS: i64 = 60_000_000;

/// A store of its own for one test.
pub(crate) trait Fixture: Sized {
    /// A new, empty store.
    async fn new() -> Self;

    /// The store.
    fn store(&self) -> &dyn Store;

    /// Another way to the same data: a second replica, or, where only one server may have the data, the same store.
    async fn replica(&self) -> Arc<dyn Store>;

    /// Closes the store and opens it again, where its data outlives it.
    async fn reopen(&mut self);

    /// Sets the store's clock back by a minute.
    async fn set_the_clock_back(&mut self);

    /// Sets the store's clock forward.
    async fn pass(&mut self, ms: u64);
}

/// A store whose tables can be seen and changed past it.
pub(crate) trait OnDisk: Fixture {
    /// Runs a statement; the answer's rows as text.
    async fn sql(&self, statement: &str) -> Vec<Vec<Option<String>>>;

    /// A time's column as microseconds.
    fn micros(column: &str) -> String;

    /// A column of bytes as lower-case hex.
    fn hex(column: &str) -> String;

    /// Makes the database refuse new rows of `runs` with this id.
    fn refuse(run_id: &str) -> String;
}

/// A clock that the test sets; each look at it takes a microsecond.
#[derive(Debug)]
pub(crate) struct TestClock(AtomicI64);

impl TestClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(1_764_000_000_000_000)))
    }

    fn shift(&self, micros: i64) {
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Time {
        Time::from_micros(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

/// SQLite in a file, with more than one shard: the merge of shards is every store's.
pub(crate) struct SqliteFixture {
    store: Arc<SqliteStore>,
    clock: Arc<TestClock>,
    directory: TempDir,
}

impl SqliteFixture {
    fn path(directory: &TempDir) -> PathBuf {
        directory.path().join("ledger.sqlite")
    }

    async fn open(directory: &TempDir, clock: Arc<TestClock>) -> Arc<SqliteStore> {
        let options = OpenOptions { shards: Some(3), ..OpenOptions::default() };
        Arc::new(SqliteStore::open(Self::path(directory), &options, clock).await.unwrap())
    }
}

impl Fixture for SqliteFixture {
    async fn new() -> Self {
        let (directory, clock) = (TempDir::new().unwrap(), TestClock::new());
        Self { store: Self::open(&directory, clock.clone()).await, clock, directory }
    }

    fn store(&self) -> &dyn Store {
        &*self.store
    }

    async fn replica(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = Self::open(&self.directory, self.clock.clone()).await;
    }

    async fn set_the_clock_back(&mut self) {
        self.clock.shift(-MINUTE_MICROS);
    }

    async fn pass(&mut self, ms: u64) {
        self.clock.shift(i64::try_from(ms).unwrap() * 1_000);
    }
}

impl OnDisk for SqliteFixture {
    async fn sql(&self, statement: &str) -> Vec<Vec<Option<String>>> {
        let connection = rusqlite::Connection::open(Self::path(&self.directory)).unwrap();
        let mut statement = connection.prepare(statement).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        let mut answer = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            let cell = |index| match row.get_ref(index).unwrap() {
                ValueRef::Null => None,
                ValueRef::Integer(integer) => Some(integer.to_string()),
                ValueRef::Text(text) => Some(std::str::from_utf8(text).unwrap().to_owned()),
                other @ (ValueRef::Real(_) | ValueRef::Blob(_)) => panic!("no column of the ledger is {other:?}"),
            };
            answer.push((0..columns).map(cell).collect());
        }
        answer
    }

    fn micros(column: &str) -> String {
        column.to_owned()
    }

    fn hex(column: &str) -> String {
        format!("nullif(lower(hex({column})), '')")
    }

    fn refuse(run_id: &str) -> String {
        format!(
            "create trigger refuse before insert on runs when new.run_id = '{run_id}'
              begin select raise(abort, 'refused by the test'); end"
        )
    }
}

/// SQLite in memory, as it comes.
pub(crate) struct MemoryFixture {
    store: Arc<SqliteStore>,
    clock: Arc<TestClock>,
}

impl Fixture for MemoryFixture {
    async fn new() -> Self {
        let clock = TestClock::new();
        let store = SqliteStore::in_memory(&OpenOptions::default(), clock.clone()).await.unwrap();
        Self { store: Arc::new(store), clock }
    }

    fn store(&self) -> &dyn Store {
        &*self.store
    }

    async fn replica(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Its data does not outlive it.
    async fn reopen(&mut self) {}

    async fn set_the_clock_back(&mut self) {
        self.clock.shift(-MINUTE_MICROS);
    }

    async fn pass(&mut self, ms: u64) {
        self.clock.shift(i64::try_from(ms).unwrap() * 1_000);
    }
}

/// Postgres, with as many shards as it gets by itself.
pub(crate) struct PostgresFixture {
    store: Arc<PostgresStore>,
    database: Database,
    /// How far its clock is ahead.
    ahead_ms: i64,
}

impl PostgresFixture {
    /// A function of the same name hides the server's own from sessions that begin after this.
    async fn shift(&mut self, ms: i64) {
        self.ahead_ms += ms;
        let (name, ahead_ms) = (self.database.name(), self.ahead_ms);
        self.sql(&format!(
            "create schema if not exists clock;
             create or replace function clock.clock_timestamp() returns timestamptz language sql volatile
                as $$ select pg_catalog.clock_timestamp() + interval '{ahead_ms} ms' $$;
             alter database {name} set search_path = clock, pg_catalog, public"
        ))
        .await;
        self.reopen().await;
    }

    async fn open(database: &Database) -> Arc<PostgresStore> {
        Arc::new(PostgresStore::open(&database.dsn(), &OpenOptions::default()).await.unwrap())
    }
}

impl Fixture for PostgresFixture {
    async fn new() -> Self {
        let database = Database::fresh().await;
        Self { store: Self::open(&database).await, database, ahead_ms: 0 }
    }

    fn store(&self) -> &dyn Store {
        &*self.store
    }

    async fn replica(&self) -> Arc<dyn Store> {
        Self::open(&self.database).await
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = Self::open(&self.database).await;
    }

    async fn set_the_clock_back(&mut self) {
        self.shift(-MINUTE_MICROS / 1_000).await;
    }

    async fn pass(&mut self, ms: u64) {
        self.shift(i64::try_from(ms).unwrap()).await;
    }
}

impl OnDisk for PostgresFixture {
    async fn sql(&self, statement: &str) -> Vec<Vec<Option<String>>> {
        let answer = direct(&self.database.dsn()).await.simple_query(statement).await.unwrap();
        let rows = answer
            .into_iter()
            .filter_map(|message| if let SimpleQueryMessage::Row(row) = message { Some(row) } else { None });
        rows.map(|row| (0..row.len()).map(|index| row.get(index).map(str::to_owned)).collect()).collect()
    }

    fn micros(column: &str) -> String {
        format!("(extract(epoch from {column}) * 1000000)::bigint")
    }

    fn hex(column: &str) -> String {
        format!("encode({column}, 'hex')")
    }

    fn refuse(run_id: &str) -> String {
        format!("alter table runs add constraint refuse check (run_id <> '{run_id}')")
    }
}
