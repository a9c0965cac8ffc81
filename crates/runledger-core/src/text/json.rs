//! JSON objects that the authority is given: each value as it was written, or none.
//!
//! Whatever reads such an object later has numbers of 53 bits and one value for a key. So what would be lost on the way is
//! refused here, with its place. A whole number may be an id: it is taken where it stays the same number, and above 2^53 only
//! where an exponent or a point shows that none is meant by its digits. A fraction is a measure: below 2^53 it is taken as the
//! nearest double, as whatever reads JSON takes it, however many digits a program writes of it.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::without_mark;

/// The largest whole number up to which each one is a double of its own: 2^53.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Digits of a double at most, when it is written wholly.
const DIGITS_MAX: usize = 768;

/// Characters of a number that an error shows.
const SHOWN_MAX: usize = 40;

/// The object that a text is. A mark at its beginning is passed over.
///
/// # Errors
///
/// The reason why it is no object, or the place of what cannot be kept as it is.
pub fn object(text: &str) -> Result<Map<String, Value>, String> {
    let text = without_mark(text);
    // The parser's words for what is no object speak of its own types.
    match text.trim_start().chars().next() {
        None => return Err("it is empty: an object is expected, such as {\"step\": 1}".to_owned()),
        Some('{') => {}
        Some('[') => return Err("it is a list: an object is expected, such as {\"items\": [1]}".to_owned()),
        Some(_) => return Err("it is no object, such as {\"step\": 1}".to_owned()),
    }
    let object = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    kept(text).map(|()| object)
}

/// A list or an object that is not at its end.
enum Open {
    List(usize),
    Object { keys: HashSet<String>, key: Option<String> },
}

/// Walks over a text that is JSON, and looks at each number and key.
fn kept(text: &str) -> Result<(), String> {
    let (mut open, mut offset): (Vec<Open>, usize) = (Vec::new(), 0);
    while let Some(&byte) = text.as_bytes().get(offset) {
        let rest = &text[offset..];
        let length = match byte {
            b'"' => string_length(rest),
            b'{' | b'[' | b'}' | b']' | b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => 1,
            _ => rest.find([' ', '\t', '\r', '\n', ',', ']', '}']).unwrap_or(rest.len()),
        };
        let token = &rest[..length];
        match (byte, open.last_mut()) {
            (b'{', _) => open.push(Open::Object { keys: HashSet::new(), key: None }),
            (b'[', _) => open.push(Open::List(0)),
            (b'}' | b']', _) => drop(open.pop()),
            (b',', Some(Open::List(index))) => *index += 1,
            (b',', Some(Open::Object { key, .. })) => *key = None,
            (b'"', Some(Open::Object { keys, key: key @ None })) => {
                let name: String = serde_json::from_str(token).map_err(|error| error.to_string())?;
                let is_new = keys.insert(name.clone());
                *key = Some(name);
                if !is_new {
                    return Err(format!("{} is given twice", place(&open)));
                }
            }
            (b'-' | b'0'..=b'9', _) => {
                let shown = token.get(..SHOWN_MAX).unwrap_or(token);
                number(token).map_err(|why| format!("{}: {shown} {why}", place(&open)))?;
            }
            _ => {}
        }
        offset += length;
    }
    Ok(())
}

/// Whether a number is kept as it is written.
fn number(token: &str) -> Result<(), &'static str> {
    let text = token.trim_start_matches('-');
    let read: f64 = text.parse().map_err(|_| "is no number")?;
    let Some(written) = Decimal::read(text) else { return Err("is no number") };
    if !read.is_finite() {
        return Err("is too large for a number");
    }
    if written.digits.is_empty() {
        return Ok(());
    }
    if read == 0.0 {
        return Err("is too small for a number");
    }
    let is_kept = if written.is_whole() {
        let has_digits_alone = text.bytes().all(|byte| byte.is_ascii_digit());
        let is_small = !has_digits_alone || read <= WHOLE_MAX;
        let is = |kept: &str| Decimal::read(kept).as_ref() == Some(&written);
        let as_many = written.digits.len().min(DIGITS_MAX) - 1;
        is_small && (is(&format!("{read:e}")) || is(&format!("{read:.as_many$e}")))
    } else {
        read < WHOLE_MAX
    };
    if is_kept { Ok(()) } else { Err("would be rounded, as a number holds 53 bits: write it as a text") }
}

/// The value of a number: its digits without zeros at either end, and the power of ten of the first one.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    digits: String,
    power: i64,
}

impl Decimal {
    /// The value of a text such as `12.5e3`; none where its exponent is beyond everything.
    fn read(text: &str) -> Option<Self> {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = [whole, fraction].concat();
        let significant = digits.trim_start_matches('0');
        if significant.is_empty() {
            return Some(Self { digits: String::new(), power: 0 });
        }
        let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
        let power = exponent.parse::<i64>().ok()?.checked_add(i64::try_from(whole.len()).ok()?)?.checked_sub(zeros)?;
        Some(Self { digits: significant.trim_end_matches('0').to_owned(), power })
    }

    fn is_whole(&self) -> bool {
        i64::try_from(self.digits.len()).is_ok_and(|digits| digits <= self.power)
    }
}

/// The place of what is looked at, such as `a.list[3].key`.
fn place(open: &[Open]) -> String {
    let mut place = String::new();
    for step in open {
        match step {
            Open::List(index) => place.extend(["[", &index.to_string(), "]"]),
            Open::Object { key, .. } => {
                let dot = if place.is_empty() { "" } else { "." };
                place.extend([dot, key.as_deref().unwrap_or_default()]);
            }
        }
    }
    place
}

/// The bytes of a string with its quotes.
fn string_length(text: &str) -> usize {
    let mut is_escaped = true; // the quote that begins it does not end it
    for (offset, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !is_escaped => return offset + 1,
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_taken_as_it_is() {
        for text in [
            "{}",
            "\u{feff}{\"a\": 1}",
            " {\"a\": [1, {\"b\": 9007199254740992}, -9007199254740992]} \n",
            "{\"a\": 0.1, \"b\": 1e20, \"c\": -0.0, \"d\": 0e9, \"e\": 6.02e23, \"f\": 123456.789}",
            "{\"a\": [0.30000000000000004, 1e-7, 2251799813685248.5, 5.684341886080802e-14, 3.141592653589793, 1.10]}",
            "{\"a\": [0.33333333333333333333, 1764331875.123456789, -0.12345678901234567891, 3.14159265358979323846]}",
            "{\"a\": [4503599627370496.3, 12345678901234567e-1, 0.99999999999999999999]}",
            "{\"a\": [0.1000000000000000055511151231257827021181583404541015625, 0.10000000000000001, 100e-3, 0e99]}",
            "{\"a\": {\"x\": 1}, \"b\": {\"x\": 1}, \"c\\\"\": [\"9007199254740993\", \"}\", \"a\", \"a\"]}",
        ] {
            assert!(object(text).is_ok(), "{text}: {:?}", object(text));
        }
        assert_eq!(object("{\"a\":[1,{\"b\":\"x\"}]}").unwrap()["a"][1]["b"], "x");
    }

    #[test]
    fn whatever_a_program_writes_for_a_double_is_taken() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let double = f64::from_bits(bits);
            if !double.is_normal() {
                continue;
            }
            for text in [format!("{double:e}"), format!("{double:.16e}"), format!("{double:.14e}")] {
                assert_eq!(number(&text), Ok(()), "{text}");
            }
            // Digits that it does not have make it another whole number, and the same measure.
            let more = format!("{double:.20e}");
            let (mantissa, exponent) = more.split_once('e').unwrap();
            let last = if mantissa.ends_with('5') { '6' } else { '5' };
            let other = format!("{}{last}e{exponent}", &mantissa[..mantissa.len() - 1]);
            assert_eq!(number(&other).is_ok(), double.abs() < WHOLE_MAX, "{other} is not {more}");
        }
    }

    #[test]
    fn what_would_be_lost_is_refused_with_its_place() {
        for (text, place) in [
            ("{\"a\": 9007199254740993}", "a: 9007199254740993 would be rounded"),
            ("{\"a\": {\"b\": [0, -9007199254740993]}}", "a.b[1]: -9007199254740993 would be rounded"),
            ("{\"a\": 18446744073709551616}", "a: 18446744073709551616 would be rounded"),
            ("{\"a\": 9007199254740993.0}", "a: 9007199254740993.0 would be rounded"),
            ("{\"a\": 9007199254740993e0}", "a: 9007199254740993e0 would be rounded"),
            ("{\"a\": 90071992547409.93e2}", "a: 90071992547409.93e2 would be rounded"),
            ("{\"a\": 100000000000000000001e-2}", "a: 100000000000000000001e-2 would be rounded"),
            ("{\"a\": 9007199254740992.5}", "a: 9007199254740992.5 would be rounded"),
            ("{\"a\": 9007199254740994}", "a: 9007199254740994 would be rounded"),
            ("{\"a\": 1e-400}", "a: 1e-400 is too small"),
            ("{\"a\": [[1], [2, 1e400]]}", "number out of range"),
            ("{\"a\": 1, \"b\": {\"c\": 1, \"c\": 2}}", "b.c is given twice"),
            ("{\"a\": 1, \"\\u0061\": 1}", "a is given twice"),
            ("{\"a\": 1} x", "trailing characters"),
            ("{\"a\": 1}{}", "trailing characters"),
            ("{\"a\": NaN}", "expected value"),
            ("{\"a\": 1,}", "trailing comma"),
            ("{\"a\": +1}", "expected value"),
            ("{\"a\": 01}", "invalid number"),
            ("[1]", "it is a list"),
            ("7", "it is no object"),
            ("nofile.json", "it is no object"),
            ("", "it is empty"),
            ("{", "it is no JSON: EOF"),
            ("\u{feff}\u{feff}{}", "it is no object"),
        ] {
            let said = object(text).unwrap_err();
            assert!(said.contains(place), "{text}: {said}");
        }
    }
}
