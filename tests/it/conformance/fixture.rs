//! The kinds of store that must behave alike, and what a test may do to them from outside.

use std::any::Any;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use runledger::clock::Clock;
use runledger::domain::Time;
use runledger::store::observed::Observed;
use runledger::store::postgres::PostgresStore;
use runledger::store::sqlite::SqliteStore;
use runledger::store::{Elapsed, OpenOptions, Store};
use runledger::tasks::Supervisor;
use rusqlite::types::ValueRef;
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::support::postgres::{Database, direct};

const MINUTE_MS: i64 = 60_000;

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

    /// Sets the store's clock, forward or back. No time passes.
    async fn set_the_clock(&self, by_ms: i64);

    /// Sets the store's clock back by a minute.
    async fn set_the_clock_back(&self) {
        self.set_the_clock(-MINUTE_MS).await;
    }

    /// Time passes, and no server is there.
    async fn pass(&self, ms: u64);

    /// Time passes, and the store is there all the while, as these others are: in steps that no lease of the tests
    /// with a ttl of more than four seconds minds.
    async fn pass_alive(&self, others: &[&dyn Store], ms: u64) {
        self.pass_alive_by(STEP_MS, others, ms).await;
    }

    /// The same, for hours: in steps of a minute, which leases mind.
    async fn pass_hours(&self, others: &[&dyn Store], ms: u64) {
        self.pass_alive_by(60 * STEP_MS, others, ms).await;
    }

    /// The same, in steps of this length.
    async fn pass_alive_by(&self, step_ms: u64, others: &[&dyn Store], ms: u64) {
        let mut left = ms;
        loop {
            for store in [self.store()].iter().chain(others) {
                alive(*store).await;
            }
            if left == 0 {
                return;
            }
            let step = left.min(step_ms);
            self.pass(step).await;
            left -= step;
        }
    }
}

/// A server is there.
pub(crate) async fn alive(store: &dyn Store) {
    store.tick();
    store.stay_alive().await.unwrap();
}

const STEP_MS: u64 = 1_000;

/// What a store remembers of lifecycles: few of them.
const LIFECYCLE_BYTES: u64 = 64 * 1024;

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

    /// Holds up every renewal until this is dropped.
    async fn hold_up_renewals(&self) -> Box<dyn Any + Send>;
}

/// A clock that the test sets, and time that passes; each look at either takes a microsecond.
#[derive(Debug)]
pub(crate) struct TestClock {
    passed: AtomicI64,
    set_by: AtomicI64,
}

impl TestClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { passed: AtomicI64::new(1_764_000_000_000_000), set_by: AtomicI64::new(0) })
    }

    fn pass(&self, ms: u64) {
        self.passed.fetch_add(i64::try_from(ms).unwrap() * 1_000, Ordering::SeqCst);
    }

    fn set(&self, by_ms: i64) {
        self.set_by.fetch_add(by_ms * 1_000, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Time {
        Time::from_micros(self.passed.fetch_add(1, Ordering::SeqCst) + self.set_by.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.passed.fetch_add(1, Ordering::SeqCst).cast_unsigned())
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
        let options = OpenOptions { shards: Some(3), lifecycle_bytes: LIFECYCLE_BYTES, ..OpenOptions::default() };
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

    async fn set_the_clock(&self, by_ms: i64) {
        self.clock.set(by_ms);
    }

    async fn pass(&self, ms: u64) {
        self.clock.pass(ms);
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

    async fn hold_up_renewals(&self) -> Box<dyn Any + Send> {
        let writer = rusqlite::Connection::open(Self::path(&self.directory)).unwrap();
        writer.execute_batch("begin immediate").unwrap();
        Box::new(writer)
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

    /// The store's data does not outlive the store.
    async fn reopen(&mut self) {}

    async fn set_the_clock(&self, by_ms: i64) {
        self.clock.set(by_ms);
    }

    async fn pass(&self, ms: u64) {
        self.clock.pass(ms);
    }
}

/// SQLite in memory, as the service sees it: wrapped.
pub(crate) struct ObservedFixture {
    store: Arc<Observed<SqliteStore>>,
    clock: Arc<TestClock>,
}

impl Fixture for ObservedFixture {
    async fn new() -> Self {
        let MemoryFixture { store, clock } = MemoryFixture::new().await;
        Self { store: Arc::new(Observed::around(store)), clock }
    }

    fn store(&self) -> &dyn Store {
        &*self.store
    }

    async fn replica(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// The store's data does not outlive the store.
    async fn reopen(&mut self) {}

    async fn set_the_clock(&self, by_ms: i64) {
        self.clock.set(by_ms);
    }

    async fn pass(&self, ms: u64) {
        self.clock.pass(ms);
    }
}

/// Postgres, with as many shards as it gets by itself, and a clock that is set forward and back. By itself it runs at a
/// hundredth of the speed: later is later, and what a busy machine takes its time for is no time that passes.
pub(crate) struct PostgresFixture {
    store: Arc<PostgresStore>,
    database: Database,
    clock: Client,
    /// The time that the test lets pass, in milliseconds, for the database and for every replica.
    passed: Arc<AtomicU64>,
}

impl PostgresFixture {
    async fn shift(&self, ms: i64) {
        self.clock.execute("update clock.ahead set ms = ms + $1", &[&ms]).await.unwrap();
    }

    async fn open(database: &Database, passed: &Arc<AtomicU64>) -> Arc<PostgresStore> {
        let passed = passed.clone();
        let elapsed = move || slow() + Duration::from_millis(passed.load(Ordering::SeqCst));
        let elapsed = Elapsed(Box::leak(Box::new(elapsed)));
        let options = OpenOptions { elapsed, lifecycle_bytes: LIFECYCLE_BYTES, ..OpenOptions::default() };
        Arc::new(PostgresStore::open(&database.dsn(), &options, &Supervisor::new()).await.unwrap())
    }
}

/// The time that passes for this process, as slowly as by the database's clock.
fn slow() -> Duration {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGUN.elapsed() / 100
}

impl Fixture for PostgresFixture {
    /// A function of the same name hides the server's own from sessions that begin after this. By this clock the server
    /// has been up for a day, so that a clock that is set back does not come to the server's start.
    async fn new() -> Self {
        let database = Database::fresh().await;
        PostgresStore::migrate(&database.dsn(), &OpenOptions::default()).await.unwrap();
        let clock = direct(&database.dsn()).await;
        let name = database.name();
        let function =
            "select base + (pg_catalog.clock_timestamp() - base) / 100 + ms * interval '1 ms' from clock.ahead";
        let hide = format!(
            "create schema clock;
             create table clock.ahead (ms bigint not null, base timestamptz not null);
             insert into clock.ahead values (0, pg_catalog.clock_timestamp());
             create function clock.clock_timestamp() returns timestamptz language sql volatile as $$ {function} $$;
             create function clock.pg_postmaster_start_time() returns timestamptz language sql stable
             as $$ select base - interval '1 day' from clock.ahead $$;
             alter database {name} set search_path = clock, pg_catalog, public"
        );
        clock.batch_execute(&hide).await.unwrap();
        let passed = Arc::default();
        Self { store: Self::open(&database, &passed).await, database, clock, passed }
    }

    fn store(&self) -> &dyn Store {
        &*self.store
    }

    async fn replica(&self) -> Arc<dyn Store> {
        Self::open(&self.database, &self.passed).await
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = Self::open(&self.database, &self.passed).await;
    }

    async fn set_the_clock(&self, by_ms: i64) {
        self.shift(by_ms).await;
    }

    /// Between the two, the database's clock is not where it was.
    async fn pass(&self, ms: u64) {
        self.passed.fetch_add(ms, Ordering::SeqCst);
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

    async fn hold_up_renewals(&self) -> Box<dyn Any + Send> {
        let holder = direct(&self.database.dsn()).await;
        holder.batch_execute("begin; lock table leases in exclusive mode").await.unwrap();
        Box::new(holder)
    }
}
