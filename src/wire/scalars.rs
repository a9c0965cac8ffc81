//! Values of one field as the wire shows them.

use prost_types::{Duration, Timestamp};

use crate::domain::Time;

/// A time as the wire shows it: whole microseconds.
#[must_use]
pub fn timestamp(time: Time) -> Timestamp {
    const SECOND: i64 = 1_000_000;
    Timestamp { seconds: time.micros().div_euclid(SECOND), nanos: nanos(time.micros().rem_euclid(SECOND)) }
}

pub(super) fn duration(ms: u64) -> Duration {
    let seconds = i64::try_from(ms / 1_000).unwrap_or(i64::MAX);
    Duration { seconds, nanos: nanos(i64::try_from(ms % 1_000).expect("less than a thousand") * 1_000) }
}

/// A span of time as the wire shows it, back in time where it is negative.
#[must_use]
pub fn span(micros: i64) -> Duration {
    const SECOND: i64 = 1_000_000;
    Duration { seconds: micros / SECOND, nanos: nanos(micros % SECOND) }
}

fn nanos(micros: i64) -> i32 {
    i32::try_from(micros * 1_000).expect("less than a second of nanoseconds")
}

/// A text, empty where there is none.
pub(super) fn text(text: Option<&String>) -> String {
    text.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_the_epoch_has_positive_nanos() {
        assert_eq!(timestamp(Time::from_micros(-1)), Timestamp { seconds: -1, nanos: 999_999_000 });
        assert_eq!(timestamp(Time::from_micros(1_000_001)), Timestamp { seconds: 1, nanos: 1_000 });
    }
}
