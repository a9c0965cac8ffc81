//! What holds for every text.

use proptest::prelude::*;

use super::super::{built_in, built_ins, read};
use crate::domain::limits::LIFECYCLE_BYTES_MAX;

/// Parts of declarations, and of what is none.
const PARTS: &[&str] = &[
    "name: ",
    "phases: ",
    "next: ",
    "initial: ",
    "true",
    "a",
    "b",
    "a: ",
    "? ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    ": ",
    "\n",
    "\n  ",
    "\r\n",
    "\t",
    "\"",
    "'",
    "&a ",
    "*a",
    "!t ",
    "!!str ",
    "<<: ",
    "|\n",
    ">-\n  ",
    "#",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "\\u",
    "\\ud83d",
    "\\/",
    "~",
    "null",
    "\u{feff}",
    "\u{85}",
    "\u{2028}",
    "ä",
    "😀",
    "\0",
    "1e9",
    "words: ",
    "word_from: phase",
    "on_suspend: ",
    "suspends: ",
    "QUESTION",
    "at_end: ",
    "budgets: ",
    "7d",
    "{\"name\": \"a\", ",
];

fn text() -> impl Strategy<Value = String> {
    let parts = prop::collection::vec(prop::sample::select(PARTS), 0..60).prop_map(|parts| parts.concat());
    prop_oneof![parts, any::<String>(), changed()]
}

/// A declaration with a part of it cut out and another one put in.
fn changed() -> impl Strategy<Value = String> {
    let sources: Vec<&str> = built_ins().map(|(_, source)| source).collect();
    let place = any::<prop::sample::Index>();
    (prop::sample::select(sources), place, 0_usize..40, prop::sample::select(PARTS)).prop_map(
        |(source, at, cut, part)| {
            let start = source.floor_char_boundary(at.index(source.len()));
            let end = source.ceil_char_boundary((start + cut).min(source.len()));
            format!("{}{part}{}", &source[..start], &source[end..])
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 500 } else { 20_000 }))]

    #[test]
    fn a_text_is_read_or_has_findings_in_their_order_and_within_it(text in text()) {
        if let Err(findings) = read(&text) {
            prop_assert!(!findings.is_empty());
            prop_assert!(findings.is_sorted_by_key(|finding| finding.at));
            let lines = text.split(['\n', '\r']).count();
            for finding in &findings {
                prop_assert!(finding.at.line >= 1 && finding.at.column >= 1, "{finding}");
                prop_assert!(finding.at.line <= lines + 1 && finding.at.column <= text.chars().count() + 1, "{finding}");
                prop_assert!(!finding.to_string().contains(char::is_control), "{finding:?}");
            }
        }
    }

    #[test]
    fn white_space_at_the_end_changes_nothing(text in text(), blanks in "[ \t\r\n]{0,8}") {
        prop_assert_eq!(read(&text), read(&format!("{text}{blanks}")));
    }

    #[test]
    fn a_lifecycle_that_was_read_is_the_same_after_the_ledger_kept_it(text in changed()) {
        if let Ok(lifecycle) = read(&text) {
            let kept = serde_json::to_string(&lifecycle).unwrap();
            prop_assert_eq!(serde_json::from_str::<crate::domain::lifecycle::Lifecycle>(&kept).unwrap(), lifecycle);
        }
    }
}

#[test]
fn the_longest_texts_are_read_as_fast_as_others() {
    let fill = |head: &str, part: &str, tail: &str| {
        let count = (LIFECYCLE_BYTES_MAX - head.len() - tail.len()) / part.len();
        format!("{head}{}{tail}", part.repeat(count))
    };
    let numbered = |head: &str, part: &dyn Fn(usize) -> String, tail: &str| {
        let mut text = head.to_owned();
        for index in 0.. {
            let part = part(index);
            if text.len() + part.len() + tail.len() > LIFECYCLE_BYTES_MAX {
                break;
            }
            text.push_str(&part);
        }
        text + tail
    };
    for text in [
        fill("name: a\nphases: {a: {initial: true, next: [", "b,", "]}}"),
        fill("name: a\nphases: {a: {initial: true, next: [", "1,", "]}}"),
        fill("redact_keys: [", "*,", "]"),
        fill("words: [", "{},", "]"),
        fill("{\"a\":[", "[],", "[]]}"),
        fill("", "\"", ""),
        fill("a: ", "\"\n", ""),
        fill("", "a:\n ", ""),
        numbered("{", &|index| format!("{index}:,"), "}"),
        numbered("phases: {", &|index| format!("a{index}: {{next: b{index}}},"), "}"),
        numbered("phases: {", &|index| format!("a{index}: a{},", index + 1), "}"),
        numbered("on_suspend: {", &|index| format!("A{index}: a,"), "}\nphases: {a: {suspends: A}}"),
    ] {
        assert!(read(&text).is_err(), "{}", &text[..40]);
    }
    let padded = format!("{}\n#", built_in("openviber.task").unwrap());
    assert!(read(&format!("{padded}{}", "#".repeat(LIFECYCLE_BYTES_MAX - padded.len()))).is_ok());
}
