//! Lists and mappings, and what stands in them.

use super::super::finding::{At, Finding, quoted, within};
use super::super::tree::{Kind, Node};
use super::ReadDeclaration;

/// How near a key that is not known must be to one that is, to be taken for a slip.
const NEARNESS_MIN: f64 = 0.8;

/// A value under its key, or an item of a list.
pub(super) struct Field<'a> {
    pub(super) path: String,
    /// The place of the key, or of the item.
    pub(super) key_at: At,
    /// The value.
    pub(super) node: &'a Node,
}

impl Field<'_> {
    /// The key, where it is a plain word: what a declaration's own keys are.
    pub(super) fn key(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }
}

impl ReadDeclaration {
    /// The entries of a mapping with their keys; none where it is none. Of those above a bound the first is told, and
    /// all are read.
    pub(super) fn entries<'a>(&mut self, field: &Field<'a>, max: Option<usize>) -> Option<Vec<(&'a str, Field<'a>)>> {
        let Kind::Map(entries) = &field.node.kind else {
            self.mistyped(field, "a mapping");
            return None;
        };
        self.places.insert(field.path.clone(), field.key_at);
        let mut fields = Vec::new();
        for (key, node) in entries {
            // The tree has no other keys.
            let Kind::Scalar { text, .. } = &key.kind else { continue };
            let path = within(&field.path, text);
            if max == Some(fields.len()) {
                self.say(key.at, path.clone(), format!("there may be {} at most", fields.len()));
            }
            let at = if matches!(node.kind, Kind::Scalar { .. }) { node.at } else { key.at };
            self.places.insert(path.clone(), at);
            fields.push((text.as_str(), Field { path, key_at: key.at, node }));
        }
        Some(fields)
    }

    /// The entries of a mapping that has keys of its own.
    pub(super) fn fields<'a>(&mut self, field: &Field<'a>, known: &[&str], needed: &[&str]) -> Option<Vec<Field<'a>>> {
        let entries = self.entries(field, None)?;
        for needed in needed {
            if !entries.iter().any(|(key, _)| key == needed) {
                self.say(field.key_at, within(&field.path, needed), "is missing".to_owned());
            }
        }
        let mut fields = Vec::new();
        for (key, field) in entries {
            if known.contains(&key) {
                fields.push(field);
            } else {
                let near = known.iter().map(|known| (strsim::jaro_winkler(key, known), known));
                let nearest = near.max_by(|(one, _), (other, _)| one.total_cmp(other));
                let hint = match nearest.filter(|(nearness, _)| *nearness >= NEARNESS_MIN) {
                    Some((_, nearest)) => format!("did you mean {nearest}?"),
                    None => format!("the keys are {}", known.join(", ")),
                };
                self.say(field.key_at, field.path, format!("there is no key {}: {hint}", quoted(key)));
            }
        }
        Some(fields)
    }

    /// The items of a list. Of those above a bound the first is told, and all are read.
    pub(super) fn items<'a>(&mut self, field: &Field<'a>, max: usize) -> Vec<Field<'a>> {
        let Kind::List(items) = &field.node.kind else {
            self.mistyped(field, "a list");
            return Vec::new();
        };
        self.places.insert(field.path.clone(), field.key_at);
        let item = |(index, node): (usize, &'a Node)| Field {
            path: format!("{}[{index}]", field.path),
            key_at: node.at,
            node,
        };
        let fields: Vec<Field<'_>> = items.iter().enumerate().map(item).collect();
        for field in &fields {
            self.places.insert(field.path.clone(), field.key_at);
        }
        if let Some(surplus) = fields.get(max) {
            self.say(surplus.key_at, surplus.path.clone(), format!("there may be {max} at most"));
        }
        fields
    }

    /// Tells that a value is no such thing as is expected, and cannot be read.
    pub(super) fn mistyped(&mut self, field: &Field<'_>, expected: &str) {
        let found = match &field.node.kind {
            Kind::Refused => {
                self.unread.insert(field.path.clone());
                return;
            }
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a mapping".to_owned(),
            Kind::Scalar { text, is_plain: true } if text.is_empty() => "nothing".to_owned(),
            Kind::Scalar { text, is_plain: true } => text.escape_debug().take(64).collect(),
            Kind::Scalar { text, is_plain: false } => quoted(text),
        };
        self.refuse(field, format!("expected {expected}, not {found}"));
    }

    /// Tells what is wrong with a value, which cannot be read.
    pub(super) fn refuse(&mut self, field: &Field<'_>, message: String) {
        self.unread.insert(field.path.clone());
        self.complain(field, message);
    }

    /// Tells what is wrong with a value that was read.
    pub(super) fn complain(&mut self, field: &Field<'_>, message: String) {
        self.say(field.node.at, field.path.clone(), message);
    }

    /// Tells what is wrong at a place.
    pub(super) fn say(&mut self, at: At, path: String, message: String) {
        self.findings.push(Finding { at, path, message });
    }
}
