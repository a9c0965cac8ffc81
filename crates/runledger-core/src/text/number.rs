//! Numbers, in decimal digits.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A whole number from 0 on.
///
/// # Errors
///
/// The form that was expected.
pub fn count<N: FromStr>(text: &str) -> Result<N, String> {
    let is_whole = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_whole {
        return Err("expected a whole number".to_owned());
    }
    text.parse().map_err(|_| "expected a smaller number".to_owned())
}

/// A reader of whole numbers within bounds, which may be negative.
pub fn within<N>(range: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync
where
    N: FromStr + PartialOrd + Display + Clone + Send + Sync,
{
    move |text| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("expected a whole number".to_owned());
        }
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("{text} is not in {}..={}", range.start(), range.end()))
    }
}

/// A part of the whole, from 0 to 1.
///
/// # Errors
///
/// The form that was expected.
pub fn share(text: &str) -> Result<f64, &'static str> {
    let expected = "expected a number from 0 to 1";
    let is_plain = text.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && text.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let share: f64 = if is_plain { text.parse().map_err(|_| expected)? } else { return Err(expected) };
    // A number that is too small to be told from nothing is not nothing.
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let is_lost = share == 0.0 && mantissa.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    if (0.0..=1.0).contains(&share) && !is_lost { Ok(share) } else { Err(expected) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_its_digits_and_nothing_else() {
        assert_eq!((count::<u64>("18446744073709551615"), count::<u16>("007")), (Ok(u64::MAX), Ok(7)));
        for text in ["", "+5", "-5", " 5", "5 ", "5.0", "5e3", "1_000", "1,000", "0x10", "\u{0665}", "５", "five", "5k"]
        {
            assert!(count::<u64>(text).is_err(), "{text}");
        }
        assert!(count::<u16>("65536").is_err());
        let of = within(-100..=100_i32);
        assert_eq!((of("-100"), of("0"), of("100")), (Ok(-100), Ok(0), Ok(100)));
        assert_eq!(of("101").unwrap_err(), "101 is not in -100..=100");
        for text in ["", "-", "--5", "+5", "5-", "- 5", "99999999999", "\u{2212}5"] {
            assert!(of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_is_a_number_from_0_to_1() {
        for (text, wanted) in [("0", 0.0), ("1", 1.0), ("0.5", 0.5), (".5", 0.5), ("1e-3", 0.001), ("0.0", 0.0)] {
            assert_eq!(share(text), Ok(wanted), "{text}");
        }
        for text in ["", "1.1", "-0.5", "+0.5", "50%", "inf", "nan", "0,5", "1/2", "1e-400", "0.5 ", "0x1", "1e400"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
