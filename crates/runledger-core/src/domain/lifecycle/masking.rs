//! Masking: the values of keys that a lifecycle names are never written down.
//!
//! Invariant: values are masked before a command is decided. Neither the database nor the digest that is kept of a
//! command has them.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::domain::parts::redaction::REDACTED as MASK;

/// Bits of a word of states.
const WORD: usize = u64::BITS as usize;

/// Patterns of keys, made ready to be held against many keys: against all patterns at once, byte by byte, in a time that
/// grows with the key's length and the patterns' and with nothing else.
///
/// Each pattern is a row of states, one before each of its characters and one behind the last, stars left out. A byte
/// moves a state on to the next one where the pattern has that byte there; a state where a star stands stays as well.
/// The states that a key has come to are bits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Masks {
    /// The row of `moves` for each byte of a key; the first row is that of bytes which no pattern has.
    rows: Vec<u16>,
    /// The states that a byte moves on, by row.
    moves: Vec<u64>,
    /// The states where a star stands.
    stays: Vec<u64>,
    /// The states before the first character.
    begins: Vec<u64>,
    /// The states behind the last one.
    ends: Vec<u64>,
}

/// Every key.
static ALL: LazyLock<Masks> = LazyLock::new(|| Masks::new(&["*".to_owned()]));

impl Masks {
    /// The patterns, in lower case, as texts: `*` stands for any characters.
    #[must_use]
    pub fn new(patterns: &[String]) -> Self {
        let of_pattern = |pattern: &String| pattern.bytes().filter(|byte| *byte != b'*').count() + 1;
        let words = patterns.iter().map(of_pattern).sum::<usize>().div_ceil(WORD);
        let mut masks = Self {
            rows: vec![0; 256],
            moves: vec![0; words],
            stays: vec![0; words],
            begins: vec![0; words],
            ends: vec![0; words],
        };
        let mut state = 0;
        for pattern in patterns {
            set(&mut masks.begins, state);
            for byte in pattern.bytes() {
                if byte == b'*' {
                    set(&mut masks.stays, state);
                } else {
                    let row = masks.row_of(byte, words);
                    set(&mut masks.moves[row * words..], state);
                    state += 1;
                }
            }
            set(&mut masks.ends, state);
            state += 1;
        }
        // A key is compared in lower case, and a pattern is: none of its characters is one in upper case.
        for byte in b'A'..=b'Z' {
            masks.rows[usize::from(byte)] = masks.rows[usize::from(byte.to_ascii_lowercase())];
        }
        masks
    }

    /// Every key is masked.
    #[must_use]
    pub fn all() -> &'static Self {
        &ALL
    }

    /// Whether no key is masked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// About how many bytes it takes in memory.
    #[must_use]
    pub fn weight(&self) -> usize {
        let words = self.moves.len() + self.stays.len() + self.begins.len() + self.ends.len();
        self.rows.len() * size_of::<u16>() + words * size_of::<u64>()
    }

    fn row_of(&mut self, byte: u8, words: usize) -> usize {
        let row = &mut self.rows[usize::from(byte)];
        if *row == 0 {
            *row = u16::try_from(self.moves.len() / words).expect("a row for each byte, and one more");
            self.moves.resize(self.moves.len() + words, 0);
        }
        usize::from(*row)
    }

    /// Masks the values of an object, at every level and in lists, and tells whether there was any to mask. `null` is
    /// left alone: in a patch it deletes.
    #[must_use]
    pub fn mask(&self, object: &mut Map<String, Value>) -> bool {
        Masking { masks: self, states: Vec::new() }.object(object)
    }

    /// Whether a value is masked to which these keys lead.
    #[must_use]
    pub fn masks_within(&self, keys: &[String]) -> bool {
        let mut masking = Masking { masks: self, states: Vec::new() };
        keys.iter().any(|key| masking.redacts(key))
    }

    /// Whether an object has any value to mask.
    #[must_use]
    pub fn finds(&self, object: &Map<String, Value>) -> bool {
        Masking { masks: self, states: Vec::new() }.finds(object)
    }
}

fn set(words: &mut [u64], state: usize) {
    words[state / WORD] |= 1 << (state % WORD);
}

/// Holds keys against patterns, one after the other.
struct Masking<'a> {
    masks: &'a Masks,
    states: Vec<u64>,
}

impl Masking<'_> {
    fn object(&mut self, object: &mut Map<String, Value>) -> bool {
        let mut masked = false;
        for (key, value) in object {
            if value.is_null() {
                continue;
            }
            if self.redacts(key) {
                masked |= value != MASK;
                *value = Value::from(MASK);
            } else {
                masked |= self.within(value);
            }
        }
        masked
    }

    fn within(&mut self, value: &mut Value) -> bool {
        match value {
            Value::Object(object) => self.object(object),
            Value::Array(values) => values.iter_mut().fold(false, |masked, value| self.within(value) | masked),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    fn finds(&mut self, object: &Map<String, Value>) -> bool {
        let mut values = object.iter().filter(|(_, value)| !value.is_null());
        values.any(|(key, value)| if self.redacts(key) { value != MASK } else { self.finds_within(value) })
    }

    fn finds_within(&mut self, value: &Value) -> bool {
        match value {
            Value::Object(object) => self.finds(object),
            Value::Array(values) => values.iter().any(|value| self.finds_within(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    fn redacts(&mut self, key: &str) -> bool {
        if key.is_ascii() { self.matches(key.as_bytes()) } else { self.matches(lower(key).as_bytes()) }
    }

    fn matches(&mut self, key: &[u8]) -> bool {
        let Masks { rows, moves, stays, begins, ends } = self.masks;
        self.states.clear();
        self.states.extend(begins);
        for byte in key {
            let row = usize::from(rows[usize::from(*byte)]) * stays.len();
            let (mut carried, mut any) = (0, 0);
            for ((states, moves), stays) in self.states.iter_mut().zip(&moves[row..]).zip(stays) {
                let moved = *states & moves;
                *states = moved << 1 | carried | *states & stays;
                carried = moved >> (WORD - 1);
                any |= *states;
            }
            if any == 0 {
                return false;
            }
        }
        self.states.iter().zip(ends).any(|(states, ends)| states & ends != 0)
    }
}

/// A text in lower case, character by character: what a part of it becomes does not depend on what stands beside it.
#[must_use]
pub fn lower(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Whether a pattern, in which `*` stands for any characters, matches a key: the parts between the stars, one after
    /// the other.
    fn matches(pattern: &str, key: &str) -> bool {
        let Some((first, rest)) = pattern.split_once('*') else { return pattern == key };
        let Some(mut key) = key.strip_prefix(first) else { return false };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        for part in middle.split('*').filter(|part| !part.is_empty()) {
            let Some(at) = key.find(part) else { return false };
            key = &key[at + part.len()..];
        }
        key.ends_with(last)
    }

    fn masks(patterns: &[&str]) -> Masks {
        Masks::new(&patterns.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>())
    }

    fn redacts(masks: &Masks, key: &str) -> bool {
        Masking { masks, states: Vec::new() }.redacts(key)
    }

    proptest! {
        #[test]
        fn all_patterns_at_once_match_what_one_of_them_does(
            patterns in vec("[abk\u{e9}\u{3c3}*]{0,6}|[ab*]{60,64}", 0..32),
            keys in vec("[abkABK\u{e9}\u{c9}\u{3c3}\u{3a3}\u{212a}x]{0,12}|[ab]{50,90}", 1..20),
        ) {
            let masks = Masks::new(&patterns);
            for key in keys {
                let expected = patterns.iter().any(|pattern| matches(pattern, &lower(&key)));
                prop_assert_eq!(redacts(&masks, &key), expected, "{:?} {:?}", patterns, key);
            }
        }
    }

    #[test]
    fn what_is_done_for_a_key_grows_with_its_length_and_not_with_the_stars() {
        let patterns: Vec<String> = (0..32).map(|nth| format!("*{}*{nth}b", "a".repeat(60))).collect();
        let masks = Masks::new(&patterns);
        assert!(masks.ends.len() <= 32 * 65 / WORD + 1, "so many words for each byte of a key");
        assert!(!redacts(&masks, &"a".repeat(262_144)));
    }

    #[test]
    fn a_pattern_in_upper_case_matches_nothing_and_none_matches_no_key() {
        assert!(!redacts(&masks(&["A"]), "A") && !redacts(&masks(&["A"]), "a"));
        assert!(!redacts(&masks(&[]), "") && masks(&[]).is_empty());
        assert!(redacts(Masks::all(), "") && redacts(Masks::all(), "any"));
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, key) in [
            ("authorization", "authorization"),
            ("*password*", "password"),
            ("*password*", "my_password_2"),
            ("*cookie", "set-cookie"),
            ("x-*", "x-"),
            ("a*b*c", "axbbxc"),
            ("a**c", "ac"),
            ("*key*id*", "the key of an id"),
            // Of this letter, the form in lower case depends on what follows it.
            ("*κωδικοσ*", "κωδικοσα"),
        ] {
            assert!(matches(pattern, &lower(key)) && redacts(&masks(&[pattern]), key), "{pattern} {key}");
        }
        for (pattern, key) in [
            ("authorization", "authorizations"),
            ("*password", "password1"),
            ("a*a", "a"),
            ("ab*bc", "abc"),
            ("a*b*c", "acb"),
            ("*key*id*", "id of a key"),
        ] {
            assert!(!matches(pattern, key) && !redacts(&masks(&[pattern]), key), "{pattern} {key}");
        }
    }

    #[test]
    fn values_are_masked_at_every_level_in_lists_and_whatever_the_case() {
        let masks = Masks::new(&["*password*".into(), "größe".into(), lower("*ΚΩΔΙΚΟΣ*")]);
        let mut object = json!({
            "userPassword": 1, "PASSWORD": null, "GRÖSSE": 1, "GRÖßE": 2, "ΚΩΔΙΚΟΣΑ": 3,
            "list": [[{"password": {"a": 1}}], {"b": {"PassWord": [1, 2], "c": true}}],
        });
        let masked = json!({
            "userPassword": MASK, "PASSWORD": null, "GRÖSSE": 1, "GRÖßE": MASK, "ΚΩΔΙΚΟΣΑ": MASK,
            "list": [[{"password": MASK}], {"b": {"PassWord": MASK, "c": true}}],
        });
        assert!(masks.finds(object.as_object().unwrap()) && masks.mask(object.as_object_mut().unwrap()));
        assert_eq!(object, masked);
        assert!(!masks.finds(object.as_object().unwrap()), "once more, it is the same");
        assert!(!masks.mask(object.as_object_mut().unwrap()));
    }
}
