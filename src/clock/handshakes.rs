//! The time as TLS takes it. The library's own reading of the machine's clock panics where that shows a time before 1970.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

use super::Clock;
use crate::domain::Time;

/// The time of handshakes, by a clock.
pub struct HandshakeTime(pub Arc<dyn Clock>);

/// A time as TLS takes it, held at 1970.
#[must_use]
pub fn unix(time: Time) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_micros(u64::try_from(time.micros()).unwrap_or(0)))
}

impl TimeProvider for HandshakeTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix(self.0.now()))
    }
}

impl fmt::Debug for HandshakeTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandshakeTime")
    }
}
