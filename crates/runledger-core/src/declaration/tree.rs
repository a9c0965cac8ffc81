//! A text as nodes that know their places. YAML 1.2, or JSON.
//!
//! Only what has one plain meaning is taken: there is one document in the text, a key is a scalar and stands once, and
//! anchors, aliases, tags and merge keys are refused. Nothing here calls itself, and no tree is deeper than
//! [`DEPTH_MAX`], so that whoever walks one may.

mod build;
mod json;
#[cfg(test)]
mod tests;
mod yaml;

use self::build::Builder;
use super::finding::{At, Finding};
use crate::domain::limits::LIFECYCLE_BYTES_MAX;

/// Lists and mappings within each other; the outermost is the first.
pub(super) const DEPTH_MAX: usize = 16;

/// A value, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// Its first character.
    pub(super) at: At,
    /// What it is.
    pub(super) kind: Kind,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A text, number, truth value or nothing.
    Scalar {
        /// The text, without quotes and escapes.
        text: String,
        /// It was written without quotes, so it may be another thing than a text.
        is_plain: bool,
    },
    List(Vec<Node>),
    /// A mapping: each key, which is a scalar, with its value. No two keys have the same text.
    Map(Vec<(Node, Node)>),
    /// Something that a finding tells of already, such as an alias.
    Refused,
}

/// The end of a text that cannot be read further.
struct Stopped {
    at: At,
    message: String,
    /// The text breaks the rules of the notation, so another notation may read it.
    is_syntax: bool,
}

/// Makes a tree of a text; none where the text cannot be read to its end. With everything that is wrong with the text.
pub(super) fn parse(source: &str) -> (Option<Node>, Vec<Finding>) {
    let refused = |at, message: String| (None, vec![Finding { at, path: String::new(), message }]);
    if source.len() > LIFECYCLE_BYTES_MAX {
        return refused(At::START, format!("the text has more than {LIFECYCLE_BYTES_MAX} bytes"));
    }
    let text = source.strip_prefix('\u{feff}').unwrap_or(source).trim_end_matches([' ', '\t', '\r', '\n']);
    // The parser takes a NUL for the end of the text.
    let is_control = |char: char| char.is_control() && !matches!(char, '\t' | '\r' | '\n' | '\u{85}');
    if let Some((offset, char)) = text.char_indices().find(|(_, char)| is_control(*char)) {
        return refused(json::Cursor::at(text, offset), format!("the text has the control character {char:?}"));
    }
    match built(text) {
        (builder, Ok(())) => match builder.into_tree() {
            (None, findings) if findings.is_empty() => refused(At::START, "there is no declaration in it".to_owned()),
            built => built,
        },
        (builder, Err(Stopped { at, message, is_syntax: _ })) => {
            let (_, mut findings) = builder.into_tree();
            findings.push(Finding { at, path: String::new(), message });
            (None, findings)
        }
    }
}

/// Reads a text that begins as JSON does by its rules, where it is JSON, and any other by the rules of YAML. YAML reads
/// most JSON, but not all: a pair of surrogates is no character to it. Where neither can read a text, the one that came
/// further says why, as it is likely to be what the author meant.
fn built(text: &str) -> (Builder, Result<(), Stopped>) {
    let invalid = match text.trim_start().starts_with('{').then(|| json::validity(text)) {
        None => None,
        Some(Ok(())) => {
            let mut builder = Builder::default();
            let result = json::build(text, &mut builder);
            return (builder, result);
        }
        Some(Err(invalid)) => Some(invalid),
    };
    let mut builder = Builder::default();
    match (yaml::build(text, &mut builder), invalid) {
        (Err(stopped), Some(invalid)) if stopped.is_syntax && stopped.at < invalid.at => {
            (Builder::default(), Err(invalid))
        }
        (result, _) => (builder, result),
    }
}
