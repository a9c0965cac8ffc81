//! `runledger bench`: load on real servers, and measurements of what their callers see.
//!
//! It is a client and nothing else: it knows neither store nor engine, so that a number of it is one that users can
//! have. It writes runs of its own and ends them, but the ledger keeps their events: measure on a ledger that may have
//! them.

mod delays;
pub mod direct;
mod dsn;
pub mod filled;
pub mod leases;
pub mod load;
pub mod overload;
mod pace;
mod process;
mod progress;
mod random;
pub mod report;
mod runs;
pub mod servers;
pub mod watch;

use std::error::Error;
use std::io;

use tokio::task::JoinError;
use tonic::{Code, Status};

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Nobody answers there.
    #[error("{server} does not answer")]
    Unreachable {
        /// The server.
        server: String,
        /// Why not.
        source: tonic::transport::Error,
    },
    /// A call of the load failed: what was measured before it would not be what was asked for.
    #[error("{rpc} failed: {status}")]
    Call {
        /// The call.
        rpc: &'static str,
        /// Its answer.
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
        /// What is missing.
        field: &'static str,
    },
    /// A call was answered, and wrote nothing: the load would not be what it is called.
    #[error("{rpc} answered {disposition}: somebody else changes the runs of this load")]
    NotApplied {
        /// The call.
        rpc: &'static str,
        /// Its answer.
        disposition: &'static str,
    },
    /// The Postgres that was to be written to directly does not answer.
    #[error("the database to compare with does not answer")]
    DatabaseUnreachable {
        /// Why not.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The Postgres that was to be written to directly refuses.
    #[error("the database to compare with: {what}")]
    Database {
        /// What it refuses.
        what: &'static str,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A direct transition wrote nothing: what was compared would not be what it is called.
    #[error("a transition that was written directly found its run in another state: somebody else changes it")]
    NotWritten,
    /// pgbench cannot be run, or failed.
    #[error("{what} failed")]
    Pgbench {
        /// What it was started as, or the file that it was to read.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// What was asked for does not go together.
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
        /// What was to come.
        written: u64,
        /// What came.
        seen: u64,
    },
    /// A wait ended before its run.
    #[error("{timed_out} waits were given up by the server before their runs ended: see its --wait-max")]
    TimedOut {
        /// How many.
        timed_out: u64,
    },
    /// The server's process cannot be looked at.
    #[error("the process {pid} cannot be looked at")]
    Process {
        /// Its id.
        pid: u32,
        /// Why not.
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
            Self::Unreachable { .. } | Self::DatabaseUnreachable { .. } => true,
            Self::Call { status, .. } => status.code() == Code::Unavailable,
            Self::Ended { .. }
            | Self::Answer { .. }
            | Self::NotApplied { .. }
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
