//! The clock by which credentials end: tokens, signed tokens, clients' certificates and revocation lists.
//!
//! A credential says its end as a time, and so the machine's clock decides; but that clock is set now and then, and a
//! credential that has ended must not come back by it. So this clock shows the machine's time at the start of the process
//! and goes on by the time that passes: it never falls, and a machine's clock that is ahead for a moment refuses nobody.
//! A clock that was set forward is followed once it has stood so for an hour, by the least that it was ahead meanwhile:
//! the machine may have begun with a clock that was behind, or its time may have stood still with the machine.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Clock;
use crate::domain::Time;

/// The time for which the machine's clock must have been ahead before it is followed.
const BELIEVED_AFTER: Duration = Duration::from_hours(1);

/// The step forward from which on the log is told of it, in microseconds.
const TOLD_MICROS: i64 = 1_000_000;

/// The time behind what is shown from which on the log is told of it, in microseconds: the leeway that credentials have.
const BEHIND_MICROS: i64 = 30_000_000;

/// See the module.
#[derive(Debug)]
pub struct CredentialClock<C> {
    machine: C,
    lead: Mutex<Lead>,
}

/// By how much a time is ahead of what has passed since some moment, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Lead {
    /// Of the time that is shown. It only grows.
    shown: i64,
    /// Of the machine's clock, where that is ahead of what is shown: since when, and the least of it.
    ahead: Option<(Duration, i64)>,
    /// Whether the log was told that the machine's clock is behind.
    is_told_behind: bool,
}

impl<C: Clock> CredentialClock<C> {
    /// A clock that begins with the machine's now.
    pub fn beside(machine: C) -> Self {
        let shown = lead(machine.now(), machine.elapsed());
        Self { machine, lead: Mutex::new(Lead { shown, ahead: None, is_told_behind: false }) }
    }
}

/// By how much a time is ahead of what has passed, in microseconds.
fn lead(time: Time, elapsed: Duration) -> i64 {
    time.micros().saturating_sub(micros(elapsed))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl Lead {
    /// Says once that credentials end before the machine's time comes to it: where they began by a clock that was ahead, good
    /// ones are refused.
    fn tell_behind(&mut self, machine: i64) {
        let behind = self.shown.saturating_sub(machine);
        if behind >= BEHIND_MICROS && !self.is_told_behind {
            tracing::warn!(
                by_s = behind / 1_000_000,
                "the machine's clock is behind the time by which credentials end: if it is right now, restart this server"
            );
        }
        self.is_told_behind = behind >= BEHIND_MICROS;
    }

    /// Takes the machine's lead into account.
    fn look(&mut self, machine: i64, elapsed: Duration) {
        self.tell_behind(machine);
        if machine <= self.shown {
            self.ahead = None;
            return;
        }
        let (since, least) = self.ahead.unwrap_or((elapsed, machine));
        let least = least.min(machine);
        self.ahead = Some((since, least));
        if elapsed.saturating_sub(since) >= BELIEVED_AFTER {
            let by = least - self.shown;
            (self.shown, self.ahead) = (least, None);
            if by >= TOLD_MICROS {
                tracing::warn!(
                    by_s = by / 1_000_000,
                    "the clock was set forward an hour ago: credentials end by it now"
                );
            }
        }
    }
}

impl<C: Clock> Clock for CredentialClock<C> {
    fn now(&self) -> Time {
        let elapsed = self.machine.elapsed();
        let machine = lead(self.machine.now(), elapsed);
        // No panic leaves a half-made change under the mutex.
        let mut kept = self.lead.lock().unwrap_or_else(PoisonError::into_inner);
        kept.look(machine, elapsed);
        Time::from_micros(kept.shown.saturating_add(micros(elapsed)))
    }

    fn latest(&self) -> Time {
        self.now().max(self.machine.now())
    }

    fn elapsed(&self) -> Duration {
        self.machine.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    /// A machine that has run for so long, and whose clock is off by so much, in seconds.
    #[derive(Default)]
    struct Machine {
        passed: AtomicI64,
        off: AtomicI64,
    }

    impl Clock for &'static Machine {
        fn now(&self) -> Time {
            Time::from_micros((self.passed.load(Ordering::SeqCst) + self.off.load(Ordering::SeqCst)) * 1_000_000)
        }

        fn elapsed(&self) -> Duration {
            Duration::from_secs(self.passed.load(Ordering::SeqCst).unsigned_abs())
        }
    }

    #[test]
    fn the_time_of_credentials_never_falls_and_follows_a_clock_that_stays_ahead() {
        const HOUR: i64 = 3_600;
        let machine: &Machine = Box::leak(Box::default());
        machine.off.store(1_000 * HOUR, Ordering::SeqCst);
        let clock = CredentialClock::beside(machine);
        let after = |passed: i64, off: i64| {
            machine.passed.fetch_add(passed, Ordering::SeqCst);
            machine.off.store(1_000 * HOUR + off, Ordering::SeqCst);
            let shown = clock.now().micros() / 1_000_000 - 1_000 * HOUR;
            let latest = clock.latest().micros() / 1_000_000 - 1_000 * HOUR;
            (shown - machine.passed.load(Ordering::SeqCst), latest - machine.passed.load(Ordering::SeqCst))
        };
        assert_eq!(after(0, -48 * HOUR), (0, 0), "set back before anybody asked: it began with the machine's time");
        assert_eq!(after(0, 0), (0, 0));
        assert_eq!(after(10, 400 * 24 * HOUR), (0, 400 * 24 * HOUR), "ahead for a moment");
        assert_eq!(after(1, 0), (0, 0));
        assert_eq!(after(10, -HOUR), (0, 0), "set back: what has ended stays so");
        assert_eq!(after(2 * HOUR, -HOUR), (0, 0));
        assert_eq!(after(1, 2 * HOUR), (0, 2 * HOUR));
        assert_eq!(after(HOUR / 2, 3 * HOUR), (0, 3 * HOUR));
        assert_eq!(after(HOUR / 2 - 1, 2 * HOUR), (0, 2 * HOUR));
        assert_eq!(after(1, 2 * HOUR), (2 * HOUR, 2 * HOUR), "it stood so for an hour");
        assert_eq!(after(5, 0), (2 * HOUR, 2 * HOUR), "set back again");
    }
}
