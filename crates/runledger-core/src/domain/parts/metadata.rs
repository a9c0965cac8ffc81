//! A run's own data: a JSON object whose numbers are IEEE doubles, changed by RFC 7396 merge patches.

mod redacted;

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Number, Value};

/// A JSON object in canonical form: keys sorted, every number the one form of its double, no negative zero. Two equal
/// objects are equal byte for byte, whichever store they come from. Clones share the object, which never changes: most
/// events leave a run's metadata as it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Map<String, Value>")]
pub struct Metadata(Arc<Map<String, Value>>);

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl From<Map<String, Value>> for Metadata {
    fn from(mut map: Map<String, Value>) -> Self {
        map.values_mut().for_each(canonical);
        Self(Arc::new(map))
    }
}

impl Metadata {
    /// The object.
    #[must_use]
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Whether the object is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes as compact JSON.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let mut counter = Counter(0);
        serde_json::to_writer(&mut counter, self).expect("a counter takes every byte and keys are strings");
        counter.0
    }

    /// The object after the RFC 7396 merge patch: objects merge key by key, null deletes, all else replaces.
    #[must_use]
    pub fn merged(&self, patch: &Self) -> Self {
        if self.is_empty() && !deletes(&patch.0) {
            return patch.clone();
        }
        let mut target = Map::clone(&self.0);
        merge(&mut target, &patch.0);
        Self(Arc::new(target))
    }

    /// The keys at all levels.
    #[must_use]
    pub fn keys(&self) -> usize {
        keys(&self.0)
    }

    /// The approximate number of bytes that the object takes in memory: many times its text when it consists of small
    /// objects.
    #[must_use]
    pub fn weight(&self) -> usize {
        weight(&self.0)
    }
}

fn keys(map: &Map<String, Value>) -> usize {
    map.len() + map.values().map(keys_within).sum::<usize>()
}

fn keys_within(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(values) => values.iter().map(keys_within).sum(),
        Value::Object(map) => keys(map),
    }
}

/// A node of the map takes its room whether one entry is in it or eleven.
const MAP_NODE_BYTES: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 16;

fn weight(map: &Map<String, Value>) -> usize {
    let entries: usize = map.iter().map(|(key, value)| key.len() + weight_within(value)).sum();
    // Nodes that were split are half full.
    map.len().div_ceil(6) * MAP_NODE_BYTES + entries
}

/// The bytes that a value holds besides its own place.
fn weight_within(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(|value| size_of::<Value>() + weight_within(value)).sum(),
        Value::Object(map) => weight(map),
    }
}

/// The one form of a finite double: an integer where it is one and fits, never a negative zero.
#[must_use]
pub fn canonical_number(double: f64) -> Number {
    const INTEGERS: f64 = 9_223_372_036_854_775_808.0; // 2^63
    if double.fract() == 0.0 && double.abs() < INTEGERS {
        #[expect(clippy::cast_possible_truncation, reason = "integral and within an i64")]
        Number::from(double as i64)
    } else {
        Number::from_f64(double).expect("validated to be finite")
    }
}

fn canonical(value: &mut Value) {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => {}
        Value::Number(number) => {
            let double = number.as_f64().filter(|double| double.is_finite()).unwrap_or(f64::MAX);
            *number = canonical_number(double);
        }
        Value::Array(values) => values.iter_mut().for_each(canonical),
        Value::Object(map) => map.values_mut().for_each(canonical),
    }
}

/// Whether a patch has a null that a merge leaves out; those in arrays stay.
fn deletes(patch: &Map<String, Value>) -> bool {
    patch.values().any(|change| match change {
        Value::Null => true,
        Value::Object(change) => deletes(change),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    })
}

fn merge(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, change) in patch {
        match change {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(change) => {
                let slot = target.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(slot) = slot {
                    merge(slot, change);
                }
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                target.insert(key.clone(), change.clone());
            }
        }
    }
}

struct Counter(usize);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn metadata(value: &Value) -> Metadata {
        Metadata::from(value.as_object().unwrap().clone())
    }

    /// RFC 7396, appendix A, the rows whose target and patch are objects.
    #[test]
    fn the_examples_of_rfc_7396_hold() {
        for (target, patch, result) in [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b"}), json!({"a":null}), json!({})),
            (json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"})),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]})),
            (json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}})),
            (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
            (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
            (json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}})),
            (json!({}), json!({"a":{"b":[null]}}), json!({"a":{"b":[null]}})),
        ] {
            assert_eq!(metadata(&target).merged(&metadata(&patch)), metadata(&result), "{target} with {patch}");
        }
    }

    #[test]
    fn a_number_has_one_form() {
        for (double, text) in [
            (1.0, "1"),
            (-0.0, "0"),
            (0.1, "0.1"),
            (1e308, "1e+308"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (1e18, "1000000000000000000"),
            (1e19, "1e+19"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(canonical_number(double).to_string(), text);
        }
        let read: Metadata = serde_json::from_str(r#"{"a":1.0,"b":10000000000000000000,"c":-0.0}"#).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), r#"{"a":1,"b":1e+19,"c":0}"#);
    }

    proptest! {
        #[test]
        fn every_finite_double_survives_its_text(bits: u64) {
            let double = f64::from_bits(bits);
            prop_assume!(double.is_finite());
            let number = canonical_number(double);
            let back: Value = serde_json::from_str(&number.to_string()).unwrap();
            prop_assert_eq!(back.as_f64().unwrap().to_bits(), (double + 0.0).to_bits());
        }
    }
}
