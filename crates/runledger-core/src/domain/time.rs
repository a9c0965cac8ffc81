//! Points in time as the ledger keeps them: UTC, microseconds.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Microseconds since 1970-01-01T00:00:00Z. Shown and serialized as RFC 3339 with six digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    micros: i64,
}

impl Time {
    /// The range that RFC 3339 can show: the years 1 to 9999.
    const MICROS: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_207_199_999_999;

    /// A time from microseconds since the epoch, held within the years 1 to 9999.
    #[must_use]
    pub fn from_micros(micros: i64) -> Self {
        Self { micros: micros.clamp(*Self::MICROS.start(), *Self::MICROS.end()) }
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub fn micros(self) -> i64 {
        self.micros
    }

    /// The time that comes so many milliseconds later.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        self.plus_micros(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000))
    }

    /// The microseconds from an earlier time to this one.
    #[must_use]
    pub fn since(self, earlier: Self) -> i64 {
        self.micros.saturating_sub(earlier.micros)
    }

    /// The time that came so many milliseconds before.
    #[must_use]
    pub fn minus_ms(self, ms: u64) -> Self {
        self.plus_micros(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(-1_000))
    }

    /// The time that comes so many microseconds later.
    #[must_use]
    pub fn plus_micros(self, micros: i64) -> Self {
        Self::from_micros(self.micros.saturating_add(micros))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let timestamp = jiff::Timestamp::from_microsecond(self.micros).expect("Time is held within jiff's range");
        write!(f, "{timestamp:.6}")
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let timestamp: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        Ok(Self::from_micros(timestamp.as_microsecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn a_time_is_shown_with_six_digits_and_read_back() {
        for (micros, text) in [
            (0, "\"1970-01-01T00:00:00.000000Z\""),
            (1_764_000_000_123_400, "\"2025-11-24T16:00:00.123400Z\""),
            (i64::MAX, "\"9999-12-30T21:59:59.999999Z\""),
            (i64::MIN, "\"0001-01-01T00:00:00.000000Z\""),
        ] {
            let time = Time::from_micros(micros);
            assert_eq!(serde_json::to_string(&time).unwrap(), text);
            assert_eq!(serde_json::from_str::<Time>(text).unwrap(), time);
        }
    }
}
