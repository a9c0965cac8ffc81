//! The part of the log to export: from times to positions. In a shard times never fall, so that a few reads find a
//! time's position.

use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, SpanRelativeTo, Timestamp};

use crate::domain::{Position, Positions, Shard, Time};
use crate::store::inspect::Inspect;
use crate::store::{LoggedEvent, PAGE_BYTES_MAX, StoreError};

/// A time, or how long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    At(Time),
    /// In microseconds.
    Ago(i64),
}

impl When {
    pub(super) fn from(self, now: Time) -> Time {
        match self {
            Self::At(time) => time,
            Self::Ago(micros) => Time::from_micros(now.micros().saturating_sub(micros)),
        }
    }
}

impl FromStr for When {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected a time, such as 2026-01-31T10:00:00Z, a date, or how long ago, such as 90m or 7d";
        if let Ok(time) = text.parse::<Timestamp>() {
            return Ok(Self::At(Time::from_micros(time.as_microsecond())));
        }
        if let Ok(date) = text.parse::<Date>() {
            let midnight = date.to_zoned(TimeZone::UTC).map_err(|_| expected)?;
            return Ok(Self::At(Time::from_micros(midnight.timestamp().as_microsecond())));
        }
        let span: Span = text.parse().map_err(|_| expected)?;
        let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| expected)?;
        let micros = i64::try_from(duration.as_micros()).map_err(|_| expected)?;
        if micros < 0 { Err(expected) } else { Ok(Self::Ago(micros)) }
    }
}

/// A part of the log, by each shard's positions.
#[derive(Debug)]
pub(super) struct Range {
    /// The last position of each shard before the range.
    pub(super) after: Positions,
    /// The last position of each shard in the range.
    pub(super) end: Positions,
    /// The log's ends when the range was made.
    pub(super) ends: Positions,
}

impl Range {
    pub(super) fn has(&self, logged: &LoggedEvent) -> bool {
        logged.position <= self.end.of(logged.shard)
    }

    /// The number of events after these positions, to the range's end.
    pub(super) fn left(&self, after: &Positions) -> u64 {
        self.end.iter().zip(after.iter()).map(|(end, after)| end.saturating_sub(*after)).sum()
    }
}

/// The store's clock.
pub(super) async fn now(inspect: &dyn Inspect) -> Result<Time, StoreError> {
    let ends = inspect.ends().await?;
    Ok(inspect.changes(&ends, 1, PAGE_BYTES_MAX).await?.as_of)
}

/// The next time after one.
pub(super) fn just_after(time: Time) -> Time {
    Time::from_micros(time.micros().saturating_add(1))
}

/// Each shard's last position whose event happened before a time, up to its end.
pub(super) async fn before(inspect: &dyn Inspect, ends: &Positions, time: Time) -> Result<Positions, StoreError> {
    let mut places = Vec::with_capacity(ends.len());
    for (shard, end) in (0..).zip(ends.iter()) {
        places.push(before_in(inspect, Shard(shard), *end, time).await?);
    }
    Ok(places.into())
}

/// A shard's last position whose event happened before a time, up to its end.
pub(super) async fn before_in(
    inspect: &dyn Inspect,
    shard: Shard,
    end: Position,
    time: Time,
) -> Result<Position, StoreError> {
    // Everything up to `low` is earlier, everything above `high` is not.
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match inspect.time_of(shard, middle).await? {
            Some(at) if at < time => low = middle,
            // Nothing that is there from here on is earlier.
            Some(_) | None => high = middle - 1,
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_a_time_a_date_or_how_long_ago() {
        let noon = Time::from_micros(1_764_072_000_000_000);
        let at = |text: &str| text.parse::<When>().unwrap().from(noon).to_string();
        assert_eq!(at("2025-11-24T16:00:00.1234Z"), "2025-11-24T16:00:00.123400Z");
        assert_eq!(at("2025-11-24T16:00:00+02:00"), "2025-11-24T14:00:00.000000Z");
        assert_eq!(at("2025-11-24"), "2025-11-24T00:00:00.000000Z");
        assert_eq!(at("90m"), "2025-11-25T10:30:00.000000Z");
        assert_eq!(at("1d 12h"), "2025-11-24T00:00:00.000000Z");
        assert_eq!(at("2w"), "2025-11-11T12:00:00.000000Z");
        for text in ["", "yesterday", "12", "-5m", "2025-13-01", "3 months"] {
            assert!(text.parse::<When>().is_err(), "{text}");
        }
    }
}
