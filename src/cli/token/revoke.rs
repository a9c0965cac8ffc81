//! Takes tokens out of the text of an access file. The rest of the text stays to the letter, with its comments.

use toml::{Table, Value};

use crate::auth::access_file;
use crate::auth::token::TokenHash;

/// The text without the entries of these tokens; none where they do not stand as tables of their own, `[[token]]`.
pub(super) fn without(text: &str, hashes: &[TokenHash]) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut left = String::with_capacity(text.len());
    let mut at = 0;
    while at < lines.len() {
        let end = if header(lines[at]) == Some("token") { end_of_entry(&lines, at) } else { at + 1 };
        let section = lines[at..end].concat();
        if end > at + 1 && is_one_of(&section, hashes) {
            // The empty line before the entry goes with it.
            if left.ends_with("\n\n") || left == "\n" {
                left.pop();
            }
        } else {
            left.push_str(&section);
        }
        at = end;
    }
    is_without(text, &left, hashes).then_some(left)
}

/// The name of the table that begins with this line.
fn header(line: &str) -> Option<&str> {
    let line = line.split('#').next().unwrap_or_default().trim();
    Some(line.strip_prefix('[')?.strip_suffix(']')?.trim_matches(['[', ']', ' ', '\t']))
}

/// The line after the last one of the entry that begins here. Comments before the next table are the next table's.
fn end_of_entry(lines: &[&str], begin: usize) -> usize {
    let is_next = |line: &&str| header(line).is_some_and(|name| !name.starts_with("token."));
    let next = lines[begin + 1..].iter().position(is_next).map_or(lines.len(), |count| begin + 1 + count);
    let says = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    lines[begin..next].iter().rposition(says).map_or(next, |last| begin + last + 1)
}

fn is_one_of(section: &str, hashes: &[TokenHash]) -> bool {
    let read = access_file::read(section);
    read.is_ok_and(|rules| rules.tokens().next().is_some_and(|(hash, _)| hashes.contains(hash)))
}

/// Whether the one text says all that the other says, but for these tokens.
fn is_without(before: &str, after: &str, hashes: &[TokenHash]) -> bool {
    let (Ok(mut before), Ok(mut after)) = (before.parse::<Table>(), after.parse::<Table>()) else { return false };
    let hashes: Vec<String> = hashes.iter().map(ToString::to_string).collect();
    let is_revoked = |token: &Value| {
        let hash = token.get("sha256").and_then(Value::as_str);
        hash.is_some_and(|hash| hashes.iter().any(|revoked| revoked.eq_ignore_ascii_case(hash)))
    };
    if let Some(Value::Array(tokens)) = before.get_mut("token") {
        tokens.retain(|token| !is_revoked(token));
    }
    for file in [&mut before, &mut after] {
        if file.get("token").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            file.remove("token");
        }
    }
    before == after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(token: &str, more: &str) -> String {
        let hash = TokenHash::new(token.as_bytes());
        format!("[[token]] # {token}\nname = \"{token}\"\nsha256 = \"{hash}\"\n{more}")
    }

    const INLINE: &str = "grants = [{ namespaces = [\"*\"], roles = [\"reader\"] }]\n";
    const TABLES: &str = "\n# What it may do.\n[[token.grants]]\nnamespaces = [\n  \"*\",\n]\nroles = [\"reader\"]\n";

    #[test]
    fn an_entry_goes_and_everything_else_stays_to_the_letter() {
        let certificate = format!("\n# Those of bridges.\n[[certificate]]\nname = \"*\"\n{INLINE}");
        let (one, two) = (entry("one", INLINE), entry("two", TABLES));
        let text = format!("# Ours.\n\n{one}\n{two}{certificate}");
        let gone = |names: &[&str]| {
            let hashes: Vec<_> = names.iter().map(|name| TokenHash::new(name.as_bytes())).collect();
            without(&text, &hashes).unwrap()
        };
        assert_eq!(gone(&["one"]), format!("# Ours.\n\n{two}{certificate}"));
        assert_eq!(gone(&["two"]), format!("# Ours.\n\n{one}{certificate}"));
        assert_eq!(gone(&["one", "two"]), format!("# Ours.\n{certificate}"));
        assert_eq!(gone(&["three"]), text);
    }

    #[test]
    fn what_is_written_in_another_form_is_left_alone() {
        let hash = TokenHash::new(b"one");
        let grants = "grants = [{ namespaces = [\"*\"], roles = [\"reader\"] }]";
        let text = format!("token = [{{ name = \"one\", sha256 = \"{hash}\", {grants} }}]\n");
        access_file::read(&text).unwrap();
        assert_eq!(without(&text, &[hash]), None);
    }
}
