//! Opens a file or a memory database: locks, connection, settings, migrations, in this order.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::connections::Connections;
use super::generation::{self, Turns};
use super::identity::Identity;
use super::lock::FileLock;
use super::{errors, fitness, migrate, rows, whole};
use crate::clock::Clock;
use crate::private;
use crate::store::OpenOptions;
use crate::store::fitness::refuse;
use crate::store::migrations::{Migrated, SQLITE};
use crate::store::steady::KeptSteady;
use crate::store::{Ledger, OpenError};

/// Connections that read, beside the one that writes.
pub(super) const READERS: usize = 3;

/// The time that a statement waits for somebody else's lock: of a shell or a backup that has the file open.
pub(super) const BUSY_WAIT: Duration = Duration::from_secs(5);

/// The same of a look from outside: readers wait for nobody but one who has the whole file to itself, and an operator is
/// to be told of that soon.
const LOOK_BUSY_WAIT: Duration = Duration::from_secs(1);

/// Statements that a connection keeps prepared: all of them.
const STATEMENTS_MAX: usize = 64;

/// An open database.
pub(super) struct Opened {
    /// The connections to the database.
    pub(super) connections: Arc<Connections>,
    /// The ledger's identity.
    pub(super) ledger: Ledger,
    /// The migrations that were applied on the way.
    pub(super) migrated: Migrated,
    /// What is kept of the steady clock.
    pub(super) kept: KeptSteady,
}

/// An absolute path is never taken for one of SQLite's special names, such as `:memory:`.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, OpenError> {
    std::path::absolute(path).map_err(|error| errors::open_system(path, error))
}

/// Opens a file, by its absolute path, under its locks: they are released last, also when a step fails.
pub(super) fn file(path: &Path, options: &OpenOptions, clock: &dyn Clock, readers: usize) -> Result<Opened, OpenError> {
    let failed = |error| errors::open(path, error);
    let lock = FileLock::take(path)?;

    let mut writer = connect(path).map_err(failed)?;
    if lock.has_log() {
        whole::ask(&writer, path)?;
    }
    migrate::admit(&writer, path)?;
    let location = path.display().to_string();
    refuse(&location, fitness::of_file(&writer).map_err(failed)?)?;
    generation::begin(&writer).map_err(failed)?;
    make_durable(&writer).map_err(failed)?;
    let turns = Turns::of(&mut writer).map_err(failed)?;
    let is_new = writer.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0)).map_err(failed)? == 0;
    if !is_new {
        let shards = "-- open.shard_count\nselect shard_count from ledger";
        let found = writer.query_row(shards, [], |row| row.get(0)).map_err(failed)?;
        options.admit(found, &format!("sqlite:{}", path.display()))?;
    }
    let migrated = migrate::migrate(&mut writer, path, options, clock)?;
    if SQLITE.last().is_some_and(|step| step.number == migrated.at) {
        refuse(&location, fitness::of_schema(&writer).map_err(failed)?)?;
    }
    if is_new {
        tracing::info!(store = %path.display(), "a new ledger was created");
    }
    let (ledger, kept) = (ledger(&writer, path)?, kept(&writer, path)?);
    // What a server that was killed has left in the log is brought into the file, as at the end of one that was not.
    let cut = turns.cut(&mut writer);
    if lock.is_begun().map_err(|error| errors::open_system(path, error))? {
        // Nothing is acknowledged while the file does not tell that it is nothing without its log.
        cut.map_err(failed)?;
        return Err(errors::read_meanwhile(path));
    }
    if let Err(error) = cut {
        tracing::warn!(store = %path.display(), %error, "the write-ahead log was not written into the file");
    }
    lock.note_a_ledger().map_err(|error| errors::open_system(path, error))?;
    let readers = (0..readers).map(|_| reader(path)).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let identity = Arc::new(Identity::of(path, lock)?);
    let asked = identity.clone();
    writer.commit_hook(Some(move || !asked.may_commit())).map_err(failed)?;
    Ok(Opened { connections: Connections::new(writer, readers, Some((identity, turns))), ledger, migrated, kept })
}

/// Makes a database in memory.
pub(super) fn memory(options: &OpenOptions, clock: &dyn Clock) -> Result<Opened, OpenError> {
    let place = Path::new("memory");
    let mut connection =
        Connection::open_in_memory().and_then(configured).map_err(|error| errors::open(place, error))?;
    let migrated = migrate::migrate(&mut connection, place, options, clock)?;
    let (ledger, kept) = (ledger(&connection, place)?, kept(&connection, place)?);
    Ok(Opened { connections: Connections::new(connection, Vec::new(), None), ledger, migrated, kept })
}

/// Connects without the URI flag: a path is a path, whatever it looks like.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // A new file is its owner's alone, and its log after it: the ledger's key is in it. What fails here, SQLite tells.
    let _there_or_not = private::create_new(path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = configured(Connection::open_with_flags(path, flags)?)?;
    if connection.is_readonly("main")? {
        // SQLite opens a file that it may not write all the same, to read it.
        let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
        return Err(rusqlite::Error::SqliteFailure(error, None));
    }
    Ok(connection)
}

fn reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection = connect(path)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// A connection that cannot write. `frozen`: nobody writes, so that neither a lock nor a log is looked for. A URI
/// asks for that, in which every byte of the path that has a meaning is escaped.
pub(super) fn reading(path: &Path, frozen: bool) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if !frozen {
        let connection = configured(Connection::open_with_flags(path, flags)?)?;
        connection.busy_timeout(LOOK_BUSY_WAIT)?;
        return Ok(connection);
    }
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            write!(uri, "%{byte:02X}").expect("a string takes all");
        }
    }
    uri.push_str("?immutable=1");
    configured(Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?)
}

/// Settings that leave the file alone.
pub(super) fn configured(connection: Connection) -> rusqlite::Result<Connection> {
    connection.busy_timeout(BUSY_WAIT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // A plan is made once. Else SQLite makes a new one whenever a value is bound that a better plan might depend on,
    // which takes longer than most of these statements themselves.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // A schema that somebody else wrote into the file may not call functions unseen.
    connection.pragma_update(None, "trusted_schema", false)?;
    // A container may have no directory for temporary files.
    connection.pragma_update(None, "temp_store", "memory")?;
    Ok(connection)
}

/// The size of the writer's cache of the file's pages: see the [log](super::generation).
const WRITER_CACHE_KIB: i64 = 16 * 1024;

/// A COMMIT that returns is on the disk: the log is synced with each, and on macOS past the disk's own cache.
fn make_durable(writer: &Connection) -> rusqlite::Result<()> {
    let mode: String = writer.query_row("pragma journal_mode = wal", [], |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        // Files cannot be mapped here, as on some network mounts: readers would block the writer.
        let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        let message = format!("the file system cannot hold a write-ahead log (journal mode {mode})");
        return Err(rusqlite::Error::SqliteFailure(error, Some(message)));
    }
    writer.pragma_update(None, "synchronous", "full")?;
    writer.pragma_update(None, "fullfsync", true)?;
    writer.pragma_update(None, "checkpoint_fullfsync", true)?;
    writer.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    // What is deleted or written over is not left in the file's free places: a redaction is to leave nothing there.
    writer.pragma_update(None, "secure_delete", true)?;
    // A log that a long read made large is cut when it is next started over.
    writer.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    Ok(())
}

/// Whether a connection that is the last to close leaves the log as it is, and writes none of it into the file.
pub(super) fn keep_log(connection: &Connection, whether: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, whether).map(drop)
}

pub(super) fn ledger(connection: &Connection, path: &Path) -> Result<Ledger, OpenError> {
    rows::ledger(connection)
        .map_err(|error| OpenError::Failed { location: path.display().to_string(), source: error.into() })
}

/// What the row of `uptime` says of the steady clock.
pub(super) fn kept(connection: &Connection, path: &Path) -> Result<KeptSteady, OpenError> {
    rows::kept(connection)
        .map_err(|error| OpenError::Failed { location: path.display().to_string(), source: error.into() })
}
