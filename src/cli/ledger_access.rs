//! The common part of commands that read a ledger past its servers: opening, patience, progress.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::{Instant, sleep};

use super::bar::Unwaited;
use super::exit::{Stop, say};
use super::output::tell;
use super::table::shown;
use crate::clock::SystemClock;
use crate::config::StoreLocation;
use crate::stdio;
use crate::store::inspect::Inspect;
use crate::store::{self, OpenOptions, StoreError};
use crate::telemetry::chain;

/// Time for which a command under way asks a store again that does not answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Interval between two lines of progress, where stderr is no terminal and has no bar.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Opens the store for a look.
pub(super) async fn open(store: &StoreLocation) -> Result<Arc<dyn Inspect>, Stop> {
    let location = store.location().map_err(Stop::Usage)?;
    let opened = store::open::for_reading(&location, &OpenOptions::default(), Arc::new(SystemClock)).await;
    opened.map_err(|error| Stop::Unreachable(chain(&error)))
}

/// Asks again while the store does not answer, for `wait_max` at most. Said once.
pub(super) async fn patiently<T, F>(wait_max: Duration, mut ask: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let begun = Instant::now();
    let mut backoff = BACKOFF_MIN;
    loop {
        match ask().await {
            Err(error @ StoreError::Unavailable(_)) if begun.elapsed() < wait_max => {
                if backoff == BACKOFF_MIN {
                    say(&format!("{}: waiting for it", chain(&error)));
                }
            }
            answer => return answer,
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// A command's progress, on stderr: a bar on a terminal, else a line every ten seconds.
pub(super) struct Progress {
    bar: ProgressBar,
    what: &'static str,
    lines: bool,
    begun: Instant,
    said_at: Instant,
}

impl Progress {
    /// A bar, or lines.
    pub(super) fn shown(total: u64, what: &'static str) -> Self {
        Self { lines: true, ..Self::bar(total, what) }
    }

    /// A bar, or nothing.
    pub(super) fn bar(total: u64, what: &'static str) -> Self {
        let bar = if io::stderr().is_terminal() {
            ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::term_like(Box::new(Unwaited::default())))
        } else {
            ProgressBar::hidden()
        };
        bar.set_length(total);
        let style = ProgressStyle::with_template("{wide_bar} {percent}% {human_pos} {msg}, {per_sec}, {eta} left");
        bar.set_style(style.expect("the template is sound"));
        bar.set_message(what);
        Self { bar, what, lines: false, begun: Instant::now(), said_at: Instant::now() }
    }

    /// A progress that is not shown.
    pub(super) fn none() -> Self {
        let bar = ProgressBar::hidden();
        Self { bar, what: "", lines: false, begun: Instant::now(), said_at: Instant::now() }
    }

    pub(super) fn at(&mut self, done: u64) {
        self.bar.set_position(done);
        if self.lines && self.bar.is_hidden() && self.said_at.elapsed() >= LINE_EVERY {
            self.said_at = Instant::now();
            let total = self.bar.length().unwrap_or(0).max(done);
            let rate = rate(done, self.begun.elapsed());
            let left = (total - done).checked_div(rate).unwrap_or(0);
            let (done, total, rate) = (HumanCount(done), HumanCount(total), HumanCount(rate));
            say(&format!("{done} of {total} {}, {rate}/s, {left} s left", self.what));
        }
    }

    /// Prints a line to stdout, past the bar. The line may hold text from elsewhere, so its control characters are
    /// escaped.
    pub(super) fn print(&self, line: &str) -> io::Result<()> {
        // While it is put aside, the bar answers nothing.
        let is_shown = !self.bar.is_hidden();
        let drawn = || {
            if is_shown {
                stdio::err().flush();
            }
        };
        drawn();
        self.bar.suspend(|| {
            drawn();
            tell(&format!("{}\n", shown(line)))
        })
    }

    pub(super) fn end(&self) {
        if !self.bar.is_hidden() {
            // A picture that is under way would leave out the one that clears it.
            stdio::err().flush();
        }
        self.bar.finish_and_clear();
    }
}

/// Such as `1 run` and `2,000 runs`.
pub(super) fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{} {noun}s", HumanCount(count)) }
}

/// The number per second.
pub(super) fn rate(count: u64, elapsed: Duration) -> u64 {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    count.saturating_mul(1000) / millis
}
