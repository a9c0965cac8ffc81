//! What the process says of itself.

use std::error::Error;
use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Logs to stderr from now on. `filter` is a list of `target=level`, such as `runledger=debug,warn`.
///
/// # Errors
///
/// A filter that cannot be read.
pub fn log(format: LogFormat, filter: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    let filter = EnvFilter::try_new(filter)?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let logs = logs.with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => logs.try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    }
}

/// An error with all its causes, on one line.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
