//! What can go wrong with a store. Every error of a commit answers one question: surely not applied, or unknown?

use std::error::Error as StdError;
use std::sync::Arc;

use super::Unsettled;

/// What a driver says went wrong.
pub type Source = Box<dyn StdError + Send + Sync>;

/// A store's failure, apart from whether something was applied.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It does not answer, or not now: worth trying again.
    #[error("the store is unavailable")]
    Unavailable(#[source] Source),
    /// It refuses what it was given: trying the same again will not help.
    #[error("the store refused a statement")]
    Refused(#[source] Source),
    /// It is not the ledger's any more, and says what happened: nothing that it is asked will succeed, and what it was
    /// asked before stays as unknown as it is.
    #[error("the store is lost")]
    Lost(#[source] Source),
    /// What it holds cannot be read back.
    #[error("{table}.{column} of {key} cannot be read")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The row's key.
        key: String,
        /// Why not.
        #[source]
        source: Source,
    },
}

impl StoreError {
    /// What [`Corrupt`](Self::Corrupt) names as its table when the file itself is damaged.
    pub const WHOLE_DATABASE: &'static str = "database";

    /// The same for each of those who asked together.
    #[must_use]
    pub fn shared(error: &Arc<Self>) -> Self {
        let source = || Source::from(error.clone());
        match &**error {
            Self::Unavailable(_) => Self::Unavailable(source()),
            Self::Refused(_) => Self::Refused(source()),
            Self::Lost(_) => Self::Lost(source()),
            Self::Corrupt { table, column, key, .. } => {
                Self::Corrupt { table, column, key: key.clone(), source: source() }
            }
        }
    }

    /// Whether one run of several may be its cause, so that the others would do without it.
    #[must_use]
    pub fn may_be_of_one_run(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Lost(_) => false,
            Self::Refused(_) => true,
            Self::Corrupt { table, .. } => *table != Self::WHOLE_DATABASE,
        }
    }
}

/// A commit that did not return its verdicts.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Surely nothing was applied.
    #[error("the commit was not applied")]
    NotApplied(#[from] StoreError),
    /// COMMIT was sent and not confirmed.
    #[error("the commit's outcome is not known")]
    Unknown {
        /// What to settle.
        unsettled: Box<Unsettled>,
        /// Why it is not known.
        #[source]
        source: Source,
    },
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It does not answer: worth trying again.
    #[error("the store at {location} does not answer")]
    Unreachable {
        /// Where it is, without any password.
        location: String,
        /// What the driver says.
        #[source]
        source: Source,
    },
    /// Its schema is older than this release: worth trying again after `runledger migrate`.
    #[error(
        "the database's schema is at migration {found} and this release needs {needed}: run `runledger migrate`, or `runledger serve --migrate`"
    )]
    NeedsMigration {
        /// The last migration that was applied.
        found: u32,
        /// The last migration that this release knows.
        needed: u32,
    },
    /// Its schema wants a newer release than this one.
    #[error("the database wants Runledger {min_release} or later; this is {release}")]
    NeedsNewerRelease {
        /// What the database states.
        min_release: String,
        /// This release.
        release: &'static str,
    },
    /// Another server has it.
    #[error("{location} is in use by another server{}", pid.as_ref().map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Locked {
        /// The database file.
        location: String,
        /// The other server's process, when it can be told.
        pid: Option<String>,
    },
    /// It has another number of shards than was asked for.
    #[error(
        "the ledger at {location} has {found} shards, and for ever: --shards {asked} (RUNLEDGER_SHARDS) is for a database that is created"
    )]
    OtherShards {
        /// Where it is, without any password.
        location: String,
        /// How many it has.
        found: u16,
        /// How many were asked for.
        asked: u16,
    },
    /// Its file has another name (a hard link).
    #[error(
        "{location} has {names} names (hard links): a server under another name would not see this one's write-ahead log, \
         and acknowledged calls would be lost: remove the other names (`find -samefile` finds them), or serve a copy"
    )]
    SeveralNames {
        /// The database file.
        location: String,
        /// How many names it has.
        names: u64,
    },
    /// Its file and its write-ahead log are not both there: what was acknowledged may be in the other one.
    #[error("{location}: {what}: {todo}")]
    Incomplete {
        /// The database file.
        location: String,
        /// What there is, and what there is not.
        what: &'static str,
        /// What to do.
        todo: &'static str,
    },
    /// It could not keep what it acknowledges.
    #[error("the database would lose acknowledged calls: {0}; `--allow-unsafe-store` serves on it all the same")]
    Unsafe(String),
    /// Its place cannot be written: EROFS or EACCES.
    #[error("{location} cannot be written")]
    ReadOnly {
        /// The database file.
        location: String,
        /// What the system says.
        #[source]
        source: Source,
    },
    /// Anything that waiting will not mend.
    #[error("the store at {location} cannot be opened")]
    Failed {
        /// Where it is, without any password.
        location: String,
        /// What the driver or the system says.
        #[source]
        source: Source,
    },
}

impl OpenError {
    /// Whether waiting may mend it.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NeedsMigration { .. } => true,
            Self::NeedsNewerRelease { .. }
            | Self::Locked { .. }
            | Self::OtherShards { .. }
            | Self::SeveralNames { .. }
            | Self::Incomplete { .. }
            | Self::Unsafe(_)
            | Self::ReadOnly { .. }
            | Self::Failed { .. } => false,
        }
    }
}
