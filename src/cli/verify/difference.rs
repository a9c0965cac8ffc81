//! A difference between a ledger's rows and its events: the place, the expected value, and the value that is there.

use std::fmt;

use serde_json::Value;

use crate::store::StoreError;
use crate::store::error::Source;
use crate::telemetry::chain;

/// A value that is shown is cut here: metadata may be long.
const SHOWN_MAX: usize = 160;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) table: &'static str,
    pub(super) key: String,
    /// The column, or a part of it.
    pub(super) what: String,
    pub(super) expected: String,
    pub(super) found: String,
}

impl Difference {
    /// A row or a column that cannot be read at all.
    pub(super) fn unreadable(error: &StoreError) -> Self {
        match error {
            StoreError::Corrupt { table, column, key, source } => Self::unread(table, key, column, source),
            StoreError::Unavailable(_) | StoreError::Refused(_) | StoreError::Lost(_) => {
                let (key, expected) = ("a page".to_owned(), "rows".to_owned());
                Self { table: StoreError::WHOLE_DATABASE, key, what: "page".to_owned(), expected, found: chain(error) }
            }
        }
    }

    /// A fault that the database finds in its own file.
    pub(super) fn of_file(fault: &str) -> Self {
        let found = cut(&fault.split_whitespace().collect::<Vec<_>>().join(" "));
        let (key, what) = ("the file".to_owned(), "integrity_check".to_owned());
        Self { table: StoreError::WHOLE_DATABASE, key, what, expected: "ok".to_owned(), found }
    }

    fn unread(table: &'static str, key: &str, column: &str, source: &Source) -> Self {
        Self {
            table,
            key: key.to_owned(),
            what: column.to_owned(),
            expected: "something readable".to_owned(),
            found: cut(&chain(source.as_ref())),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, key, what, expected, found } = self;
        write!(f, "{table} {key}: {what}: expected {expected}, found {found}")
    }
}

/// The collector for the differences of one row.
pub(super) struct Row<'a> {
    pub(super) table: &'static str,
    pub(super) key: &'a str,
    pub(super) differences: &'a mut Vec<Difference>,
}

impl Row<'_> {
    pub(super) fn differs(&mut self, what: impl Into<String>, expected: impl fmt::Display, found: impl fmt::Display) {
        self.differences.push(Difference {
            table: self.table,
            key: self.key.to_owned(),
            what: what.into(),
            expected: cut(&expected.to_string()),
            found: cut(&found.to_string()),
        });
    }

    /// Notes a difference when two values are not equal.
    pub(super) fn same<T: PartialEq + fmt::Debug>(&mut self, what: &str, expected: &T, found: &T) {
        if expected != found {
            self.differs(what, BareValue(expected), BareValue(found));
        }
    }

    /// Notes every field in which two objects differ.
    pub(super) fn same_fields(&mut self, what: &str, expected: &Value, found: &Value) {
        let none = serde_json::Map::new();
        let (expected, found) = (expected.as_object().unwrap_or(&none), found.as_object().unwrap_or(&none));
        let names = expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name)));
        for name in names {
            let (wanted, there) = (expected.get(name), found.get(name));
            if wanted != there {
                let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
                self.differs(format!("{what}.{name}"), shown(wanted), shown(there));
            }
        }
    }

    pub(super) fn unreadable(&mut self, error: &StoreError) {
        self.differences.push(Difference::unreadable(error));
    }
}

/// An optional value as itself, or as nothing.
struct BareValue<'a, T>(&'a T);

impl<T: fmt::Debug> fmt::Display for BareValue<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:?}", self.0);
        let bare = text.strip_prefix("Some(").and_then(|text| text.strip_suffix(')')).unwrap_or(&text);
        f.write_str(if bare == "None" { "nothing" } else { bare })
    }
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(SHOWN_MAX);
    if end == text.len() { text.to_owned() } else { format!("{}... ({} bytes)", &text[..end], text.len()) }
}
