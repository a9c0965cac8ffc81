//! Truth values, numbers, durations and choices.

use super::super::tree::Kind;
use super::Read;
use super::fields::Field;
use crate::domain::limits::TIMEOUT_MS_MAX;

/// The units of a duration, the largest first, with their milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Read {
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
        let is_whole = |text: &&str| {
            let has_zeros = text.len() > 1 && text.starts_with('0');
            !text.is_empty() && !has_zeros && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        let number = plain(field).filter(is_whole).and_then(|text| text.parse().ok());
        let number = number.filter(|number| (min..=max).contains(number));
        if number.is_none() {
            self.mistyped(field, &format!("a whole number from {min} to {max}"));
        }
        number
    }

    /// A number above 0, at most 1.
    pub(super) fn share(&mut self, field: &Field<'_>) -> Option<f64> {
        let is_decimal = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
        let share = plain(field).filter(is_decimal).and_then(|text| text.parse().ok());
        let share = share.filter(|share| *share > 0.0 && *share <= 1.0);
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

/// The milliseconds of numbers with units, the larger units first and each one once.
fn milliseconds(mut text: &str) -> Option<u64> {
    let (mut units, mut sum) = (UNITS.iter(), 0_u64);
    if text.is_empty() {
        return None;
    }
    while !text.is_empty() {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = text.split_at(digits);
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, rest) = rest.split_at(letters);
        let (_, each) = units.find(|(name, _)| *name == unit)?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(*each)?)?;
        text = rest;
    }
    Some(sum)
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
