//! What a process tells of itself: log lines, metrics and traces.
//!
//! The module knows nothing of runs. Who has something to tell calls [`record`], or registers a gauge that is read when
//! somebody asks.
//!
//! Invariant: what is measured and traced decides nothing. Metrics have no label that a caller chooses, and all their
//! names stand in [`metrics`]. A call that was not sampled by its headers makes no span, and costs that question alone.

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
