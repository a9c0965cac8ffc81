//! What is wrong with a store, or with a replica: found out, with a name for programs, and a remedy for people.

use serde::Serialize;

use super::OpenError;

/// A fault and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The kind of fault.
    pub name: Fault,
    /// What was found, as a sentence without its full stop.
    pub what: String,
    /// The remedy, for the operator.
    pub todo: String,
}

/// The kinds of faults, by the names that programs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The store does not answer.
    NoAnswer,
    /// A session holds a table, or rows, that every statement there waits for.
    TableHeld,
    /// A shard's head is held for too long.
    HeadHeld,
    /// A shard's head is awaited for too long.
    HeadAwaited,
    /// A session is silent in a transaction.
    SilentSession,
    /// A transaction has been open for long.
    OldTransaction,
    /// Few connections of the database server are left.
    Connections,
    /// The database is of an encoding that the ledger's statements do not work in.
    Encoding,
    /// A part of the schema is missing, or is not as it was made.
    Schema,
    /// The role lacks a privilege.
    Privileges,
    /// The database server is a standby, or only reads.
    Standby,
    /// The database has another ledger beside this one.
    OtherLedger,
    /// The database wants a newer release than this one.
    Outgrown,
    /// The database's schema is older than this release.
    NeedsMigration,
    /// A crash of the database server may lose acknowledged calls.
    NotDurable,
    /// No commit waits for a standby.
    NoSynchronousStandby,
    /// Little room is left on the file system of the ledger, or none.
    NoSpace,
    /// The file system of the ledger is only read.
    ReadOnly,
    /// The write-ahead log has grown large.
    LargeLog,
    /// Rows that nobody needs pile up.
    DeadRows,
    /// The ledger's newest event is ahead of the store's clock, or the clock made a step.
    ClockAhead,
    /// The store's condition cannot be read.
    Unreadable,
    /// A replica says that it does not serve.
    NotServing,
    /// A replica does not answer.
    ReplicaSilent,
    /// A replica does not tell this caller.
    ReplicaRefuses,
    /// A replica has not opened its store yet.
    ReplicaOpening,
    /// A replica serves another ledger.
    ReplicaOfAnotherLedger,
    /// A replica has little memory left.
    ReplicaMemory,
    /// The clock of a replica's machine is far from the store's.
    MachineClock,
    /// A command waits at a replica.
    CommandWaits,
}

/// The faults that are seen without a look at the ledger's tables.
#[derive(Debug)]
pub struct Diagnosis {
    /// The faults, the gravest first.
    pub findings: Vec<Finding>,
    /// Whether a look at the tables would neither wait nor be refused.
    pub is_open: bool,
}

impl Finding {
    /// Makes sentences of its texts, where they are parts of another sentence elsewhere.
    pub(super) fn begin_with_capitals(&mut self) {
        for text in [&mut self.what, &mut self.todo] {
            if let Some(first) = text.get_mut(..1) {
                first.make_ascii_uppercase();
            }
        }
    }

    /// The fault that keeps a ledger which is there from being opened; none where there is no ledger at all.
    #[must_use]
    pub fn of(error: &OpenError) -> Option<Self> {
        let found = |name, what: String, todo: &str| {
            let mut finding = Self { name, what, todo: todo.to_owned() };
            finding.begin_with_capitals();
            Some(finding)
        };
        match error {
            OpenError::Unreachable { .. } => found(
                Fault::NoAnswer,
                crate::telemetry::chain(error),
                "Look whether the database server runs, and whether this machine reaches it",
            ),
            OpenError::Held { what, todo, .. } => found(Fault::TableHeld, what.clone(), todo),
            OpenError::Unfit { fault, what, todo, .. } => found(*fault, what.clone(), todo),
            OpenError::NeedsNewerRelease { .. } => found(
                Fault::Outgrown,
                error.to_string(),
                "Use a binary of that release: a replica of an older one makes no more commits",
            ),
            OpenError::Elsewhere { .. } => found(
                Fault::OtherLedger,
                error.to_string(),
                "Name the schema of the ledger that is meant: nothing was made in this one",
            ),
            OpenError::NeedsMigration { found: 1.., .. } => {
                found(Fault::NeedsMigration, error.to_string(), "Nothing is served on it until it is migrated")
            }
            OpenError::NeedsMigration { found: 0, .. }
            | OpenError::Locked { .. }
            | OpenError::OtherShards { .. }
            | OpenError::SeveralNames { .. }
            | OpenError::Incomplete { .. }
            | OpenError::Unsafe(_)
            | OpenError::ReadOnly { .. }
            | OpenError::Failed { .. } => None,
        }
    }
}
