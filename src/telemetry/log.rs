//! The log lines of the process.

use std::error::Error;
use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::clock::{Clock as _, SystemClock};
use crate::stdio;

/// Crates that would log callers' data (parameters of statements, frames, headers) above these levels. No filter lets
/// them. The crates of HTTP/2 warn of each frame that a peer should not have sent: a flood of frames would become a
/// flood of lines, so the listener warns in their place.
const TALKATIVE: &[(&str, Level)] =
    &[("tokio_postgres", Level::INFO), ("h2", Level::ERROR), ("hyper", Level::ERROR), ("hyper_util", Level::ERROR)];

/// The filter of the process's log, once there is one.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// The shortest interval between two lines of a kind that others could make this process log.
const SELDOM: Duration = Duration::from_secs(10);

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Logs to stderr from now on, in colours on a terminal unless it `is_plain`. `filter` is a list of `target=level`, such as `runledger=debug,warn`.
///
/// # Errors
///
/// The filter cannot be read.
pub fn log(format: LogFormat, filter: &str, is_plain: bool) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (filter, handle) = reload::Layer::new(EnvFilter::try_new(filter)?);
    let _already = FILTER.set(handle);
    let filter = filter.and(filter_fn(may_be_said));
    let stderr = stdio::err();
    let is_coloured = !is_plain && io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(|| stdio::err().writer()).with_ansi(is_coloured);
    let lines = match format {
        LogFormat::Text => {
            stderr.tells_losses_by(lost_as_text);
            lines.boxed()
        }
        LogFormat::Json => {
            stderr.tells_losses_by(lost_as_json);
            lines.json().flatten_event(true).boxed()
        }
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()?;
    Ok(())
}

/// Logs other lines from now on.
///
/// # Errors
///
/// The filter cannot be read.
pub fn set_filter(filter: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    let filter = EnvFilter::try_new(filter)?;
    FILTER.get().map_or(Ok(()), |handle| handle.reload(filter)).map_err(Into::into)
}

/// A filter that [`log`] can read, as it is.
///
/// # Errors
///
/// The filter cannot be read.
pub fn filter(text: &str) -> Result<String, Box<dyn Error + Send + Sync>> {
    EnvFilter::try_new(text)?;
    Ok(text.to_owned())
}

/// The sentence of a line in whose place others were lost. It has the form of the log, and no filter keeps it back.
const LOST: &str = "lines of the log were lost here: nobody took them";

fn lost_as_text(lines: u64) -> String {
    format!("{}  WARN {}: {LOST} lines={lines}\n", SystemClock.now(), module_path!())
}

fn lost_as_json(lines: u64) -> String {
    let at = SystemClock.now();
    let target = module_path!();
    let said = format!("\"level\":\"WARN\",\"message\":\"{LOST}\",\"lines\":{lines},\"target\":\"{target}\"");
    format!("{{\"timestamp\":\"{at}\",{said}}}\n")
}

fn may_be_said(line: &Metadata<'_>) -> bool {
    let name = line.target().split("::").next().unwrap_or_default();
    TALKATIVE.iter().all(|(talkative, max)| name != *talkative || line.level() <= max)
}

/// Throttles a log line: it is logged now and then, however often there is cause.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<(Option<Instant>, u64)>);

impl LogThrottle {
    /// Takes note of a cause. Some when the line is to be logged, with the number of lines left out since the last one.
    pub fn is_due(&self) -> Option<u64> {
        let mut state = self.0.lock();
        let (said_at, unsaid) = &mut *state;
        if said_at.is_some_and(|at| at.elapsed() < SELDOM) {
            *unsaid += 1;
            return None;
        }
        *said_at = Some(Instant::now());
        Some(std::mem::take(unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_were_lost_are_told_in_the_form_of_the_log() {
        let told: serde_json::Value = serde_json::from_str(&lost_as_json(7)).unwrap();
        assert_eq!((&told["lines"], &told["level"]), (&7.into(), &"WARN".into()));
        assert!(lost_as_text(7).ends_with("nobody took them lines=7\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_is_said_seldom_says_how_often_it_was_not() {
        let line = LogThrottle::default();
        assert_eq!(line.is_due(), Some(0));
        assert_eq!((line.is_due(), line.is_due()), (None, None));
        tokio::time::advance(SELDOM).await;
        assert_eq!((line.is_due(), line.is_due()), (Some(2), None));
    }
}
