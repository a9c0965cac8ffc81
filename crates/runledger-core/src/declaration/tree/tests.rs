//! Texts as nodes, and texts that are none.

use std::fmt::Write as _;

use super::*;

/// A tree in a line: plain scalars as they are, others quoted, each with its place.
fn shown(source: &str) -> String {
    fn show(node: &Node, text: &mut String) {
        let At { line, column } = node.at;
        match &node.kind {
            Kind::Scalar { text: scalar, is_plain: true } => write!(text, "{scalar}"),
            Kind::Scalar { text: scalar, is_plain: false } => write!(text, "{scalar:?}"),
            Kind::Refused => write!(text, "?"),
            Kind::List(items) => {
                text.push('[');
                for item in items {
                    show(item, text);
                }
                write!(text, "]")
            }
            Kind::Map(entries) => {
                text.push('{');
                for (key, value) in entries {
                    show(key, text);
                    text.push(':');
                    show(value, text);
                }
                write!(text, "}}")
            }
        }
        .unwrap();
        write!(text, "@{line}:{column} ").unwrap();
    }
    let (tree, findings) = parse(source);
    let mut text = String::new();
    if let Some(tree) = tree {
        show(&tree, &mut text);
    }
    for finding in &findings {
        write!(text, "! {finding} ").unwrap();
    }
    text.trim_end().to_owned()
}

#[test]
fn every_node_has_its_place() {
    assert_eq!(
        shown("a: 1\nb:\n  - x\n  - {c: \"d\"}\n"),
        "{a@1:1 :1@1:4 b@2:1 :[x@3:5 {c@4:6 :\"d\"@4:9 }@4:5 ]@3:3 }@1:1"
    );
    assert_eq!(shown("ä: [é, 'ü']"), "{ä@1:1 :[é@1:5 \"ü\"@1:8 ]@1:4 }@1:1", "a column is a character");
    assert_eq!(shown("a:\nb: ~\n"), "{a@1:1 :@1:2 b@2:1 :~@2:4 }@1:1");
    assert_eq!(shown("# only\n--- # this\na: b\n"), "{a@3:1 :b@3:4 }@3:1");
}

#[test]
fn json_is_read_with_tabs_and_all_its_escapes() {
    let text =
        "{\n\t\"a\": \"x\\/y \\u00e9 \\ud83d\\ude00 \\\" \\\\\",\n\t\t\"b\" : [ 1,-2.5e3 ,true,null,{ } , [] ]\n}";
    let wanted = "{\"a\"@2:2 :\"x/y é 😀 \\\" \\\\\"@2:7 \"b\"@3:3 :[1@3:11 -2.5e3@3:13 true@3:21 null@3:26 {}@3:31 \
                  []@3:37 ]@3:9 }@1:1";
    assert_eq!(shown(text), wanted);
    assert_eq!(shown("{\"😀\": \"ä\", \"b\": 1}"), "{\"😀\"@1:2 :\"ä\"@1:7 \"b\"@1:12 :1@1:17 }@1:1");
    assert_eq!(shown("{a: 1, b: [x], }"), "{a@1:2 :1@1:5 b@1:8 :[x@1:12 ]@1:11 }@1:1", "or as YAML has it");
    let half = shown(r#"{"a": "\ud83d"}"#);
    assert_eq!(
        half,
        "{\"a\"@1:2 :?@1:7 }@1:1 ! line 1, column 7: a: an escape in this text is half a pair of surrogates"
    );
}

#[test]
fn line_ends_and_a_byte_order_mark_move_no_place() {
    let wanted = shown("a: 1\nb: {c: d}\n");
    for text in ["a: 1\r\nb: {c: d}\r\n", "\u{feff}a: 1\nb: {c: d}\n", "a: 1\rb: {c: d}", "a: 1\nb: {c: d}\n  \t\n\r\n"]
    {
        assert_eq!(shown(text), wanted, "{text:?}");
    }
    let wanted = shown("{\"a\": 1,\n\"b\": 2}");
    for text in ["{\"a\": 1,\r\n\"b\": 2}", "\u{feff}{\"a\": 1,\n\"b\": 2}\n \t", "{\"a\": 1,\r\"b\": 2}"] {
        assert_eq!(shown(text), wanted, "{text:?}");
    }
}

#[test]
fn a_syntax_error_is_one_finding_with_its_place() {
    for (text, wanted) in [
        ("a: [1, 2", "! line 1, column 9: no YAML: "),
        ("a: 1\n b: 2", "! line 2, column 3: no YAML: "),
        ("a: \"x", "! line 1, column 4: no YAML: "),
        ("a: \"\\q\"", "! line 1, column 4: no YAML: "),
        ("a: *b", "! line 1, column 4: no YAML: "),
        ("a: 1\n\tb: 2", "! line 1, column 4: no YAML: while scanning a plain scalar, found a tab"),
        ("{\"a\": 1,\n\t\"b\": \"\\q\"}", "! line 2, column 9: no JSON: invalid escape"),
        ("{\n\t\"a\": 1\n\t\"ä\": 2\n}", "! line 3, column 5: no YAML: "),
        ("{\"a\": \"\\ud83d\\ude00\",\n \"b\": }x", "! line 2, column 7: no JSON: expected value"),
        ("{a: 1, b: [}", "! line 1, column 12: no YAML: "),
        ("{\"a\": {\"b\": 1}", "! line 1, column 15: no YAML: "),
        ("a: b: c", "! line 1, column 5: no YAML: "),
        ("}", "! line 1, column 1: no YAML: "),
    ] {
        let found = shown(text);
        assert!(found.starts_with(wanted), "{text:?}: {found}");
        assert_eq!(found.matches('!').count(), 1, "{text:?}: {found}");
    }
}

#[test]
fn what_refers_to_something_else_is_refused_with_its_place() {
    for (text, wanted) in [
        (
            "a: &x 1\nb: *x",
            "{a@1:1 :1@1:4 b@2:1 :?@2:4 }@1:1 ! line 1, column 4: a: anchors are not taken ! line 2, column 4: b: aliases are not taken: write the value itself",
        ),
        (
            "a: [!!str 1, !b {}]",
            "{a@1:1 :[1@1:5 {}@1:14 ]@1:4 }@1:1 ! line 1, column 5: a[0]: tags are not taken ! line 1, column 14: a[1]: tags are not taken",
        ),
        ("a: {<<: {b: 1}}", "{a@1:1 :{}@1:4 }@1:1 ! line 1, column 5: a.<<: merge keys are not taken"),
        (
            "a: {b: 1, b: 2, 'b': 3}",
            "{a@1:1 :{b@1:5 :1@1:8 }@1:4 }@1:1 ! line 1, column 11: a.b: the key \"b\" stands on line 1 already ! line 1, column 17: a.b: the key \"b\" stands on line 1 already",
        ),
        (
            "{\"a\": 1, \"\\u0061\": 2}",
            "{\"a\"@1:2 :1@1:7 }@1:1 ! line 1, column 10: a: the key \"a\" stands on line 1 already",
        ),
        ("a: {[b]: 1}", "{a@1:1 :{}@1:4 }@1:1 ! line 1, column 5: a: a list or a mapping is no key"),
        ("a: 1\n---\nb: 1", "! line 2, column 1: the text has more than one document"),
    ] {
        assert_eq!(shown(text), wanted, "{text}");
    }
}

#[test]
fn no_tree_is_deeper_than_the_limit() {
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(&nested(DEPTH_MAX)).0.is_some());
    let too_deep = "! line 1, column 17: lists and mappings are more than 16 deep";
    assert_eq!(shown(&nested(DEPTH_MAX + 1)), too_deep);
    // The parser looks ahead, and has a limit of its own.
    assert_eq!(shown(&"[".repeat(10_000)), "! line 1, column 256: no YAML: recursion limit exceeded");
    for text in
        ["{\"a\":".repeat(3_000), "{a: ".repeat(4_000), "- ".repeat(8_000), "? ".repeat(8_000), "[{".repeat(8_000)]
    {
        let (tree, findings) = parse(&text);
        assert!(tree.is_none() && findings.len() == 1, "{}: {findings:?}", &text[..10]);
    }
    let json = format!("{}1{}", "{\"a\":".repeat(2_000), "}".repeat(2_000));
    assert!(shown(&json).starts_with("! line 1, column 81: lists and mappings are"));
}

#[test]
fn a_small_text_makes_no_large_tree() {
    let mut laughs = "a0: &a0 [lol, lol]\n".to_owned();
    for level in 1..40 {
        writeln!(laughs, "a{level}: &a{level} [*a{}, *a{}]", level - 1, level - 1).unwrap();
    }
    let (_, findings) = parse(&laughs);
    assert_eq!(findings.len(), 40 + 2 * 39, "each anchor and each alias");
}

#[test]
fn a_text_that_is_none_is_one_finding() {
    assert_eq!(shown("a: b\0c: d"), "! line 1, column 5: the text has the control character '\\0'");
    assert_eq!(shown("a: b\nc: \"\u{1b}[2J\""), "! line 2, column 5: the text has the control character '\\u{1b}'");
    let long = "#".repeat(LIFECYCLE_BYTES_MAX);
    assert_eq!(shown(&long), "! line 1, column 1: there is no declaration in it");
    assert_eq!(shown(&format!("{long}#")), "! line 1, column 1: the text has more than 16384 bytes");
    for empty in ["", " \n\t\n", "# nothing", "\u{feff}"] {
        assert_eq!(shown(empty), "! line 1, column 1: there is no declaration in it", "{empty:?}");
    }
}
