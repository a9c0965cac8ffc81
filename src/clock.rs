//! The one place that reads the machine's clock and draws random ids and keys. Everything else is given
//! them.

use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

use crate::domain::Time;

/// Tells the time to a store that has no clock of its own, and how much time has passed to every store.
pub trait Clock: Send + Sync + 'static {
    /// The time now. It is set now and then, forward and back.
    fn now(&self) -> Time;

    /// The time that has passed since some moment, also while the machine slept. Nobody sets it. By default it goes with the
    /// time now, of a clock that nobody sets.
    fn elapsed(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.now().micros()).unwrap_or(0))
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> Time {
        Time::from_micros(jiff::Timestamp::now().as_microsecond())
    }

    fn elapsed(&self) -> Duration {
        // The one of Linux's clocks that counts sleep; elsewhere the monotonic clock does.
        #[cfg(target_os = "linux")]
        let clock = ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = ClockId::Monotonic;
        let time = clock_gettime(clock);
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
        seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
    }
}

/// A fresh id that sorts by the time when it was drawn (UUIDv7).
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that draws ids")]
pub fn draw_id() -> Uuid {
    Uuid::now_v7()
}

/// A fresh secret, of the system's cryptographic random numbers.
#[must_use]
pub fn draw_key() -> [u8; 32] {
    let mut key = [0; 32];
    SystemRandom::new().fill(&mut key).expect("no key may be made where the system has no random numbers");
    key
}
