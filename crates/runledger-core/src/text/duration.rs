//! Durations.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// The longest that is read: what the wire's own durations hold, ten thousand years.
const SECONDS_MAX: u64 = 315_576_000_000;

/// The form of a duration, as errors say it.
const EXPECTED: &str = "expected a duration such as 500ms, 90s, 1m 30s, 2h or 3d";

/// A duration such as `90s`, `1m 30s`, `1.5h` or `3d`: it has units. A day has 24 hours, a week 7 days. Nothing is finer
/// than a millisecond, as no time of the service is.
///
/// # Errors
///
/// The form that a duration must have.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed = if is_formed(text) { text.parse::<Span>().ok() } else { None };
    let duration = parsed.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let duration = duration.and_then(|duration| Duration::try_from(duration).ok());
    let duration = duration.filter(|duration| duration.as_secs() <= SECONDS_MAX).ok_or(EXPECTED)?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err(format!("{EXPECTED}, and nothing finer than 1ms"));
    }
    Ok(duration)
}

/// Whether a text is numbers with units and nothing else: a sign says nothing of a length, a comma says thousands here and
/// parts there, and blanks at the ends come of something that is missing. ISO 8601 begins with a P.
fn is_formed(text: &str) -> bool {
    // What is finer than a nanosecond would be dropped.
    let digits = |part: &str| part.bytes().take_while(u8::is_ascii_digit).count();
    if text.split('.').skip(1).any(|part| digits(part) > 9) {
        return false;
    }
    if text.starts_with('P') {
        return text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
    }
    let mut rest = text;
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|char: char| char.is_ascii_digit() || char == '.');
        let name = unit.strip_prefix(' ').unwrap_or(unit);
        let after = name.trim_start_matches(|char: char| char.is_ascii_alphabetic());
        if unit.len() == rest.len() || after.len() == name.len() || after == " " {
            return false;
        }
        let (number, word) = (&rest[..rest.len() - unit.len()], &name[..name.len() - after.len()]);
        let is_finest = word == "ms" || word.starts_with("mil");
        if word.starts_with(['u', 'n']) || word.starts_with("mic") || (is_finest && number.contains('.')) {
            return false;
        }
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    !text.is_empty()
}

/// Seconds, or a number with a unit.
///
/// # Errors
///
/// The form that was expected.
pub fn seconds_or_duration(text: &str) -> Result<Duration, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = text.parse().ok().filter(|seconds| *seconds <= SECONDS_MAX);
        return seconds.map(Duration::from_secs).ok_or_else(|| format!("expected {SECONDS_MAX} seconds at most"));
    }
    duration(text).map_err(|expected| format!("{expected}, or seconds"))
}

/// The same, and more than nothing: for a time in which something is to be done.
///
/// # Errors
///
/// The form that was expected.
pub fn limit(text: &str) -> Result<Duration, String> {
    seconds_or_duration(text).and_then(|it| if it.is_zero() { Err("expected more than 0".to_owned()) } else { Ok(it) })
}

/// A duration with units within bounds; `said` are the bounds as a sentence has them.
///
/// # Errors
///
/// The form or the bounds that were expected.
pub fn duration_within(text: &str, range: &RangeInclusive<Duration>, said: &str) -> Result<Duration, String> {
    duration(text).and_then(|it| if range.contains(&it) { Ok(it) } else { Err(format!("expected {said}")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_units_up_to_weeks() {
        for (text, ms) in [
            ("0s", 0),
            ("500ms", 500),
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("1m 30s", 90_000),
            ("1.5h", 5_400_000),
            ("5 s", 5_000),
            ("3d", 259_200_000),
            ("1d 12h", 129_600_000),
            ("2w", 1_209_600_000),
            ("2 hours", 7_200_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0.25s", 250),
            ("1500us", 0),
            ("PT90S", 90_000),
        ] {
            let read = duration(text);
            match ms {
                0 if text != "0s" => assert!(read.is_err(), "{text}: {read:?}"),
                ms => assert_eq!(read, Ok(Duration::from_millis(ms)), "{text}"),
            }
        }
        for text in [
            "",
            " ",
            "5",
            "soon",
            "s",
            "-1",
            "-3d",
            "+3d",
            "3d ago",
            "1month",
            "1y",
            "3 d 4",
            " 5s",
            "5s ",
            "5s,",
            "5s x",
            "5m5h",
            "1h1h",
            "1h 30",
            "1..5h",
            "1.5",
            "5\u{a0}s",
            "\u{0665}s",
            "５s",
            "1e3s",
            "0x5s",
            "99999999999999999999d",
            "10000000y",
            "4000000d",
            "0.0001s",
            "1.0005s",
            "5s\0",
            "5s\n",
            "5;s",
            "five s",
            "1_000s",
            "1,000s",
            "½h",
            "P1M",
            "PT1H junk",
            "1h/2",
            "5s5",
            "h5",
            "0.0000000001s",
            "0.0000001ms",
            "1.5ms",
            "1000us",
            "1000000ns",
            "1.00000000001h",
            "1:30:00",
        ] {
            assert!(duration(text).is_err(), "{text:?}: {:?}", duration(text));
        }
    }

    #[test]
    fn seconds_need_no_unit_where_they_are_taken() {
        assert_eq!(seconds_or_duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(seconds_or_duration("0"), Ok(Duration::ZERO));
        for text in ["", "+90", "-1", "9.5", " 90", "90 ", "\u{0669}", "18446744073709551615", "18446744073709551616"] {
            assert!(seconds_or_duration(text).is_err(), "{text}");
        }
        let said = seconds_or_duration("soon").unwrap_err();
        assert_eq!(said, "expected a duration such as 500ms, 90s, 1m 30s, 2h or 3d, or seconds");
        assert!(limit("0s").is_err() && limit("1ms").is_ok());
    }
}
