//! The errors of a store. Every error of a commit answers one question: surely not applied, or unknown?

use std::borrow::Cow;
use std::error::Error as StdError;
use std::sync::Arc;

use super::Unsettled;
use super::finding::Fault;

/// An error as a driver reports it.
pub type Source = Box<dyn StdError + Send + Sync>;

/// A store's failure, apart from whether something was applied.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store does not answer, or not now: worth trying again.
    #[error("the store is unavailable")]
    Unavailable(#[source] Source),
    /// The store refuses a value or a statement: trying the same again will not help.
    #[error("the store refused a statement")]
    Refused(#[source] Source),
    /// The store is not the ledger's any more, and the source says what happened: no later call will succeed, and the
    /// outcome of earlier calls stays as unknown as it is.
    #[error("the store is lost")]
    Lost(#[source] Source),
    /// A stored value cannot be read back.
    #[error("{table}.{column} of {key} cannot be read")]
    Corrupt {
        table: &'static str,
        column: &'static str,
        /// The row's key.
        key: String,
        /// The reason.
        #[source]
        source: Source,
    },
}

impl StoreError {
    /// The table that [`Corrupt`](Self::Corrupt) names when the file itself is damaged.
    pub const WHOLE_DATABASE: &'static str = "database";

    /// The same error for each of several callers who share one call.
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

    /// Whether one run of several may be the cause, so that the others would succeed without it.
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
        /// The commit to settle.
        unsettled: Box<Unsettled>,
        /// The reason why the outcome is not known.
        #[source]
        source: Source,
    },
}

/// The reason why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store does not answer: worth trying again.
    #[error("the store at {location} does not answer")]
    Unreachable {
        /// The store's place, without any password.
        location: String,
        /// The driver's error.
        #[source]
        source: Source,
    },
    /// The database's schema is older than this release: worth trying again after `runledger migrate`.
    #[error(
        "the database's schema is at migration {found} and this release needs {needed}: run `runledger migrate`, or `runledger serve --migrate`"
    )]
    NeedsMigration {
        /// The last migration that was applied.
        found: u32,
        /// The last migration that this release knows.
        needed: u32,
    },
    /// The database's schema wants a newer release than this one.
    #[error("the database wants Runledger {min_release} or later; this is {release}")]
    NeedsNewerRelease {
        /// The release that the database states.
        min_release: String,
        /// The release of this program.
        release: &'static str,
    },
    /// Another server has the file.
    #[error("{location} is in use by another server{}", pid.as_ref().map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Locked {
        /// The database file.
        location: String,
        /// The other server's process, when it can be told.
        pid: Option<String>,
    },
    /// The ledger has another number of shards than was asked for.
    #[error(
        "the ledger at {location} was created with --shards {found}, and keeps them: --shards {asked} (RUNLEDGER_SHARDS) is for a database that is created"
    )]
    OtherShards {
        /// The store's place, without any password.
        location: String,
        /// The number of shards that the ledger has.
        found: u16,
        /// The number of shards that were asked for.
        asked: u16,
    },
    /// The database file has another name (a hard link).
    #[error(
        "{location} has {names} names (hard links): a server under another name would not see this one's write-ahead log, \
         and acknowledged calls would be lost: remove the other names (`find -samefile` finds them), or serve a copy"
    )]
    SeveralNames {
        /// The database file.
        location: String,
        /// The number of names of the file.
        names: u64,
    },
    /// The file and its write-ahead log are not both there: the other one may have acknowledged calls.
    #[error("{location}: {what}: {todo}")]
    Incomplete {
        /// The database file.
        location: String,
        /// The kind of fault.
        fault: Fault,
        /// The part that is there, and the part that is missing.
        what: Cow<'static, str>,
        /// The operator's next step.
        todo: &'static str,
    },
    /// The database has no ledger where this role looks, and one elsewhere, which may be the one that is meant.
    #[error(
        "the database has a ledger in the schema {schemas}, and none where the role {role} looks (search_path: \
         {search_path}): name the schema in the connection string (options=-csearch_path%3D{schemas}) or as the role's \
         (ALTER ROLE {role} SET search_path = {schemas}), or ask for another ledger with --new-ledger"
    )]
    Elsewhere {
        /// The schemas that have a ledger.
        schemas: String,
        /// The session's role.
        role: String,
        /// The schemas that the role looks into.
        search_path: String,
    },
    /// The database could not keep the calls that it acknowledges.
    #[error("the database would lose acknowledged calls: {0}; `--allow-unsafe-store` serves on it all the same")]
    Unsafe(String),
    /// The file, or a part of it, cannot be read or written by this user, or not there: EACCES or EROFS.
    #[error("{location} cannot be {access}: {why}: {todo}")]
    Forbidden {
        /// The database file, or what is beside it.
        location: String,
        /// The kind of fault.
        fault: Fault,
        /// `read` or `written`.
        access: &'static str,
        /// The system's error, and whose the file is.
        why: String,
        /// The operator's next step.
        todo: String,
    },
    /// There is no ledger in that place.
    #[error("the store at {location} cannot be opened: {why}")]
    NoLedger {
        /// The store's place, without any password.
        location: String,
        /// What is there instead, and how one comes to be.
        why: &'static str,
    },
    /// Somebody else holds what the opening waits for: worth trying again.
    #[error("the store at {location} cannot be opened: {what}: {todo}")]
    Held {
        /// The store's place, without any password.
        location: String,
        /// Who holds what, and since when.
        what: String,
        /// The operator's next step.
        todo: String,
    },
    /// The store lacks a property that the ledger's statements need: it could be opened, and would fail.
    #[error("the store at {location} cannot be opened: {what}: {todo}")]
    Unfit {
        /// The store's place, without any password.
        location: String,
        /// The kind of fault.
        fault: Fault,
        /// The property that is missing.
        what: String,
        /// The operator's next step.
        todo: String,
    },
    /// Any failure that waiting will not mend.
    #[error("the store at {location} cannot be opened")]
    Failed {
        /// The store's place, without any password.
        location: String,
        /// The driver's or the system's error.
        #[source]
        source: Source,
    },
}

impl OpenError {
    /// Whether waiting may mend it.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NeedsMigration { .. } | Self::Held { .. })
    }
}
