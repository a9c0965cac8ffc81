//! The meanings of the driver's errors: try again, or never; surely not applied, or unknown.

use deadpool::managed::{HookError, PoolError};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::store::finding::Fault;
use crate::store::{OpenError, StoreError};

/// A wait was longer than this process allows.
#[derive(Debug, thiserror::Error)]
#[error("Postgres did not answer in time")]
pub(super) struct TimedOut;

/// The server that a commit was made on is not the ledger's any more: only the present ledger can tell the outcome.
#[derive(Debug, thiserror::Error)]
#[error("the commit was made on a server that was left behind by a failover")]
pub(super) struct LeftBehind;

impl From<TimedOut> for StoreError {
    fn from(timed_out: TimedOut) -> Self {
        Self::Unavailable(timed_out.into())
    }
}

/// A statement's failure. A failure that the server did not report (a lost connection, a broken protocol) is worth
/// trying again; of the errors that it reported, only those that time or another server can mend.
pub(super) fn statement(error: Error) -> StoreError {
    match error.as_db_error() {
        None => StoreError::Unavailable(error.into()),
        Some(said) if is_temporary(said) => StoreError::Unavailable(ServerError::new(said).into()),
        Some(said) => StoreError::Refused(ServerError::new(said).into()),
    }
}

/// A statement's failure before it was sent: the connection's, or a value's that has no encoding and never will.
pub(super) fn unsent(error: Error) -> StoreError {
    if error.is_closed() || error.as_db_error().is_some() {
        statement(error)
    } else {
        StoreError::Refused(error.into())
    }
}

/// The server's error, without its details and context: these show the row, and rows are not for logs.
#[derive(Debug, thiserror::Error)]
#[error("{severity} {state}: {message}{place}")]
struct ServerError {
    severity: String,
    state: String,
    message: String,
    place: String,
}

impl ServerError {
    fn new(said: &DbError) -> Self {
        let named = |what: &str, name: Option<&str>| name.map(|name| format!(", {what} {name}")).unwrap_or_default();
        Self {
            severity: said.severity().to_owned(),
            state: said.code().code().to_owned(),
            message: said.message().to_owned(),
            place: named("table", said.table())
                + &named("column", said.column())
                + &named("constraint", said.constraint()),
        }
    }
}

/// No session could be had: never a statement's fault, so never a refusal.
pub(super) fn session(error: PoolError<Error>) -> StoreError {
    StoreError::Unavailable(match error {
        // The pool's own words would only stand before the cause.
        PoolError::PostCreateHook(HookError::Message(cause)) => cause.into(),
        PoolError::PostCreateHook(HookError::Backend(cause)) | PoolError::Backend(cause) => match cause.as_db_error() {
            Some(said) => ServerError::new(said).into(),
            None => cause.into(),
        },
        error @ (PoolError::Timeout(_) | PoolError::Closed | PoolError::NoRuntimeSpecified) => error.into(),
    })
}

/// The server's function that finds a kept plan to be stale: it makes a new plan by itself, but for one that answers
/// other columns than before.
const OF_STALE_PLANS: &str = "RevalidateCachedQuery";

fn is_temporary(said: &DbError) -> bool {
    match said.code().code() {
        // Read only after a failover, idle for too long, in a transaction that an earlier error ended; a prepared
        // statement that is gone: a new session has none of these.
        "25006" | "25P02" | "25P03" | "26000" => true,
        // What is not supported is so for good: a rule on a table, an encoding, a table of another kind. But for a plan
        // that a migration made stale, which a new session does not have.
        "0A000" => said.routine() == Some(OF_STALE_PLANS),
        // A table in a state in which it takes no such statement, as where it is published without an identity.
        "55000" => false,
        code => ["08", "28", "40", "53", "55", "57", "58"].iter().any(|class| code.starts_with(class)),
    }
}

/// Whether the transaction, rolled back, may be run again at once.
pub(super) fn asks_for_retry(error: &Error) -> bool {
    error.code().is_some_and(|state| {
        [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::LOCK_NOT_AVAILABLE]
            .contains(state)
    })
}

/// Whether somebody else's commit came first, so that the facts of the decision no longer hold, or the database asks
/// for a retry.
pub(super) fn is_lost_race(error: &Error) -> bool {
    asks_for_retry(error)
        || error.code().is_some_and(|state| [SqlState::UNIQUE_VIOLATION, SqlState::DIVISION_BY_ZERO].contains(state))
}

/// Whether a change that was rolled back is to be decided anew: the database asks for it, or somebody else has made
/// meanwhile the row that this one would make.
pub(super) fn is_overtaken(error: &Error) -> bool {
    asks_for_retry(error) || error.code() == Some(&SqlState::UNIQUE_VIOLATION)
}

/// Whether the statement failed only because somebody else holds the head.
pub(super) fn is_lock_timeout(error: &Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Whether an error that answered a statement before COMMIT proves that the transaction was rolled back. An error
/// does if the session went on after it; a session that was ended may have been ended anywhere.
pub(super) fn proves_rollback(error: &Error) -> bool {
    error.as_db_error().is_some_and(|error| {
        let unsure = ["08", "57P"].iter().any(|class| error.code().code().starts_with(class))
            || *error.code() == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN;
        !unsure && severity(error) == Severity::Error
    })
}

/// Whether the session is as good as before a statement that failed with this error: the server [rolled
/// back](proves_rollback) because of the statement's values, of rows, or of another's lock, and not because of this
/// session's prepared statements, or because the server only reads or has no memory.
pub(super) fn spares_session(error: &Error) -> bool {
    proves_rollback(error)
        && error.code().is_some_and(|state| {
            [SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED, SqlState::DISK_FULL].contains(state)
                || ["22", "23", "40", "54", "P0"].iter().any(|class| state.code().starts_with(class))
        })
}

fn severity(error: &DbError) -> Severity {
    error.parsed_severity().unwrap_or(Severity::Fatal)
}

/// A failure to open, on the way to the first connection or on it.
pub(super) fn opening(location: &str, error: Error) -> OpenError {
    let location = location.to_owned();
    let temporary = match error.as_db_error() {
        // A wrong user or database: for a person to mend.
        Some(error) => is_temporary(error) && !error.code().code().starts_with("28"),
        // Wrong certificates and files are for a person too.
        None => (error.is_closed() || is_io(&error)) && !runledger_postgres::is_for_a_person(&error),
    };
    if temporary {
        let source = match error.as_db_error() {
            Some(said) => ServerError::new(said).into(),
            None => error.into(),
        };
        return OpenError::Unreachable { location, source };
    }
    let (fault, todo) = match error.code().map(SqlState::code) {
        Some(code) if code.starts_with("28") => (
            Fault::Login,
            "look at the user and the password in the connection string, and whether the server lets that role in from here \
             (pg_hba.conf)",
        ),
        Some("3D000") => (Fault::NoDatabase, "name another in the connection string, or make it (createdb -E UTF8)"),
        Some("42501") => (Fault::Privileges, "grant the role what it lacks, such as connect on the database"),
        Some(_) => (Fault::Unopened, "look at the log of the database server, which may say more"),
        None => (
            Fault::Connection,
            "look at the connection string: its user and password, and sslmode with the files of TLS that it names",
        ),
    };
    let what = match error.as_db_error() {
        Some(said) => ServerError::new(said).to_string(),
        None => crate::telemetry::chain(&error),
    };
    OpenError::Unfit { location, fault, what, todo: todo.to_owned() }
}

/// A failure to open, from the store's own statements.
pub(super) fn opening_with(location: &str, error: StoreError) -> OpenError {
    let location = location.to_owned();
    match error {
        StoreError::Unavailable(source) => OpenError::Unreachable { location, source },
        error @ (StoreError::Refused(_) | StoreError::Lost(_) | StoreError::Corrupt { .. }) => {
            OpenError::Failed { location, source: error.into() }
        }
    }
}

/// The driver does not say which kind its error is; a bad setting or password has no I/O error below it.
fn is_io(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(<dyn std::error::Error>::is::<std::io::Error>)
        || error.to_string().contains("timeout")
}
