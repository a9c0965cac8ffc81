//! What the process says of itself.

use std::error::Error;
use std::io::IsTerminal as _;

use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Crates that log what callers sent (parameters of statements, frames, headers) when they are asked for more than
/// this. No filter makes them say it.
const TALKATIVE: &[&str] = &["tokio_postgres", "h2", "hyper", "hyper_util"];
const TALKATIVE_MAX: Level = Level::INFO;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Logs to stderr from now on. `filter` is a list of `target=level`, such as `runledger=debug,warn`.
///
/// # Errors
///
/// A filter that cannot be read.
pub fn log(format: LogFormat, filter: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    let filter = EnvFilter::try_new(filter)?.and(filter_fn(may_be_said));
    let lines =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()?;
    Ok(())
}

/// A filter that [`log`] can read, as it is.
///
/// # Errors
///
/// What is wrong with it.
pub fn filter(text: &str) -> Result<String, Box<dyn Error + Send + Sync>> {
    EnvFilter::try_new(text)?;
    Ok(text.to_owned())
}

fn may_be_said(line: &Metadata<'_>) -> bool {
    let name = line.target().split("::").next().unwrap_or_default();
    *line.level() <= TALKATIVE_MAX || !TALKATIVE.contains(&name)
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
