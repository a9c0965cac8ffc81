//! Patterns that are filled with the claims of a token, such as `${/kubernetes.io/namespace}`.

use serde_json::{Map, Value};

use crate::domain::Pattern;

/// See the module. A text without a `${` is a plain pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<TemplatePart>,
    /// Whether a `*` at the end stands for whatever follows.
    is_prefix: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    /// A claim, by its JSON pointer (RFC 6901).
    Claim(String),
}

impl Template {
    /// The template that a text stands for.
    ///
    /// # Errors
    ///
    /// The form that was expected.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let expected = || format!("`{text}`: expected a name, name*, * or ${{/pointer/to/a/claim}}");
        let (body, is_prefix) = match text.strip_suffix('*') {
            Some(body) => (body, true),
            None => (text, false),
        };
        let (mut parts, mut rest) = (Vec::new(), body);
        while let Some(begin) = rest.find("${") {
            let end = begin + rest[begin..].find('}').ok_or_else(expected)?;
            let pointer = &rest[begin + 2..end];
            if !pointer.starts_with('/') || pointer.len() < 2 {
                return Err(expected());
            }
            if begin > 0 {
                parts.push(TemplatePart::Text(rest[..begin].to_owned()));
            }
            parts.push(TemplatePart::Claim(pointer.to_owned()));
            rest = &rest[end + 1..];
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Text(rest.to_owned()));
        }
        let has_star = parts.iter().any(|part| matches!(part, TemplatePart::Text(text) if text.contains('*')));
        if has_star || (parts.is_empty() && !is_prefix) {
            return Err(expected());
        }
        Ok(Self { parts, is_prefix })
    }

    /// Whether one of the names that have a rule matches what the template becomes by some claims.
    pub(super) fn may_match(&self, is_name: impl Fn(&str) -> bool) -> bool {
        let of = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Claim(_) => "x".to_owned(),
        };
        let begin: String = self.parts.iter().map(of).collect();
        is_name(&begin) || (self.is_prefix && is_name(&(begin + "x")))
    }

    /// The pattern, where it needs no claim.
    pub(super) fn plain(&self) -> Option<Pattern> {
        self.fill(&Map::new())
    }

    /// The pattern by these claims; none where one of them is missing, empty or no text: an empty one would stand for
    /// more than whoever wrote the template meant.
    pub(super) fn fill(&self, claims: &Map<String, Value>) -> Option<Pattern> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Text(literal) => text.push_str(literal),
                TemplatePart::Claim(pointer) => {
                    text.push_str(claim(claims, pointer).filter(|value| !value.is_empty())?);
                }
            }
        }
        Some(match (text.is_empty(), self.is_prefix) {
            (true, _) => Pattern::Any,
            (false, true) => Pattern::Prefix(text),
            (false, false) => Pattern::Exact(text),
        })
    }
}

/// The text of a claim, by its JSON pointer.
pub(super) fn claim<'a>(claims: &'a Map<String, Value>, pointer: &str) -> Option<&'a str> {
    let mut tokens = pointer.strip_prefix('/')?.split('/').map(|token| token.replace("~1", "/").replace("~0", "~"));
    let mut value = claims.get(&tokens.next()?)?;
    for token in tokens {
        value = value.as_object()?.get(&token)?;
    }
    value.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Map<String, Value> {
        let Value::Object(claims) = value else { panic!("an object") };
        claims
    }

    fn filled(text: &str, value: Value) -> Option<String> {
        Template::parse(text).unwrap().fill(&claims(value)).map(|pattern| pattern.to_string())
    }

    #[test]
    fn a_claim_is_put_where_the_template_names_it() {
        let kubernetes = json!({ "kubernetes.io": { "namespace": "team-a", "serviceaccount": { "name": "bridge" } } });
        for (template, pattern) in [
            ("${/kubernetes.io/namespace}", Some("team-a")),
            ("x-${/kubernetes.io/namespace}-${/kubernetes.io/serviceaccount/name}*", Some("x-team-a-bridge*")),
            ("plain", Some("plain")),
            ("plain-*", Some("plain-*")),
            ("*", Some("*")),
            ("${/kubernetes.io/pod}", None),
            ("${/kubernetes.io/serviceaccount}", None),
        ] {
            assert_eq!(filled(template, kubernetes.clone()).as_deref(), pattern, "{template}");
        }
    }

    #[test]
    fn a_star_or_nothing_in_a_claim_stands_for_no_more_than_itself() {
        let star = Template::parse("${/sub}").unwrap().fill(&claims(json!({ "sub": "*" }))).unwrap();
        assert!(star.matches("*") && !star.matches("a"));
        assert_eq!(filled("${/sub}*", json!({ "sub": "" })), None);
        assert_eq!(filled("${/sub}", json!({ "sub": 7 })), None);
    }

    #[test]
    fn a_template_that_matches_no_name_is_known() {
        let is_name = crate::domain::namespace::is_name;
        for text in ["*", "a", "team-*", "${/ns}", "x-${/ns}", "${/ns}-x", "1", "a-b"] {
            assert!(Template::parse(text).unwrap().may_match(is_name), "{text:?}");
        }
        let (long, too_long) = (format!("{}*", "a".repeat(63)), format!("{}*", "a".repeat(64)));
        assert!(Template::parse(&long).unwrap().may_match(is_name));
        for text in [" ", "A", "a b", "é", "-a", "a-", " *", "a.*", "${/ns}.x", "A${/ns}", "-*", "a_*", &too_long] {
            assert!(!Template::parse(text).unwrap().may_match(is_name), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for text in ["", "a*b", "**", "${}", "${/}", "${sub}", "${/sub", "*${/sub}"] {
            assert!(Template::parse(text).is_err(), "{text:?}");
        }
    }
}
