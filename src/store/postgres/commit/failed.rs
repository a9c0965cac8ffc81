//! How an attempt to commit fails, and what is left of its session.

use tokio_postgres::Error;

use crate::store::postgres::errors;
use crate::store::{CommitError, StoreError};

pub(super) enum Failure {
    /// Rolled back, and worth another attempt at once.
    Again(StoreError),
    /// Rolled back: the batch was decided on runs as this process left them, and they have changed since.
    Stale,
    Final(CommitError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Final(error.into())
    }
}

/// An attempt that failed.
pub(super) struct Failed {
    pub(super) failure: Failure,
    /// Whether every statement was answered, and the session is as good as before once it is rolled back.
    pub(super) session_spared: bool,
}

impl Failed {
    /// The server answered a statement with an error, or the connection broke.
    pub(super) fn at(error: Error, failure: impl FnOnce(StoreError) -> Failure) -> Self {
        let session_spared = errors::spares_session(&error);
        Self { failure: failure(errors::statement(error)), session_spared }
    }

    pub(super) fn finally(error: Error) -> Self {
        Self::at(error, Failure::from)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        // A row that was read and makes no sense is no fault of the session.
        let session_spared = matches!(error, StoreError::Corrupt { .. });
        Self { failure: error.into(), session_spared }
    }
}
