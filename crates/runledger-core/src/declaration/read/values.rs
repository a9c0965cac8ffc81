//! Truth values, numbers, durations and choices.

use super::super::tree::Kind;
use super::ReadDeclaration;
use super::fields::Field;
use crate::domain::limits::TIMEOUT_MS_MAX;
use crate::text::{count, duration, share};

/// The units of a duration.
const UNITS: [&str; 5] = ["d", "h", "m", "s", "ms"];

impl ReadDeclaration {
    /// `true` or `false`, and no other word for it.
    pub(super) fn flag(&mut self, field: &Field<'_>) -> Option<bool> {
        match plain(field) {
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(_) | None => {
                self.mistyped(field, "true or false");
                None
            }
        }
    }

    /// A whole number within bounds, in decimal digits.
    pub(super) fn whole(&mut self, field: &Field<'_>, min: u64, max: u64) -> Option<u64> {
        let has_zeros = |text: &str| text.len() > 1 && text.starts_with('0');
        let number = plain(field).filter(|text| !has_zeros(text)).and_then(|text| count(text).ok());
        let number = number.filter(|number| (min..=max).contains(number));
        if number.is_none() {
            self.mistyped(field, &format!("a whole number from {min} to {max}"));
        }
        number
    }

    /// A number above 0, at most 1.
    pub(super) fn share(&mut self, field: &Field<'_>) -> Option<f64> {
        let share = plain(field).and_then(|text| share(text).ok()).filter(|share| *share > 0.0);
        if share.is_none() {
            self.mistyped(field, "a number above 0, at most 1");
        }
        share
    }

    /// A duration, in milliseconds.
    pub(super) fn duration(&mut self, field: &Field<'_>) -> Option<u64> {
        let duration = match &field.node.kind {
            Kind::Scalar { text, .. } => milliseconds(text),
            Kind::List(_) | Kind::Map(_) | Kind::Refused => None,
        };
        let duration = duration.filter(|duration| (1..=TIMEOUT_MS_MAX).contains(duration));
        if duration.is_none() {
            self.mistyped(field, "a duration such as 500ms, 90s, 15m, 1h30m or 7d, from 1ms to 366d");
        }
        duration
    }

    /// One of some words.
    pub(super) fn choice<T: Copy>(&mut self, field: &Field<'_>, choices: &[(&str, T)]) -> Option<T> {
        let found = match &field.node.kind {
            Kind::Scalar { text, .. } => choices.iter().find(|(word, _)| word == text),
            Kind::List(_) | Kind::Map(_) | Kind::Refused => None,
        };
        if found.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.mistyped(field, &words.join(" or "));
        }
        found.map(|(_, choice)| *choice)
    }
}

/// The text of a scalar that was written without quotes.
pub(super) fn plain<'a>(field: &Field<'a>) -> Option<&'a str> {
    match &field.node.kind {
        Kind::Scalar { text, is_plain: true } => Some(text),
        Kind::Scalar { .. } | Kind::List(_) | Kind::Map(_) | Kind::Refused => None,
    }
}

/// The milliseconds of numbers with units, written without blanks and fractions, as every release reads them.
fn milliseconds(text: &str) -> Option<u64> {
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        if digits == 0 || !UNITS.contains(&&rest[digits..digits + letters]) {
            return None;
        }
        rest = &rest[digits + letters..];
    }
    duration(text).ok().and_then(|duration| u64::try_from(duration.as_millis()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_numbers_with_units_the_larger_ones_first() {
        for (text, wanted) in [
            ("500ms", 500),
            ("90s", 90_000),
            ("15m", 900_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("1m1ms", 60_001),
            ("0s", 0),
        ] {
            assert_eq!(milliseconds(text), Some(wanted), "{text}");
        }
        for wrong in [
            "",
            "15",
            "m",
            "30m1h",
            "1h1h",
            "1.5h",
            "-1s",
            "+1s",
            "1 h",
            "1H",
            "1w",
            "1min",
            "99999999999999999999d",
            "ä",
        ] {
            assert_eq!(milliseconds(wrong), None, "{wrong}");
        }
    }
}
