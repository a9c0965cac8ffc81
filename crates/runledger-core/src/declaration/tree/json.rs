//! JSON.

use serde::de::IgnoredAny;

use super::build::Builder;
use super::{At, Kind, Node, Stopped};

/// Whether a text is JSON; else where it is not.
pub(super) fn validity(text: &str) -> Result<(), Stopped> {
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(IgnoredAny) => Ok(()),
        Err(error) => {
            // The column is in bytes, and stands on the byte that is wrong, or at the end.
            let line_start =
                text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
            let offset = text.floor_char_boundary(line_start + error.column().saturating_sub(1));
            let full = error.to_string();
            let message = full.split(" at line ").next().unwrap_or(&full);
            Err(Stopped { at: Cursor::at(text, offset), message: format!("no JSON: {message}"), is_syntax: true })
        }
    }
}

/// Builds the tree of a text that is JSON.
pub(super) fn build(text: &str, builder: &mut Builder) -> Result<(), Stopped> {
    let (mut cursor, mut offset) = (Cursor::new(text), 0);
    while let Some(&byte) = text.as_bytes().get(offset) {
        let length = match byte {
            b'"' => string_length(&text[offset..]),
            b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' | b'{' | b'[' | b'}' | b']' => 1,
            _ => literal_length(&text[offset..]),
        };
        let token = &text[offset..offset + length];
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' => {}
            b'{' | b'[' => builder.open(cursor.go_to(offset), byte == b'[')?,
            b'}' | b']' => builder.close(),
            b'"' => {
                let at = cursor.go_to(offset);
                let kind = string(token, at, builder);
                builder.put(Node { at, kind });
            }
            _ => {
                let kind = Kind::Scalar { text: token.to_owned(), is_plain: true };
                builder.put(Node { at: cursor.go_to(offset), kind });
            }
        }
        offset += length;
    }
    Ok(())
}

fn string(token: &str, at: At, builder: &mut Builder) -> Kind {
    if let Ok(text) = serde_json::from_str(token) {
        return Kind::Scalar { text, is_plain: false };
    }
    // Such a text passes as JSON where nobody asks for its characters.
    builder.refuse(at, "an escape in this text is half a pair of surrogates");
    Kind::Refused
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

/// The bytes of a number, of `true`, `false` or `null`.
fn literal_length(text: &str) -> usize {
    text.find([' ', '\t', '\r', '\n', ',', ':', '{', '[', '}', ']', '"']).unwrap_or(text.len())
}

/// Finds lines and columns, going forward only.
pub(super) struct Cursor<'a> {
    text: &'a str,
    offset: usize,
    at: At,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, offset: 0, at: At::START }
    }

    /// The place of a byte.
    pub(super) fn at(text: &'a str, offset: usize) -> At {
        Self::new(text).go_to(offset)
    }

    /// The place of a byte that is no earlier one than the last.
    fn go_to(&mut self, offset: usize) -> At {
        for (index, char) in self.text[self.offset..].char_indices() {
            if self.offset + index >= offset {
                break;
            }
            let is_pair = char == '\r' && self.text.as_bytes().get(self.offset + index + 1) == Some(&b'\n');
            match char {
                '\n' | '\r' if !is_pair => self.at = At { line: self.at.line + 1, column: 1 },
                _ => self.at.column += 1,
            }
        }
        self.offset = self.offset.max(offset);
        self.at
    }
}
