//! Patterns of names: the whole name, its beginning, or any name.

use std::fmt;

/// A pattern of names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// `*`: every name.
    Any,
    /// `team-*`: names that begin so.
    Prefix(String),
    /// One name.
    Exact(String),
}

impl Pattern {
    /// The pattern that a text stands for: a `*` at the end stands for whatever follows, and nowhere else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('*') {
            Some("") => Some(Self::Any),
            Some(prefix) if !prefix.contains('*') => Some(Self::Prefix(prefix.to_owned())),
            None if !text.is_empty() && !text.contains('*') => Some(Self::Exact(text.to_owned())),
            Some(_) | None => None,
        }
    }

    /// Whether the pattern stands for a name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Prefix(prefix) => name.starts_with(prefix),
            Self::Exact(exact) => name == exact,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::Exact(exact) => f.write_str(exact),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_at_the_end_stands_for_whatever_follows() {
        let team = Pattern::parse("team-*").unwrap();
        assert!(team.matches("team-") && team.matches("team-a") && !team.matches("team") && !team.matches("a-team-a"));
        let one = Pattern::parse("team").unwrap();
        assert!(one.matches("team") && !one.matches("team-a") && !one.matches(""));
        assert!(Pattern::parse("*").unwrap().matches(""));
    }

    #[test]
    fn a_star_anywhere_else_is_no_pattern() {
        for text in ["", "*a", "a*b", "**", "a**"] {
            assert_eq!(Pattern::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_pattern_is_shown_as_it_was_written() {
        for text in ["*", "team-*", "team"] {
            assert_eq!(Pattern::parse(text).unwrap().to_string(), text);
        }
    }
}
