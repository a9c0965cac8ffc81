//! JSON objects that the authority is given: each value as it was written, or none.
//!
//! Whatever reads such an object later has numbers of 53 bits and one value for a key. So what would be lost on the way is
//! refused here, with its place.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::without_mark;

/// The largest whole number up to which each one is a double of its own.
const WHOLE_MAX: u64 = 1 << 53;

/// The same as a double.
const LARGE: f64 = 9_007_199_254_740_992.0;

/// Digits that every double keeps.
const DIGITS_KEPT: usize = 15;

/// Characters of a number that an error shows.
const SHOWN_MAX: usize = 40;

/// The object that a text is. A mark at its beginning is passed over.
///
/// # Errors
///
/// The reason why it is no object, or the place of what cannot be kept as it is.
pub fn object(text: &str) -> Result<Map<String, Value>, String> {
    let text = without_mark(text);
    let object = serde_json::from_str(text).map_err(|error| error.to_string())?;
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
    let digits = token.trim_start_matches('-');
    let (mantissa, exponent) = digits.split_once(['e', 'E']).unwrap_or((digits, ""));
    let whole = mantissa.split('.').next().unwrap_or_default();
    let significant = mantissa.replace('.', "").trim_matches('0').len();
    let read: f64 = digits.parse().map_err(|_| "is no number")?;
    let is_rounded = if exponent.is_empty() {
        !whole.parse().is_ok_and(|number: u64| number <= WHOLE_MAX)
    } else {
        read >= LARGE && significant > DIGITS_KEPT
    };
    if is_rounded {
        return Err("would be rounded, as a number holds 53 bits: write it as a text");
    }
    match read {
        read if !read.is_finite() => Err("is too large for a number"),
        read if read == 0.0 && significant > 0 => Err("is too small for a number"),
        _ => Ok(()),
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
            "{\"a\": {\"x\": 1}, \"b\": {\"x\": 1}, \"c\\\"\": [\"9007199254740993\", \"}\", \"a\", \"a\"]}",
        ] {
            assert!(object(text).is_ok(), "{text}: {:?}", object(text));
        }
        assert_eq!(object("{\"a\":[1,{\"b\":\"x\"}]}").unwrap()["a"][1]["b"], "x");
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
            ("[1]", "invalid type"),
            ("", "EOF"),
            ("\u{feff}\u{feff}{}", "expected value"),
        ] {
            let said = object(text).unwrap_err();
            assert!(said.contains(place), "{text}: {said}");
        }
    }
}
