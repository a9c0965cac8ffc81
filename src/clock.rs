//! The one place that reads the machine's clock and draws random ids and keys. Everything else is given
//! them. A clock that shows a time which cannot be written is held at the nearest one that can.

mod credentials;
mod handshakes;

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::time::{ClockId, clock_gettime};
use uuid::{ContextV7, Timestamp, Uuid};

pub use self::credentials::CredentialClock;
pub use self::handshakes::{HandshakeTime, unix};
use crate::domain::Time;

/// Tells the time to a store that has no clock of its own, and how much time has passed to every store.
pub trait Clock: Send + Sync + 'static {
    /// The time now. It is set now and then, forward and back.
    fn now(&self) -> Time;

    /// The latest time that it may be. What begins at a time has begun by it: another one than the time now only of a clock that
    /// waits before it follows one that was set forward.
    fn latest(&self) -> Time {
        self.now()
    }

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
    fn now(&self) -> Time {
        Time::from_micros(micros())
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

/// The microseconds since 1970, or before it, that the machine's clock shows.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
fn micros() -> i64 {
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    }
}

/// Refuses to begin on a machine whose clock shows a time that cannot be written. Libraries read the clock as well, and
/// take times before 1970 for impossible.
///
/// # Errors
///
/// The time that is shown, and what to do.
pub fn admit() -> Result<(), String> {
    let shown = micros();
    let when = match shown {
        ..0 => "before 1970",
        _ if Time::from_micros(shown).micros() != shown => "after the year 9999",
        _ => return Ok(()),
    };
    Err(format!("the clock of this machine shows a time {when}: set it first; nothing was done"))
}

/// The last id that was drawn, so that the next one sorts after it.
static DRAWN: Mutex<ContextV7> = Mutex::new(ContextV7::new());

/// A fresh id that sorts by the time when it was drawn (UUIDv7).
#[must_use]
pub fn draw_id() -> Uuid {
    let since = Duration::from_micros(u64::try_from(SystemClock.now().micros()).unwrap_or(0));
    Uuid::new_v7(Timestamp::from_unix(&DRAWN, since.as_secs(), since.subsec_nanos()))
}

/// A fresh secret, of the system's cryptographic random numbers.
#[must_use]
pub fn draw_key() -> [u8; 32] {
    let mut key = [0; 32];
    SystemRandom::new().fill(&mut key).expect("no key may be made where the system has no random numbers");
    key
}
