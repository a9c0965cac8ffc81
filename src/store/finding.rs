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

/// Makes the enum, and its list for the documentation, of one table.
macro_rules! faults {
    ($(#[doc = $means:literal] $fault:ident = $name:literal,)+) => {
        /// The kinds of faults, by the names that programs read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub enum Fault {
            $(#[doc = $means] #[serde(rename = $name)] $fault,)+
        }

        impl Fault {
            /// The name of each fault, and what it means.
            pub const ALL: &[(&str, &str)] = &[$(($name, $means),)+];
        }
    };
}

faults! {
    /// The store does not answer.
    NoAnswer = "no_answer",
    /// The database server does not let this role in.
    Login = "login",
    /// The database server has no such database.
    NoDatabase = "no_database",
    /// No connection can be made as the connection string says: its files, TLS, what the server wants.
    Connection = "connection",
    /// The database server, or what stands before it, cannot keep a ledger.
    Server = "server",
    /// This user may not read or write the ledger's file.
    NoAccess = "no_access",
    /// What stands in the ledger's place is no file, or of another program.
    Foreign = "foreign",
    /// A part of the ledger's file is missing, cut, or of another file.
    Parts = "parts",
    /// The ledger's file is damaged.
    Damaged = "damaged",
    /// The ledger's file has several names (hard links).
    SeveralNames = "several_names",
    /// The ledger cannot be opened, for a reason that has no name here.
    Unopened = "unopened",
    /// A session holds a table, or rows, that every statement there waits for.
    TableHeld = "table_held",
    /// A shard's head is held for too long.
    HeadHeld = "head_held",
    /// A shard's head is awaited for too long.
    HeadAwaited = "head_awaited",
    /// A session is silent in a transaction.
    SilentSession = "silent_session",
    /// A transaction has been open for long.
    OldTransaction = "old_transaction",
    /// Few connections of the database server are left.
    Connections = "connections",
    /// The database is of an encoding that the ledger's statements do not work in.
    Encoding = "encoding",
    /// A part of the schema is missing, or is not as it was made.
    Schema = "schema",
    /// The role lacks a privilege.
    Privileges = "privileges",
    /// The database server is a standby, or only reads.
    Standby = "standby",
    /// The database has another ledger beside this one.
    OtherLedger = "other_ledger",
    /// The database wants a newer release than this one.
    Outgrown = "outgrown",
    /// The database's schema is older than this release.
    NeedsMigration = "needs_migration",
    /// A crash of the database server may lose acknowledged calls.
    NotDurable = "not_durable",
    /// No commit waits for a standby.
    NoSynchronousStandby = "no_synchronous_standby",
    /// Little room is left on the file system of the ledger, or none.
    NoSpace = "no_space",
    /// The file system of the ledger is only read.
    ReadOnly = "read_only",
    /// The write-ahead log has grown large.
    LargeLog = "large_log",
    /// Rows that nobody needs pile up.
    DeadRows = "dead_rows",
    /// The ledger's newest event is ahead of the store's clock.
    ClockAhead = "clock_ahead",
    /// The store's condition cannot be read.
    Unreadable = "unreadable",
    /// A replica says that it does not serve.
    NotServing = "not_serving",
    /// A replica does not answer.
    ReplicaSilent = "replica_silent",
    /// A replica does not tell this caller.
    ReplicaRefuses = "replica_refuses",
    /// A replica has not opened its store yet.
    ReplicaOpening = "replica_opening",
    /// A replica serves another ledger.
    ReplicaOfAnotherLedger = "replica_of_another_ledger",
    /// A replica has little memory left.
    ReplicaMemory = "replica_memory",
    /// The clock of a replica's machine is far from the store's.
    MachineClock = "machine_clock",
    /// A command waits at a replica.
    CommandWaits = "command_waits",
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

    /// The fault that keeps a store from being opened; none where there is no ledger at all.
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
            OpenError::Incomplete { fault, location, what, todo } => found(*fault, format!("{location}: {what}"), todo),
            OpenError::Forbidden { fault, location, access, why, todo } => {
                found(*fault, format!("{location} cannot be {access}: {why}"), todo)
            }
            OpenError::SeveralNames { .. } => {
                found(Fault::SeveralNames, error.to_string(), "No server starts on it before that")
            }
            // Who only reads opens it beside a server.
            OpenError::Locked { .. } => found(Fault::Unopened, error.to_string(), "Ask that server, or stop it first"),
            OpenError::Unsafe(_) => found(Fault::NotDurable, error.to_string(), "Mend the setting"),
            OpenError::OtherShards { .. } => found(Fault::Unopened, error.to_string(), "Leave --shards out"),
            OpenError::Failed { .. } => found(
                Fault::Unopened,
                crate::telemetry::chain(error),
                "Look at the log of the database server, or of the system, which may say more",
            ),
            OpenError::NeedsMigration { found: 0, .. } | OpenError::NoLedger { .. } => None,
        }
    }
}
