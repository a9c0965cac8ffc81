//! The mark (U+FEFF) that some editors write before a file's text.

/// A text without the mark at its beginning, which is no part of what the text says.
#[must_use]
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}
