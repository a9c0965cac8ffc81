//! The signals that ask a process to end, each told once.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Time within which the same signal counts once: `timeout` sends a signal to its program, and again to the program's
/// group.
const ECHO_WAIT_MAX: Duration = Duration::from_millis(100);

/// Lets a write beyond the limit of a file's size (`ulimit -f`) fail as one to a full disk does: by itself, the signal for it
/// would end the process without a word. Programs that are started have the signal as it was.
///
/// # Errors
///
/// The system does not tell of it.
pub fn outlive_limits() -> io::Result<()> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
}

/// Signals that a process has caught.
#[derive(Debug)]
pub struct Signals {
    caught: Vec<(u8, Signal)>,
    /// The signal that was told last.
    last: Option<(u8, Instant)>,
}

impl Signals {
    /// Catches signals. From here on, none of them ends the process by itself.
    ///
    /// # Errors
    ///
    /// The system does not tell of them.
    pub fn caught(kinds: &[SignalKind]) -> io::Result<Self> {
        let number = |kind: &SignalKind| u8::try_from(kind.as_raw_value()).expect("signals have small numbers");
        let caught = kinds.iter().map(|kind| Ok((number(kind), signal(*kind)?)));
        Ok(Self { caught: caught.collect::<io::Result<_>>()?, last: None })
    }

    /// The next signal, by its number. Safe to cancel and to call again.
    pub async fn next(&mut self) -> u8 {
        loop {
            let received = poll_fn(|context| {
                let mut all = self.caught.iter_mut();
                let received = all.find_map(|(number, signal)| signal.poll_recv(context).is_ready().then_some(*number));
                received.map_or(Poll::Pending, Poll::Ready)
            });
            let number = received.await;
            if !self.is_echo(number, Instant::now()) {
                return number;
            }
        }
    }

    fn is_echo(&mut self, number: u8, now: Instant) -> bool {
        let is_echo =
            self.last.is_some_and(|(last, at)| last == number && now.saturating_duration_since(at) < ECHO_WAIT_MAX);
        if !is_echo {
            self.last = Some((number, now));
        }
        is_echo
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_signal_within_a_moment_is_one() {
        let begun = Instant::now();
        let mut signals = Signals { caught: Vec::new(), last: None };
        let mut is_echo = |number, ms| signals.is_echo(number, begun + Duration::from_millis(ms));
        assert!(!is_echo(15, 0));
        assert!(is_echo(15, 1), "of one `timeout`");
        assert!(is_echo(15, 99));
        assert!(!is_echo(15, 100), "a second one is meant");
        assert!(!is_echo(2, 101), "another one is meant too");
    }
}
