//! Why a claim has no answer.

use std::time::Duration;

use crate::domain::Refusal;
use crate::engine;
use crate::store::StoreError;

/// The reason for which a claim has no answer.
#[derive(Debug)]
pub enum Failure {
    /// A claim could not be decided.
    Engine(engine::Failure),
    /// The runs that wait cannot be read.
    Store(StoreError),
    /// The claimer's own request was answered before, and the answer cannot be repeated.
    Refused(Box<Refusal>),
    /// Too many different filters have claimers at once, or the claimer's turn to read did not come in this time.
    Overloaded {
        /// About the time until another try may succeed.
        wait: Duration,
    },
    /// The process stops.
    Draining,
    /// The claimer's connection ends, or its credential, and nothing was claimed.
    Cut,
}
