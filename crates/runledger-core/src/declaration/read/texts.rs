//! Texts, and those that must have a form.

use super::super::finding::{At, quoted};
use super::super::tree::Kind;
use super::ReadDeclaration;
use super::fields::Field;
use crate::domain::limits::REASON_CODE_BYTES_MAX;

/// The kind of suspension that no phase brings: its answer resumes the run, and names no phase.
const QUESTION: &str = "QUESTION";

impl ReadDeclaration {
    /// A text. What YAML and JSON take for a number, a truth value or nothing is none until it is quoted.
    pub(super) fn text(&mut self, field: &Field<'_>) -> Option<String> {
        match &field.node.kind {
            Kind::Scalar { text, is_plain } if !(*is_plain && is_other(text)) => Some(text.clone()),
            Kind::Scalar { .. } | Kind::List(_) | Kind::Map(_) | Kind::Refused => {
                self.mistyped(field, "a text");
                None
            }
        }
    }

    /// A kind of suspension, or a code of a reason.
    pub(super) fn code(&mut self, field: &Field<'_>) -> Option<String> {
        let code = self.text(field)?;
        self.held_to_codes(field.node.at, &field.path, &code);
        Some(code)
    }

    /// The kind of suspension that a phase brings.
    pub(super) fn suspends(&mut self, field: &Field<'_>) -> Option<String> {
        let kind = self.text(field)?;
        self.phase_kind(field.node.at, &field.path, &kind);
        Some(kind)
    }

    /// Tells what is wrong with a kind of suspension that has a phase.
    pub(super) fn phase_kind(&mut self, at: At, path: &str, kind: &str) {
        if kind == QUESTION {
            let message = "QUESTION has no phase: an answer resumes the run without naming one";
            self.say(at, path.to_owned(), message.to_owned());
        } else {
            self.held_to_codes(at, path, kind);
        }
    }

    fn held_to_codes(&mut self, at: At, path: &str, code: &str) {
        let inner = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let is_code = (1..=REASON_CODE_BYTES_MAX).contains(&code.len())
            && code.starts_with(|first: char| first.is_ascii_uppercase())
            && code.bytes().all(inner);
        if !is_code {
            let rule = "must be 1 to 64 characters of [A-Z0-9_], an upper-case letter first";
            self.say(at, path.to_owned(), format!("{} {rule}", quoted(code)));
        }
    }

    /// A word of the users' own.
    pub(super) fn word(&mut self, field: &Field<'_>) -> Option<String> {
        let word = self.text(field)?;
        if !(1..=64).contains(&word.len()) {
            self.complain(field, "must have 1 to 64 bytes".to_owned());
        } else if word.chars().any(char::is_control) {
            self.complain(field, "must not have control characters".to_owned());
        } else if word.trim() != word {
            self.complain(field, "must not begin or end with a blank".to_owned());
        }
        Some(word)
    }
}

/// Whether a plain scalar is something else than a text, by the core schema of YAML 1.2.
fn is_other(text: &str) -> bool {
    let is_constant =
        ["", "~", "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE"].contains(&text);
    is_constant || is_number(text)
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_special = [".inf", ".Inf", ".INF"].contains(&digits) || [".nan", ".NaN", ".NAN"].contains(&text);
    let has_radix = |prefix, radix| {
        text.strip_prefix(prefix)
            .is_some_and(|rest: &str| !rest.is_empty() && rest.chars().all(|char| char.is_digit(radix)))
    };
    // What Rust takes for a number besides begins with a letter: `inf`.
    let is_decimal =
        digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') && digits.parse::<f64>().is_ok();
    is_special || is_decimal || has_radix("0x", 16) || has_radix("0o", 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yaml_takes_for_another_thing_is_no_text() {
        for other in
            ["", "~", "null", "True", "false", "0", "-1", "+1.5", "1e3", ".5", "1.", "0x1F", "0o17", "-.inf", ".nan"]
        {
            assert!(is_other(other), "{other}");
        }
        for text in
            ["yes", "on", "nil", "inf", "NaN", "1h", "15m", "1.2.3", "0x", "0xG", "-", ".", "e3", "1_000", "2024-01-01"]
        {
            assert!(!is_other(text), "{text}");
        }
    }
}
