//! Reads the paths that a source file uses, from its text: enough of Rust for `use` trees and paths in code.

/// A path that a file uses.
#[derive(Debug, PartialEq)]
pub(super) struct Used {
    pub(super) line: usize,
    /// From the crate's root, or, when foreign, from the other crate's name.
    pub(super) path: String,
    pub(super) foreign: bool,
}

/// Every path of more than one segment that the file of a module names.
pub(super) fn uses(module: &str, text: &str) -> Vec<Used> {
    let tokens = tokens(&bare(text));
    let mut used = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let begins = tokens[at].is_word() && !matches!(before(&tokens, at), Some("::" | "."));
        if begins && is(&tokens, at + 1, "::") {
            let mut paths = Vec::new();
            let end = tree(&tokens, at, &[], &mut paths);
            used.extend(paths.into_iter().filter_map(|path| resolved(module, &path, tokens[at].line)));
            at = end;
        } else if begins && tokens[at].text == "use" && is(&tokens, at + 1, "::") {
            at += 2;
        } else {
            at += 1;
        }
    }
    used
}

/// A path from the crate's root or another crate's; none for one that begins with a local name.
fn resolved(module: &str, path: &[String], line: usize) -> Option<Used> {
    let mut here: Vec<&str> = module.split("::").collect();
    let mut rest = path;
    let first = path.first()?.as_str();
    match first {
        "crate" => here.clear(),
        "runledger" if module == "main" => here.clear(),
        "self" => {}
        "super" => {
            while rest.first().is_some_and(|word| word == "super") {
                here.pop();
                rest = &rest[1..];
            }
            let path = here.into_iter().map(str::to_owned).chain(rest.iter().cloned()).collect::<Vec<_>>().join("::");
            return Some(Used { line, path, foreign: false });
        }
        _ => {
            // Types and enums begin a path as well; a crate's name is in lower case.
            let crate_like = first.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            return crate_like.then(|| Used { line, path: path.join("::"), foreign: true });
        }
    }
    let path = here.into_iter().map(str::to_owned).chain(rest[1..].iter().cloned()).collect::<Vec<_>>().join("::");
    Some(Used { line, path, foreign: false })
}

/// Collects the paths of the use tree (or plain path) at a token; where it ends.
fn tree(tokens: &[Token], mut at: usize, prefix: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix.to_vec();
    loop {
        if is(tokens, at, "{") {
            at += 1;
            while at < tokens.len() && !is(tokens, at, "}") {
                if tokens[at].is_word() || is(tokens, at, "{") {
                    at = tree(tokens, at, &path, paths);
                } else {
                    at += 1;
                }
            }
            return at + 1;
        }
        if tokens.get(at).is_none_or(|token| !token.is_word()) {
            break;
        }
        path.push(tokens[at].text.clone());
        at += 1;
        if !is(tokens, at, "::") {
            break;
        }
        at += 1;
    }
    paths.push(path);
    at
}

#[derive(Debug)]
struct Token {
    line: usize,
    text: String,
}

impl Token {
    fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

fn is(tokens: &[Token], at: usize, text: &str) -> bool {
    tokens.get(at).is_some_and(|token| token.text == text)
}

fn before(tokens: &[Token], at: usize) -> Option<&str> {
    at.checked_sub(1).map(|at| tokens[at].text.as_str())
}

/// Words, `::`, and every other character by itself.
fn tokens(bare: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    for (text, line) in bare.lines().zip(1..) {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let length = match word {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                word => word,
            };
            tokens.push(Token { line, text: rest[..length].to_owned() });
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// The text without comments and without what stands in quotes; the lines stay.
pub(super) fn bare(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            'r' if !bare.ends_with(|c: char| c.is_alphanumeric() || c == '_') => raw_string(rest),
            '"' => string(rest),
            '\'' => character(rest),
            _ => 0,
        };
        if skipped == 0 {
            bare.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            bare.push(' ');
            bare.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
            rest = &rest[skipped..];
        }
    }
    bare
}

/// The length of `"…"`.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// The length of `r#"…"#`; 0 when it is none.
fn raw_string(text: &str) -> usize {
    let hashes = text[1..].chars().take_while(|c| *c == '#').count();
    if !text[1 + hashes..].starts_with('"') {
        return 0;
    }
    let close = "\"".to_owned() + &"#".repeat(hashes);
    let body = 2 + hashes;
    text[body..].find(&close).map_or(text.len(), |end| body + end + close.len())
}

/// The length of `'x'`; 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => text[3..].find('\'').map_or(0, |end| end + 4),
        Some(_) => chars.next().filter(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}
