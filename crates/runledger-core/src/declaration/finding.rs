//! What is wrong with a declaration, and where.

use std::fmt;

/// Characters of a declaration's own text that a finding shows.
const SHOWN_CHARS_MAX: usize = 64;

/// A place in a text. Both numbers are from 1, and a column is a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    pub line: usize,
    pub column: usize,
}

impl At {
    /// The first character.
    pub const START: Self = Self { line: 1, column: 1 };
}

impl fmt::Display for At {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}", self.line, self.column)
    }
}

/// One thing that is wrong with a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The place in the text.
    pub at: At,
    /// The place in the declaration, such as `phases.act.next[1]`; empty where it is the declaration as a whole.
    pub path: String,
    /// What is wrong, for people.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, path, message } = self;
        match path.as_str() {
            "" => write!(formatter, "{at}: {message}"),
            path => write!(formatter, "{at}: {path}: {message}"),
        }
    }
}

/// A text of the author's, quoted, as a terminal may show it.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

/// The path of a key within a path. A key that is no plain word is quoted: a path names one place only.
pub(super) fn within(path: &str, key: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '<');
    let is_word = !key.is_empty() && key.len() <= SHOWN_CHARS_MAX && key.chars().all(is_plain);
    let key = if is_word { key.to_owned() } else { quoted(key) };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_line_column_and_path() {
        let at = At { line: 4, column: 20 };
        let message = "there is no phase \"verifyng\"".to_owned();
        let finding = Finding { at, path: "phases.act.next[1]".to_owned(), message };
        assert_eq!(finding.to_string(), "line 4, column 20: phases.act.next[1]: there is no phase \"verifyng\"");
        let finding = Finding { path: String::new(), ..finding };
        assert_eq!(finding.to_string(), "line 4, column 20: there is no phase \"verifyng\"");
    }

    #[test]
    fn a_text_of_the_author_is_shown_in_part_and_commands_no_terminal() {
        assert_eq!(quoted("a\u{1b}[2J\"b"), r#""a\u{1b}[2J\"b""#);
        assert_eq!(quoted(&"ä".repeat(1_000)), format!("\"{}\"...", "ä".repeat(64)));
        assert_eq!(within("phases", "a.next"), r#"phases."a.next""#);
        assert_eq!(within("", "a"), "a");
    }
}
