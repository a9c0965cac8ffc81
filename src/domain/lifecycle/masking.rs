//! Masking: the values of keys that a lifecycle names are never written down.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::Lifecycle;
use crate::domain::redaction::REDACTED as MASK;

impl Lifecycle {
    /// Masks the values of an object, at every level and in lists, and tells whether there was any to mask. `null` is
    /// left alone: in a patch it deletes.
    #[must_use]
    pub fn mask(&self, object: &mut Map<String, Value>) -> bool {
        let mut masked = false;
        for (key, value) in object {
            if value.is_null() {
                continue;
            }
            if self.redacts(key) {
                masked |= value != MASK;
                *value = Value::from(MASK);
            } else {
                masked |= self.mask_within(value);
            }
        }
        masked
    }

    fn mask_within(&self, value: &mut Value) -> bool {
        match value {
            Value::Object(object) => self.mask(object),
            Value::Array(values) => values.iter_mut().fold(false, |masked, value| self.mask_within(value) | masked),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    /// Whether a value is masked to which these keys lead.
    #[must_use]
    pub fn masks_within(&self, keys: &[String]) -> bool {
        keys.iter().any(|key| self.redacts(key))
    }

    fn redacts(&self, key: &str) -> bool {
        let key = if key.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) {
            Cow::Owned(lower(key))
        } else {
            Cow::Borrowed(key)
        };
        self.redact_keys.iter().any(|pattern| matches(pattern, &key))
    }
}

/// A text in lower case, character by character: what a part of it becomes does not depend on what stands beside it.
#[must_use]
pub fn lower(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

/// Whether a pattern, in which `*` stands for any characters, matches a key. Each part is looked for once, where the
/// one before it ended; there are few parts, by a limit on the stars of a pattern.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, key) in [
            ("authorization", "authorization"),
            ("*password*", "password"),
            ("*password*", "my_password_2"),
            ("*cookie", "set-cookie"),
            ("x-*", "x-"),
            ("a*b*c", "aXbbXc"),
            ("a**c", "ac"),
            ("*key*id*", "the key of an id"),
            // Of this letter, the form in lower case depends on what follows it.
            ("*κωδικοσ*", "κωδικοσα"),
        ] {
            assert!(matches(pattern, key), "{pattern} {key}");
        }
        for (pattern, key) in [
            ("authorization", "authorizations"),
            ("*password", "password1"),
            ("a*a", "a"),
            ("ab*bc", "abc"),
            ("a*b*c", "acb"),
            ("*key*id*", "id of a key"),
        ] {
            assert!(!matches(pattern, key), "{pattern} {key}");
        }
    }

    #[test]
    fn values_are_masked_at_every_level_in_lists_and_whatever_the_case() {
        let lifecycle = Lifecycle {
            redact_keys: vec!["*password*".into(), "größe".into(), lower("*ΚΩΔΙΚΟΣ*")],
            ..Lifecycle::default()
        };
        let mut object = json!({
            "userPassword": 1, "PASSWORD": null, "GRÖSSE": 1, "GRÖßE": 2, "ΚΩΔΙΚΟΣΑ": 3,
            "list": [[{"password": {"a": 1}}], {"b": {"PassWord": [1, 2], "c": true}}],
        });
        let masked = json!({
            "userPassword": MASK, "PASSWORD": null, "GRÖSSE": 1, "GRÖßE": MASK, "ΚΩΔΙΚΟΣΑ": MASK,
            "list": [[{"password": MASK}], {"b": {"PassWord": MASK, "c": true}}],
        });
        assert!(lifecycle.mask(object.as_object_mut().unwrap()));
        assert_eq!(object, masked);
        assert!(!lifecycle.mask(object.as_object_mut().unwrap()), "once more, it is the same");
    }
}
