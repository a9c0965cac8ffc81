//! The time of handshakes, held at 1970: the library's own reading of the machine's clock panics where that shows an earlier
//! one.

use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// The machine's time.
#[derive(Debug)]
pub(super) struct HandshakeTime;

impl TimeProvider for HandshakeTime {
    #[expect(clippy::disallowed_methods, reason = "this crate is given no clock")]
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
    }
}
