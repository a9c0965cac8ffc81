//! What a process tells of itself: log lines, and metrics.
//!
//! The module knows nothing of runs. Who has something to tell calls [`record`], or registers a gauge that is read when
//! somebody asks.

pub mod gauges;
mod instruments;
mod log;
pub mod meter;
pub mod metrics;
mod process;
pub mod record;

pub use self::log::{LogFormat, LogThrottle, filter, log};
pub use self::process::observe_process;
pub use runledger_proto::chain;
