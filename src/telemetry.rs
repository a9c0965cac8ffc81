//! What a process tells of itself: log lines, metrics and traces.
//!
//! The module knows nothing of runs. Who has something to tell calls [`record`], or registers a gauge that is read when
//! somebody asks.

pub mod gauges;
mod instruments;
mod log;
pub mod meter;
pub mod metrics;
pub mod otlp;
mod process;
pub mod record;
pub mod traces;

pub use self::log::{LogFormat, LogThrottle, filter, log, set_filter};
pub use self::process::observe_process;
pub use runledger_proto::chain;
