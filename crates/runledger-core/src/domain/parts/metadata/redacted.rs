//! What a redaction takes out of metadata.

use serde_json::{Map, Value};

use super::Metadata;
use crate::domain::parts::redaction::{REDACTED, RedactedPath, Redaction};

impl Metadata {
    /// Takes the paths out of metadata, or of a patch of them, and tells how many values these were. Most patches have none
    /// of the paths, and are not copied.
    pub(in crate::domain) fn take_out(&mut self, redaction: &Redaction) -> u64 {
        let within = redaction.paths.iter().filter_map(|path| match path {
            RedactedPath::Metadata(within) => Some(within.as_slice()),
            RedactedPath::Reason
            | RedactedPath::Progress
            | RedactedPath::Input
            | RedactedPath::Result
            | RedactedPath::Links(_) => None,
        });
        let there: Vec<&[String]> = within.filter(|within| has(&self.0, within)).collect();
        if there.is_empty() {
            return 0;
        }
        if there.iter().any(|within| within.is_empty()) {
            return std::mem::take(self).0.len() as u64;
        }
        let mut map = Map::clone(&self.0);
        let values = there.into_iter().map(|within| take_out(&mut map, within)).sum();
        *self = map.into();
        values
    }
}

/// Whether there is something to take out. A null is left: in a patch it deletes.
fn has(map: &Map<String, Value>, within: &[String]) -> bool {
    let [first, rest @ ..] = within else { return !map.is_empty() };
    let mut place = map.get(first);
    for key in rest {
        place = match place {
            Some(Value::Object(map)) => map.get(key),
            Some(Value::Array(values)) => index(key).and_then(|index| values.get(index)),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => None,
        };
    }
    place.is_some_and(|value| !value.is_null())
}

/// Puts the mark in the place of a value, and tells of how many. Another path of the redaction may have taken out what leads
/// there, and an earlier one the value.
fn take_out(map: &mut Map<String, Value>, within: &[String]) -> u64 {
    let [first, rest @ ..] = within else { return 0 };
    let mut place = map.get_mut(first);
    for key in rest {
        place = match place {
            Some(Value::Object(map)) => map.get_mut(key),
            Some(Value::Array(values)) => index(key).and_then(|index| values.get_mut(index)),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => None,
        };
    }
    let Some(value) = place.filter(|value| value.as_str() != Some(REDACTED)) else { return 0 };
    *value = Value::String(REDACTED.to_owned());
    1
}

fn index(key: &str) -> Option<usize> {
    let is_plain = key == "0" || !key.starts_with('0') && key.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { key.parse().ok() } else { None }
}
