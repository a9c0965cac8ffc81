//! Measurements of watches and waits.

pub mod catch_up;
pub mod delay;
mod frames;
pub mod idle;
mod matching;
pub mod waiters;

use std::time::Duration;

use clap::ValueEnum;
use futures_util::future::pending;
use tokio::task::JoinSet;

use super::BenchError;
use super::report::{per_second, real};

/// Time that the last changes may take to come to all watchers once everything was written.
const STRAGGLERS_WAIT_MAX: Duration = Duration::from_secs(30);

/// The call that watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rpc {
    /// All runs that match a filter
    Runs,
    /// One run each
    Run,
}

impl Rpc {
    fn name(self) -> &'static str {
        match self {
            Self::Runs => "WatchRuns",
            Self::Run => "WatchRun",
        }
    }
}

/// The first failure of a part that runs beside the measurement; never, when there is none.
async fn failed(parts: &mut JoinSet<Result<(), BenchError>>) -> BenchError {
    while let Some(ended) = parts.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error,
            Err(error) => return error.into(),
        }
    }
    pending().await
}
