//! The migrations of both stores, and which databases this release may work with.

use super::OpenError;

/// The release of this program.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The oldest release that can work with this release's schema. Every migration raises the database's `min_release`
/// to it, and nothing else does.
pub const MIN_RELEASE: &str = "0.9.0";

/// The migration that brings the ledger its key. On SQLite the program that migrates draws the key, in the transaction
/// of this step.
pub const SEAL_KEY: u32 = 9;

/// The migration that brings the ledger its steady clock. On SQLite the program that migrates knows the time from which on the
/// ledger has it.
pub const STEADY: u32 = 18;

/// One step of the schema: the same number and name in both stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The number, from 1, dense.
    pub number: u32,
    /// The name of the change.
    pub name: &'static str,
    /// The statements.
    pub sql: &'static str,
}

/// The result of [`migrate`](super::open::migrate).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The names of the migrations that were applied now, in order.
    pub applied: Vec<String>,
    /// The number that the schema is at.
    pub at: u32,
    /// Whether there was no ledger before.
    pub is_new: bool,
}

/// Postgres' migrations in order.
pub const POSTGRES: &[Migration] = &[
    Migration { number: 1, name: "ledger", sql: include_str!("../../migrations/postgres/0001_ledger.sql") },
    Migration {
        number: 2,
        name: "active_by_start",
        sql: include_str!("../../migrations/postgres/0002_active_by_start.sql"),
    },
    Migration { number: 3, name: "growth", sql: include_str!("../../migrations/postgres/0003_growth.sql") },
    Migration { number: 4, name: "leases", sql: include_str!("../../migrations/postgres/0004_leases.sql") },
    Migration { number: 5, name: "max_running", sql: include_str!("../../migrations/postgres/0005_max_running.sql") },
    Migration { number: 6, name: "lineage", sql: include_str!("../../migrations/postgres/0006_lineage.sql") },
    Migration { number: 7, name: "ready", sql: include_str!("../../migrations/postgres/0007_ready.sql") },
    Migration {
        number: 8,
        name: "drop_alive_at",
        sql: include_str!("../../migrations/postgres/0008_drop_alive_at.sql"),
    },
    Migration { number: SEAL_KEY, name: "seal_key", sql: include_str!("../../migrations/postgres/0009_seal_key.sql") },
    Migration { number: 10, name: "namespaces", sql: include_str!("../../migrations/postgres/0010_namespaces.sql") },
    Migration { number: 11, name: "archive", sql: include_str!("../../migrations/postgres/0011_archive.sql") },
    Migration { number: 12, name: "retention", sql: include_str!("../../migrations/postgres/0012_retention.sql") },
    Migration { number: 13, name: "exported", sql: include_str!("../../migrations/postgres/0013_exported.sql") },
    Migration { number: 14, name: "contents", sql: include_str!("../../migrations/postgres/0014_contents.sql") },
    Migration {
        number: 15,
        name: "lists_by_parents",
        sql: include_str!("../../migrations/postgres/0015_lists_by_parents.sql"),
    },
    Migration { number: 16, name: "lifecycles", sql: include_str!("../../migrations/postgres/0016_lifecycles.sql") },
    Migration { number: 17, name: "suspension", sql: include_str!("../../migrations/postgres/0017_suspension.sql") },
    Migration { number: STEADY, name: "steady", sql: include_str!("../../migrations/postgres/0018_steady.sql") },
    Migration {
        number: 19,
        name: "timeout_then",
        sql: include_str!("../../migrations/postgres/0019_timeout_then.sql"),
    },
];

/// SQLite's migrations in order.
pub const SQLITE: &[Migration] = &[
    Migration { number: 1, name: "ledger", sql: include_str!("../../migrations/sqlite/0001_ledger.sql") },
    Migration {
        number: 2,
        name: "active_by_start",
        sql: include_str!("../../migrations/sqlite/0002_active_by_start.sql"),
    },
    Migration { number: 3, name: "growth", sql: include_str!("../../migrations/sqlite/0003_growth.sql") },
    Migration { number: 4, name: "leases", sql: include_str!("../../migrations/sqlite/0004_leases.sql") },
    Migration { number: 5, name: "max_running", sql: include_str!("../../migrations/sqlite/0005_max_running.sql") },
    Migration { number: 6, name: "lineage", sql: include_str!("../../migrations/sqlite/0006_lineage.sql") },
    Migration { number: 7, name: "ready", sql: include_str!("../../migrations/sqlite/0007_ready.sql") },
    Migration { number: 8, name: "drop_alive_at", sql: include_str!("../../migrations/sqlite/0008_drop_alive_at.sql") },
    Migration { number: SEAL_KEY, name: "seal_key", sql: include_str!("../../migrations/sqlite/0009_seal_key.sql") },
    Migration { number: 10, name: "namespaces", sql: include_str!("../../migrations/sqlite/0010_namespaces.sql") },
    Migration { number: 11, name: "archive", sql: include_str!("../../migrations/sqlite/0011_archive.sql") },
    Migration { number: 12, name: "retention", sql: include_str!("../../migrations/sqlite/0012_retention.sql") },
    Migration { number: 13, name: "exported", sql: include_str!("../../migrations/sqlite/0013_exported.sql") },
    Migration { number: 14, name: "contents", sql: include_str!("../../migrations/sqlite/0014_contents.sql") },
    Migration {
        number: 15,
        name: "lists_by_parents",
        sql: include_str!("../../migrations/sqlite/0015_lists_by_parents.sql"),
    },
    Migration { number: 16, name: "lifecycles", sql: include_str!("../../migrations/sqlite/0016_lifecycles.sql") },
    Migration { number: 17, name: "suspension", sql: include_str!("../../migrations/sqlite/0017_suspension.sql") },
    Migration { number: STEADY, name: "steady", sql: include_str!("../../migrations/sqlite/0018_steady.sql") },
    Migration { number: 19, name: "timeout_then", sql: include_str!("../../migrations/sqlite/0019_timeout_then.sql") },
];

/// Refuses a database that states a `min_release` above this release.
///
/// # Errors
///
/// [`OpenError::NeedsNewerRelease`].
pub fn admits(min_release: &str) -> Result<(), OpenError> {
    let release = semver::Version::parse(RELEASE).expect("cargo checked the version");
    match semver::Version::parse(min_release) {
        Ok(wanted) if wanted <= release => Ok(()),
        Ok(_) | Err(_) => Err(OpenError::NeedsNewerRelease { min_release: min_release.to_owned(), release: RELEASE }),
    }
}

/// The later of the release that a database states and the one that this release asks for: `min_release` never falls.
#[must_use]
pub fn later<'a>(stated: &'a str, ours: &'a str) -> &'a str {
    match (semver::Version::parse(stated), semver::Version::parse(ours)) {
        (Ok(theirs), Ok(of_ours)) if of_ours > theirs => ours,
        (Ok(_) | Err(_), Ok(_) | Err(_)) => stated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_stores_have_the_same_migrations() {
        let names = |list: &[Migration]| list.iter().map(|step| (step.number, step.name)).collect::<Vec<_>>();
        assert_eq!(names(POSTGRES), names(SQLITE));
        assert!(names(POSTGRES).iter().map(|(number, _)| *number).eq(1..=POSTGRES.len().try_into().unwrap()));
    }

    #[test]
    fn what_a_database_states_is_raised_and_never_lowered() {
        assert_eq!(later("0.9.0", "0.10.0"), "0.10.0");
        assert_eq!(later("0.10.0", "0.9.0"), "0.10.0");
        assert_eq!(later("1.0.0", "1.0.0"), "1.0.0");
        assert_eq!(later("not a release", "1.0.0"), "not a release");
        assert!(admits(MIN_RELEASE).is_ok(), "a release can work with its own schema");
    }

    #[test]
    fn only_a_higher_min_release_is_refused() {
        assert!(admits("0.0.9").is_ok());
        assert!(admits(RELEASE).is_ok());
        assert!(admits("999.0.0").is_err());
        assert!(admits("not a release").is_err());
    }
}
