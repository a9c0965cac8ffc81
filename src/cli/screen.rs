//! The terminal of a live table: taken over whole, drawn again in place, and given back however the command ends.

use std::io;
use std::pin::pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use super::exit::Stop;
use super::live::Board;
use super::output::terminal;
use crate::clock::{Clock as _, SystemClock};
use crate::stdio;
use runledger_client::Failure;
use runledger_client::News;
use runledger_proto::v1::WatchRunsResponse;

/// The shortest interval between two drawings, and the number of intervals after which the screen is drawn although
/// nothing happened: ages go on.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);
const TICKS_IDLE: u32 = 10;

/// The other screen, no cursor, and lines that are cut instead of wrapped; and all of it back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// A terminal that knows these sequences draws the text between them at once.
const BEGIN: &str = "\x1b[?2026h\x1b[H";
const END: &str = "\x1b[?2026l";
/// Clears a line before it is written: behind one that is full, the cursor stands on its last cell.
const CLEAR: &str = "\x1b[2K";

/// Shows a watch until it ends, or a signal ends it.
pub(super) async fn show(
    news: impl Stream<Item = Result<News<WatchRunsResponse>, Failure>>,
    mut board: Board,
) -> Result<(), Stop> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut ticks = interval(DRAW_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut screen = Screen::enter();
    let mut news = pin!(news);
    let mut idle = TICKS_IDLE;
    loop {
        tokio::select! {
            _ = interrupted.recv() => return Err(Stop::Signal(2)),
            _ = terminated.recv() => return Err(Stop::Signal(15)),
            _ = hung_up.recv() => return Err(Stop::Signal(1)),
            _ = ticks.tick() => {
                idle += 1;
                if idle > TICKS_IDLE {
                    screen.draw(&board)?;
                    idle = 0;
                }
            }
            next = news.next() => match next {
                Some(Ok(next)) => {
                    board.take(next, SystemClock.now());
                    idle = TICKS_IDLE;
                }
                Some(Err(failure)) => {
                    screen.draw(&board)?;
                    return Err(failure.into());
                }
                None => return Ok(()),
            }
        }
    }
}

/// The terminal while it is taken. The last picture stays behind on the screen that comes back.
struct Screen {
    picture: Vec<String>,
}

impl Screen {
    fn enter() -> Self {
        stdio::out().say(ENTER);
        Self { picture: Vec::new() }
    }

    fn draw(&mut self, board: &Board) -> io::Result<()> {
        let Some(size) = terminal() else { return Err(io::ErrorKind::BrokenPipe.into()) };
        // A terminal that was stopped shows the picture of the time when it goes on, and none of those in between.
        if !stdio::out().is_written() {
            return Ok(());
        }
        self.picture = board.picture(size, SystemClock.now());
        let mut lines = self.picture.clone();
        lines.resize(size.1.max(lines.len()), String::new());
        stdio::out().say(&format!("{BEGIN}{CLEAR}{}{END}", lines.join(&format!("\r\n{CLEAR}"))));
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        stdio::out().say(&format!("{LEAVE}{}\r\n", self.picture.join("\r\n")));
        // What is said of the end comes after the screen was given back.
        stdio::out().flush();
    }
}
