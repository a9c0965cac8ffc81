//! `runledger bench`: load on real servers, and measurements of what their callers see.
//!
//! The bench is a client and nothing else: it knows neither store nor engine, so that users can have the numbers that
//! it measures. The bench writes runs of its own and ends them, but the ledger keeps their events: measure on a ledger
//! that may have them.

mod delays;
pub mod direct;
mod dsn;
pub mod fill;
pub mod leases;
pub mod load;
pub mod overload;
mod pace;
mod process;
pub mod progress;
mod random;
pub mod report;
mod runs;
pub mod servers;
pub mod watch;

use std::error::Error;
use std::io;

use runledger_client::{Failure, Kind};
use tokio::task::JoinError;
use tonic::Status;

/// The reason why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// There is no connection to a server.
    #[error(transparent)]
    Unreachable(Box<Failure>),
    /// A call of the load failed: the measurement would not be of the load that was asked for.
    #[error("{rpc} failed: {}", Failure::from(&**status))]
    Call {
        /// The call.
        rpc: &'static str,
        /// The status that the server answered.
        status: Box<Status>,
    },
    /// A stream ended that should not have.
    #[error("{rpc} ended by itself")]
    Ended {
        /// The call.
        rpc: &'static str,
    },
    /// An answer is not what the contract says.
    #[error("{rpc} answered without {field}")]
    Answer {
        /// The call.
        rpc: &'static str,
        /// The field that is missing.
        field: &'static str,
    },
    /// A call was answered, and wrote nothing: the load would not be the one that its name says.
    #[error("{rpc} answered {disposition}: somebody else changes the runs of this load")]
    NotApplied {
        /// The call.
        rpc: &'static str,
        /// The disposition that the server answered.
        disposition: &'static str,
    },
    /// A command of a list was not applied.
    #[error("a command of ApplyCommands was not applied: {message}")]
    Command {
        /// The server's words.
        message: String,
    },
    /// The Postgres that was to be written to directly does not answer.
    #[error("the database to compare with does not answer")]
    DatabaseUnreachable {
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The Postgres that was to be written to directly refuses.
    #[error("the database to compare with: {what}")]
    Database {
        /// The step that the database refuses.
        what: &'static str,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A direct transition wrote nothing: the comparison would not be the one that its name says.
    #[error("a transition that was written directly found its run in another state: somebody else changes it")]
    NotWritten,
    /// pgbench cannot be run, or failed.
    #[error("{what} failed")]
    Pgbench {
        /// The command of pgbench, or the file that it was to read.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The flags do not go together.
    #[error("{0}")]
    Senseless(String),
    /// Fewer changes came to the watchers than were written, or others.
    #[error("the watchers missed {missing} changes and saw {unexpected} that nobody wrote")]
    Unmatched {
        /// Changes that some watcher has not seen.
        missing: u64,
        /// Changes that came twice, or that nobody wrote.
        unexpected: u64,
    },
    /// Fewer or more changes came than there are.
    #[error("a watcher caught up after {seen} changes, and {written} were written")]
    Miscounted {
        /// Changes that were to come.
        written: u64,
        /// Changes that came.
        seen: u64,
    },
    /// A wait ended before its run.
    #[error("{timed_out} waits were given up by the server before their runs ended: see its --wait-max")]
    TimedOut {
        /// The number of waits.
        timed_out: u64,
    },
    /// The server's process cannot be looked at.
    #[error("the process {pid} cannot be looked at")]
    Process {
        /// The process's id.
        pid: u32,
        /// The cause.
        source: io::Error,
    },
    /// A part of the load broke.
    #[error("a part of the load broke")]
    Broken(#[from] JoinError),
}

impl BenchError {
    pub(crate) fn call(rpc: &'static str) -> impl Fn(Status) -> Self {
        move |status| Self::Call { rpc, status: Box::new(status) }
    }

    /// Whether nobody served the call, rather than refused it.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::DatabaseUnreachable { .. } => true,
            Self::Call { status, .. } => Failure::from(&**status).kind != Kind::Refused,
            Self::Ended { .. }
            | Self::Answer { .. }
            | Self::NotApplied { .. }
            | Self::Command { .. }
            | Self::Database { .. }
            | Self::NotWritten
            | Self::Pgbench { .. }
            | Self::Senseless(_)
            | Self::Unmatched { .. }
            | Self::Miscounted { .. }
            | Self::TimedOut { .. }
            | Self::Process { .. }
            | Self::Broken(_) => false,
        }
    }
}
