//! Opens the store that a location names.
//!
//! Invariant: a store is taken only where a ledger works in it. Its encoding, every part of its schema, and what others
//! hung on its tables are looked at when the store is opened, and each kind of statement is planned once. A fault has a
//! name ([`finding`](super::finding)), by which `serve` refuses the store and the doctor tells of it. Who holds what an
//! opening waits for is asked of the database's catalogue, on a connection that waits for no table.

mod plain_path;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

pub use self::plain_path::is_secret;
use super::finding::Diagnosis;
use super::inspect::Inspect;
use super::migrations::Migrated;
use super::plan::Plan;
use super::postgres::{self, PostgresInspect, PostgresStore, dsn};
use super::sqlite::{SqliteInspect, SqliteStore};
use super::{OpenError, OpenOptions, Store};
use crate::clock::Clock;
use crate::tasks::Supervisor;

/// The place of a store. `Display` and `Debug` never show a password.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// An SQLite file.
    Sqlite(PathBuf),
    /// SQLite in memory: gone with the process.
    Memory,
    /// A Postgres connection string, in either form.
    Postgres(String),
}

impl Location {
    /// The name of the kind of store.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Memory => "memory",
            Self::Postgres(_) => "postgres",
        }
    }
}

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "memory" {
            Ok(Self::Memory)
        } else if let Some(path) = text.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
            plain_path::check(path).map(|()| Self::Sqlite(PathBuf::from(path)))
        } else if dsn::is_connection_string(text) {
            dsn::check(text).map(|()| Self::Postgres(text.to_owned()))
        } else {
            Err("expected sqlite:PATH, memory, or postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned())
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Memory => f.write_str("memory"),
            Self::Postgres(text) => f.write_str(&dsn::redacted(text)),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Opens the store at a location, once: a caller that wants to wait tries again while the error is temporary. The
/// tasks that the store always needs are vital to `supervisor`'s service.
///
/// # Errors
///
/// See [`OpenError`].
pub async fn open(
    location: &Location,
    options: &OpenOptions,
    clock: Arc<dyn Clock>,
    supervisor: &Supervisor,
) -> Result<Arc<dyn Store>, OpenError> {
    match location {
        Location::Sqlite(path) => {
            let store = SqliteStore::open(path.clone(), options, clock).await?;
            supervisor.vital("cleaner", store.keep_clean(supervisor.stop()));
            Ok(Arc::new(store))
        }
        Location::Memory => Ok(Arc::new(SqliteStore::in_memory(options, clock).await?)),
        Location::Postgres(dsn) => Ok(Arc::new(PostgresStore::open(dsn, options, supervisor).await?)),
    }
}

/// Opens the ledger at a location for a look from outside, once: nothing is written, made, migrated or locked.
///
/// # Errors
///
/// See [`OpenError`]. Memory is its server's alone.
pub async fn for_reading(
    location: &Location,
    options: &OpenOptions,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Inspect>, OpenError> {
    match location {
        Location::Sqlite(path) => Ok(Arc::new(SqliteInspect::open(path.clone(), clock).await?)),
        Location::Memory => {
            let why = "a store in memory can be seen by its own server only";
            Err(OpenError::NoLedger { location: location.to_string(), why })
        }
        Location::Postgres(dsn) => Ok(Arc::new(PostgresInspect::open(dsn, options).await?)),
    }
}

/// What can be told of the faults of a store before its tables are touched.
///
/// # Errors
///
/// See [`OpenError`]: the store does not answer, or nothing can be told of it.
pub async fn diagnose(location: &Location) -> Result<Diagnosis, OpenError> {
    match location {
        Location::Sqlite(path) => SqliteInspect::diagnose(path.clone()).await,
        Location::Memory => Ok(Diagnosis { findings: Vec::new(), is_open: true }),
        Location::Postgres(dsn) => postgres::diagnosis::diagnose(dsn).await,
    }
}

/// Brings the database at a location to this release's schema, under a lock.
///
/// # Errors
///
/// See [`OpenError`].
pub async fn migrate(location: &Location, options: &OpenOptions, clock: Arc<dyn Clock>) -> Result<Migrated, OpenError> {
    match location {
        Location::Sqlite(path) => SqliteStore::migrate(path.clone(), options, clock).await,
        Location::Memory => {
            Err(OpenError::Failed { location: location.to_string(), source: "memory has nothing to migrate".into() })
        }
        Location::Postgres(dsn) => PostgresStore::migrate(dsn, options).await,
    }
}

/// What [`migrate`] would do to the database at a location, which is only read: also beside its servers, and by a role
/// that may not write.
///
/// # Errors
///
/// See [`OpenError`].
pub async fn plan(location: &Location, options: &OpenOptions) -> Result<Plan, OpenError> {
    match location {
        Location::Sqlite(path) => SqliteStore::plan(path.clone(), options).await,
        Location::Memory => {
            Err(OpenError::Failed { location: location.to_string(), source: "memory has nothing to migrate".into() })
        }
        Location::Postgres(dsn) => PostgresStore::plan(dsn, options).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn a_location_that_cannot_be_opened_is_told_from_one_that_may() {
        for text in [
            "memory",
            "sqlite:runs.db",
            "postgres://u:p@h:1/d",
            "postgres://u:p@h/d?sslmode=require",
            "host=h dbname=d user=u password='p p'",
        ] {
            assert!(text.parse::<Location>().is_ok(), "{text}");
        }
        for text in ["", "sqlite:", "runs.db", "postgres://u:p@h/d?sslmode=tls", "postgres://u:p@h:port/d", "host=h"] {
            assert!(text.parse::<Location>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_is_a_path_and_what_may_hold_a_password_is_none() {
        for path in [
            "ledger.db",
            "./a:b",
            "/var/lib/a:b/ledger.db",
            "/home/u@h/ledger.db",
            "///var/ledger.db",
            "../a b.db",
            "a=b",
            "/mnt/snap@1:2/ledger.db",
            "-",
            "é.db",
            "./~x.db",
            "a~",
            "50%.db",
            "a%zz.db",
            "cost$.db",
            "my-wal.db",
            "x.lock.db",
            "a#b.db",
        ] {
            assert_eq!(format!("sqlite:{path}").parse(), Ok(Location::Sqlite(path.into())), "{path}");
        }
        for text in [
            "postgres://u:s3cret@h/d",
            "postgresql://u:s3cret@h/d",
            "POSTGRES://u:s3cret@h/d",
            "Postgres:u:s3cret@h/d",
            "postgres:/u:s3cret@h/d",
            "//u:s3cret@h/d",
            "/u:s3cret@h/d",
            "u:s3cret@h/d",
            "./u:s3@cret@h",
            " postgres://s3cret@h",
            "mysql://u:s3cret@h/d",
            "http://s3cret",
            "sqlite:s3cret",
            "sqlite:///s3cret",
            "file:s3cret?mode=ro",
            "file:///s3cret",
            "jdbc:postgresql://h/d?password=s3cret",
            "host=h password=s3cret dbname=d",
            "password=s3cret",
            "PassWord=s3cret",
            "user=u host=h",
            "options=s3cret",
            ":memory:",
            ":s3cret:",
            "//host/s3cret",
            "C:s3cret",
            "memory:",
            " s3cret",
            "s3cret ",
            "s3cret\n",
            "s3\u{1b}cret",
            "~/s3cret.db",
            "~s3cret/x.db",
            "~",
            "$HOME/s3cret.db",
            "/var/$S3CRET/s3cret.db",
            "/var/x${S}s3cret.db",
            "s3cret.db?mode=ro",
            "s3cret.db?",
            "s3cret%20x.db",
            "/s3cret/",
            ".",
            "..",
            "/s3cret/..",
            "\"s3cret.db\"",
            "'s3cret.db'",
            "s3cret.db-wal",
            "s3cret.db-shm",
            "s3cret.db-journal",
            "s3cret.db.lock",
        ] {
            let refused = format!("sqlite:{text}").parse::<Location>().expect_err(text);
            assert!(!refused.contains("s3cret") && refused.contains("sqlite:"), "{text}: {refused}");
        }
        for text in
            ["SQLITE:s3cret", "Sqlite:postgres://u:s3cret@h/d", "POSTGRES://u:s3cret@h/d", "mysql://u:s3cret@h/d"]
        {
            let refused = text.parse::<Location>().expect_err(text);
            assert!(!refused.contains("s3cret"), "{text}: {refused}");
        }
    }

    #[tokio::test]
    async fn memory_has_nothing_to_migrate() {
        let migrated = migrate(&Location::Memory, &OpenOptions::default(), Arc::new(SystemClock)).await;
        assert!(matches!(migrated, Err(OpenError::Failed { .. })), "{migrated:?}");
    }
}
