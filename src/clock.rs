//! The one place that reads the machine's clock and draws random ids and keys. Everything else is given
//! them.

use ring::rand::{SecureRandom as _, SystemRandom};
use uuid::Uuid;

use crate::domain::Time;

/// Tells the time to a store that has no clock of its own.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Time;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> Time {
        Time::from_micros(jiff::Timestamp::now().as_microsecond())
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
