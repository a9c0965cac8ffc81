//! The progress of a measurement, on a terminal. Nothing is written where stderr is no terminal.
//!
//! Invariant: no call that is measured waits for the terminal. So this package writes nothing by itself: the program that
//! measures has a way that waits for no reader.

use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The picture is not drawn more often.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// The way to the terminal.
static DRAW: OnceLock<fn(&str)> = OnceLock::new();

/// Pictures of the progress go this way, which must not wait. Without one there are none.
pub fn draw_by(draw: fn(&str)) {
    let _first = DRAW.set(draw);
}

fn draw(picture: &str) {
    if let Some(draw) = DRAW.get() {
        draw(&format!("\r\x1b[K{picture}"));
    }
}

/// A line that is written over as the work goes on.
#[derive(Debug)]
pub(super) struct Progress {
    shown: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: &'static str,
    done: u64,
    total: u64,
    drawn: Option<Instant>,
}

impl Progress {
    pub(super) fn new() -> Self {
        let state = State { phase: "", done: 0, total: 0, drawn: None };
        Self { shown: io::stderr().is_terminal(), state: Mutex::new(state) }
    }

    /// Begins a phase of so many steps; 0 when nobody counts them.
    pub(super) fn phase(&self, phase: &'static str, total: u64) {
        self.draw(|state| *state = State { phase, done: 0, total, drawn: None });
    }

    /// Says how far it is in words of its own.
    pub(super) fn say(&self, words: &str) {
        if self.shown {
            draw(words);
        }
    }

    /// Counts one step more.
    pub(super) fn step(&self) {
        self.draw(|state| state.done += 1);
    }

    /// Sets the number of steps that are done.
    pub(super) fn show(&self, done: u64) {
        self.draw(|state| state.done = done);
    }

    fn draw(&self, change: impl FnOnce(&mut State)) {
        if !self.shown {
            return;
        }
        let mut state = self.state.lock();
        change(&mut state);
        let due = state.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_INTERVAL) || state.done == state.total;
        if due {
            let State { phase, done, total, .. } = &*state;
            match total {
                0 => draw(phase),
                _ => draw(&format!("{phase}: {done} of {total}")),
            }
            state.drawn = Some(Instant::now());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            draw("");
        }
    }
}
