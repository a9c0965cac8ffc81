//! Times: a moment with its offset, a date, or how long ago.

use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::duration;
use crate::domain::Time;

/// The forms of a time, as errors say them.
const EXPECTED: &str = "expected a time, such as 2026-01-31T10:00:00Z, a date, or how long ago, such as 90m or 7d";

/// A moment in RFC 3339, with its offset. It is not finer than a microsecond, which is the finest that is kept.
///
/// # Errors
///
/// What to write instead.
pub fn time(text: &str) -> Result<Time, String> {
    let clock = clock_of(text).ok_or("expected a time such as 2026-01-31T10:00:00Z")?;
    if text.contains('[') {
        return Err(
            "expected a time with its offset and no name of a zone, such as 2026-01-31T10:00:00+01:00".to_owned()
        );
    }
    if !clock.contains(['Z', 'z', '+', '-']) {
        let told = format!("{}T{clock}", &text[..10]);
        if !told.bytes().all(|byte| byte.is_ascii_digit() || b"-:.T".contains(&byte)) {
            return Err("expected a time such as 2026-01-31T10:00:00Z".to_owned());
        }
        let advice = format!("{told}Z is the one in UTC, {told}+01:00 one that is an hour ahead");
        return Err(format!("the time has no offset: {advice}"));
    }
    let (of_day, offset) = clock.split_at(clock.find(['Z', 'z', '+', '-']).unwrap_or(clock.len()));
    let (whole, fraction) = of_day.split_once('.').map_or((of_day, None), |(whole, fraction)| (whole, Some(fraction)));
    let is_fraction = |digits: &str| !digits.is_empty() && whole.len() == "00:00:00".len() && is_digits(digits);
    if !is_time_of_day(whole) || !fraction.is_none_or(is_fraction) || !is_offset(offset) {
        return Err("expected a time such as 2026-01-31T10:00:00Z".to_owned());
    }
    if fraction.unwrap_or_default().bytes().skip(6).any(|digit| digit != b'0') {
        return Err("expected a time that is not finer than a microsecond".to_owned());
    }
    text[..10].parse::<Date>().map_err(|_| "expected a time such as 2026-01-31T10:00:00Z")?;
    kept(text.parse().ok())
}

/// A moment as it is kept, unless it is beyond what is.
fn kept(moment: Option<Timestamp>) -> Result<Time, String> {
    let micros = moment.map(Timestamp::as_microsecond);
    micros.map(Time::from_micros).filter(|time| Some(time.micros()) == micros).ok_or_else(|| {
        let [first, last] = [i64::MIN, i64::MAX].map(Time::from_micros);
        format!("expected a time from {first} to {last}")
    })
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a text is two digits that say at most so much.
fn is_pair(text: &str, max: u8) -> bool {
    text.len() == 2 && is_digits(text) && text.parse::<u8>().is_ok_and(|number| number <= max)
}

/// Whether a text is `22`, `22:05` or `22:05:00`. There is no 60th second, which would be taken for the 59th.
fn is_time_of_day(text: &str) -> bool {
    let mut parts = text.split(':');
    parts.next().is_some_and(|hour| is_pair(hour, 23))
        && parts.clone().count() <= 2
        && parts.all(|minute_or_second| is_pair(minute_or_second, 59))
}

/// Whether a text is `Z`, or an offset of a day at most: `+01:00`, `+0100` or `+01`.
fn is_offset(text: &str) -> bool {
    if matches!(text, "Z" | "z") {
        return true;
    }
    let Some(ahead) = text.strip_prefix(['+', '-']) else { return false };
    match ahead.len() {
        2 => is_pair(ahead, 23),
        4 | 5 => ahead.get(..2).zip(ahead.get(2..)).is_some_and(|(hour, rest)| {
            is_pair(hour, 23) && is_pair(if ahead.len() == 5 { rest.strip_prefix(':').unwrap_or("") } else { rest }, 59)
        }),
        _ => false,
    }
}

/// The part of a text behind a date of ten characters and what parts it from a time of day.
fn clock_of(text: &str) -> Option<&str> {
    let date = text.get(..10).filter(|date| is_date(date))?;
    text[date.len()..].strip_prefix(['T', 't', ' '])
}

/// Whether a text has the form `2026-01-31`.
fn is_date(text: &str) -> bool {
    let form = |(at, byte): (usize, u8)| if matches!(at, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() };
    text.len() == 10 && text.bytes().enumerate().all(form)
}

/// A time, or how long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// A moment.
    At(Time),
    /// In microseconds.
    Ago(i64),
}

impl When {
    /// The moment that is meant, at another one.
    #[must_use]
    pub fn from(self, now: Time) -> Time {
        match self {
            Self::At(time) => time,
            Self::Ago(micros) => Time::from_micros(now.micros().saturating_sub(micros)),
        }
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if is_date(text) {
            let date: Date = text.parse().map_err(|_| EXPECTED)?;
            return kept(date.to_zoned(TimeZone::UTC).ok().map(|midnight| midnight.timestamp())).map(Self::At);
        }
        if clock_of(text).is_some() {
            return time(text).map(Self::At);
        }
        let ago = duration(text).map_err(|_| EXPECTED)?;
        i64::try_from(ago.as_micros()).map(Self::Ago).map_err(|_| EXPECTED.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_a_time_a_date_or_how_long_ago() {
        let noon = Time::from_micros(1_764_072_000_000_000);
        let at = |text: &str| text.parse::<When>().unwrap().from(noon).to_string();
        assert_eq!(at("2025-11-24T16:00:00.1234Z"), "2025-11-24T16:00:00.123400Z");
        assert_eq!(at("2025-11-24T16:00:00.123456000z"), "2025-11-24T16:00:00.123456Z");
        assert_eq!(at("2025-11-24T16:00:00+02:00"), "2025-11-24T14:00:00.000000Z");
        assert_eq!(at("2025-11-24 16:00:00-02:30"), "2025-11-24T18:30:00.000000Z");
        assert_eq!(at("2025-11-24T16:00Z"), "2025-11-24T16:00:00.000000Z");
        assert_eq!(at("2025-11-24"), "2025-11-24T00:00:00.000000Z");
        assert_eq!(at("90m"), "2025-11-25T10:30:00.000000Z");
        assert_eq!(at("1d 12h"), "2025-11-24T00:00:00.000000Z");
        assert_eq!(at("2w"), "2025-11-11T12:00:00.000000Z");
    }

    #[test]
    fn a_time_that_cannot_be_kept_is_refused_with_the_first_and_the_last_one() {
        let range = "expected a time from 0001-01-01T00:00:00.000000Z to 9999-12-30T21:59:59.999999Z";
        for text in
            ["9999-12-31T23:59:59Z", "9999-12-31", "9999-12-30T22:00:00Z", "0000-12-31", "0001-01-01T00:00:00+01:00"]
        {
            assert_eq!(text.parse::<When>(), Err(range.to_owned()), "{text}");
        }
        for text in ["9999-12-30T21:59:59.999999Z", "0001-01-01"] {
            assert!(text.parse::<When>().is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_not_wholly_understood_is_no_time() {
        for text in [
            "",
            "yesterday",
            "12",
            "-5m",
            "2025-13-01",
            "3 months",
            "2026-11-27T22:05:00",
            "2026-11-27 22:05",
            "2026-11-27T23:05:00[Europe/Berlin]",
            "2026-11-27T23:05:00+01:00[Europe/Berlin]",
            "2026-11-27T23:05:00Z[Europe/Berlin]",
            "2026-11-27T23:05:00+05:00[u-ca=hebrew]",
            "2026-11-27T23:05:00Z junk",
            "2026-11-27T23:05:00ZZ",
            "2026-11-27T23:05:60Z",
            "2026-11-27T230560Z",
            "2026-11-27T230500Z",
            "2026-11-27T2305Z",
            "2026-11-27T23:0500Z",
            "2026-11-27T23:05:00:00Z",
            "2026-11-27T23:05.5Z",
            "2026-11-27T23.5Z",
            "2026-11-27T23:60Z",
            "2026-11-27T23:05:00+25:59:59",
            "2026-11-27T23:05:00+25:00",
            "2026-11-27T23:05:00+24:00",
            "2026-11-27T23:05:00+01:60",
            "2026-11-27T23:05:00+01:00:00",
            "2026-11-27T23:05:00+01:00:00.5",
            "2026-11-27T23:05:00+01:00.5",
            "2026-11-27T23:05:00+1",
            "2026-11-27T23:05:00+1:00",
            "2026-11-27T23:05:00+010",
            "2026-11-27T23:05:00+",
            "2026-11-27T23:05:00++1:00",
            "2026-11-27T23:05:00+01-00",
            "2026-11-27T24:00:00Z",
            "2026-11-27T25:00:00Z",
            "2026-11-31T00:00:00Z",
            "2026-02-29",
            "2026-11-27T23:05:00.1234567Z",
            "2026-11-27T23:05:00.Z",
            "2026-11-27T23:05:00 Z",
            "2026-11-27T",
            "2026-11-27Z",
            "2026-11-27+01:00",
            " 2026-11-27",
            "2026-11-27 ",
            "2026-11",
            "20261127",
            "20261127T220500Z",
            "2026-W48-5",
            "2026-331",
            "27.11.2026",
            "11/27/2026",
            "26-11-27",
            "+002026-11-27T22:05:00Z",
            "-000001-01-01",
            "1764072000",
            "２０２６-11-27",
            "2026-11-27T22:05:00\u{2212}01:00",
            "now",
        ] {
            assert!(text.parse::<When>().is_err(), "{text}: {:?}", text.parse::<When>());
        }
        let said = "2026-11-27 22:05".parse::<When>().unwrap_err();
        let wanted = "the time has no offset: 2026-11-27T22:05Z is the one in UTC, 2026-11-27T22:05+01:00 one that is \
                      an hour ahead";
        assert_eq!(said, wanted);
    }
}
