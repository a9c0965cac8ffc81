//! Each rule by itself: what breaks it, where that is told, and what does not break it.

use super::super::read;
use super::found;
use crate::domain::Status;
use crate::domain::lifecycle::{Lifecycle, LimitThen, OnStepFailed, Phase, Requirement, Suspended, WordRule};

/// The findings of a declaration that is right but for its last lines, the first of which is line 3.
fn with(lines: &str) -> Vec<String> {
    found(&format!("name: a\nphases: {{a: {{initial: true, next: b}}, b: {{suspends: PAUSED}}}}\n{lines}\n"))
}

/// The findings of a declaration whose second line begins with these phases.
fn phases(phases: &str) -> Vec<String> {
    found(&format!("name: a\nphases: {phases}\n"))
}

fn lifecycle(lines: &str) -> Lifecycle {
    read(&format!("name: a\nphases: {{a: {{initial: true}}}}\n{lines}\n")).unwrap()
}

/// Holds the findings of some lines against those that are wanted.
fn each(told: impl Fn(&str) -> Vec<String>, wanted: &[(&str, &str)]) {
    for (lines, wanted) in wanted {
        let told = told(lines);
        let is_wanted = if wanted.is_empty() { told.is_empty() } else { told == [*wanted] };
        assert!(is_wanted, "{lines}\n{told:#?}");
    }
}

#[test]
fn every_value_is_read() {
    let read = lifecycle(
        "at_end: a\nmax_iterations: 4294967295\nmax_iterations_then: SUSPEND\non_step_failed: CONTINUE\n\
         complete_when_steps_done: true\nready_timeout: 1d\nreport_every: 1h30m\nredact_keys: ['*PassWord*', GRÖSSE]\n\
         completion_requires: [REPORT, 'LINK:evidence']\nbudgets: [{name: wall, limit: 5, warn_at: 1, then: ABORT}]",
    );
    assert_eq!((read.name.as_str(), read.phases.len(), read.at_end.as_deref()), ("a", 1, Some("a")));
    assert_eq!((read.max_iterations, read.max_iterations_then), (Some(u32::MAX), Some(LimitThen::Suspend)));
    assert_eq!((read.on_step_failed, read.complete_when_steps_done), (Some(OnStepFailed::Continue), true));
    assert_eq!((read.ready_timeout_ms, read.report_every_ms), (Some(86_400_000), Some(5_400_000)));
    assert_eq!(read.redact_keys, ["*password*", "grösse"]);
    assert_eq!(read.completion_requires, [Requirement::Report, Requirement::Link("evidence".into())]);
    assert_eq!((read.budgets[0].limit, read.budgets[0].warn_at), (5, Some(1.0)));
}

#[test]
fn phases_keep_their_order_and_one_that_follows_needs_no_list() {
    let read = read("name: a\nphases:\n  z: {initial: true, next: b}\n  b: {next: [c]}\n  c:\n").unwrap();
    let phase = |name: &str, next: &[&str]| {
        let next = next.iter().map(|&name| name.to_owned()).collect();
        Phase { name: name.into(), initial: name == "z", next, ..Phase::default() }
    };
    assert_eq!(read.phases, [phase("z", &["b"]), phase("b", &["c"]), phase("c", &[])]);
}

#[test]
fn a_rule_of_words_has_any_of_the_conditions() {
    let read = lifecycle(
        "words: [{status: PENDING, phase: a, ready: true, reason_code: X_1, word: 'a b'}, {suspended: true, word: t}, \
         {suspended: HELP, word: h}, {word_from: phase}]",
    );
    let all = WordRule {
        status: Some(Status::Pending),
        phase: Some("a".into()),
        ready: Some(true),
        reason_code: Some("X_1".into()),
        word: Some("a b".into()),
        suspended: None,
    };
    let suspended =
        |suspended, word: &str| WordRule { suspended: Some(suspended), word: Some(word.into()), ..WordRule::default() };
    let [any, help] = [suspended(Suspended::Any(true), "t"), suspended(Suspended::Kind("HELP".into()), "h")];
    assert_eq!(read.words, [all, any, help, WordRule::default()]);
}

#[test]
fn what_must_be_there_is_told_where_it_is_missing() {
    each(
        found,
        &[
            ("[]", "line 1, column 1: expected a mapping, not a list"),
            ("phases: {a: {initial: true}}", "line 1, column 1: name: is missing"),
            ("\n\nname: a", "line 3, column 1: phases: is missing"),
            ("name: a\nphases: {}", "line 2, column 1: phases: there is no phase: one at least is needed"),
            ("name: a\nphases:", "line 2, column 7: phases: expected a mapping, not nothing"),
            (
                "name: a\nphases: {}\nat_end: b\nwords: [{phase: x, word: y}]",
                "line 2, column 1: phases: there is no phase: one at least is needed",
            ),
        ],
    );
    each(
        with,
        &[
            ("budgets: [{name: a, then: ABORT}]", "line 3, column 11: budgets[0].limit: is missing"),
            ("budgets: [{name: a, limit: 1}]", "line 3, column 11: budgets[0].then: is missing"),
            ("iterates: {from: a}", "line 3, column 1: iterates.to: is missing"),
            ("words: [{status: FAILED}]", "line 3, column 9: words[0]: has neither word nor word_from"),
        ],
    );
}

#[test]
fn an_unknown_key_is_told_with_the_nearest_one_or_with_all() {
    each(
        with,
        &[
            (
                "max_iteration: 5",
                "line 3, column 1: max_iteration: there is no key \"max_iteration\": did you mean max_iterations?",
            ),
            (
                "iterates: {from: a, to: b, x: 1}",
                "line 3, column 28: iterates.x: there is no key \"x\": the keys are from, to",
            ),
            (
                "\"a.\\e\": 1",
                "line 3, column 1: \"a.\\u{1b}\": there is no key \"a.\\u{1b}\": the keys are name, phases, on_suspend, \
          completion_requires, budgets, report_every, redact_keys, words, at_end, iterates, max_iterations, \
          max_iterations_then, on_step_failed, complete_when_steps_done, ready_timeout, max_attempts, attempt_timeout, on_retry",
            ),
        ],
    );
    each(
        phases,
        &[(
            "{a: {initial: true, nxt: []}}",
            "line 2, column 29: phases.a.nxt: there is no key \"nxt\": did you mean next?",
        )],
    );
}

#[test]
fn a_value_of_another_type_is_told() {
    each(
        with,
        &[
            ("at_end: 5", "line 3, column 9: at_end: expected a text, not 5"),
            ("at_end: true", "line 3, column 9: at_end: expected a text, not true"),
            ("at_end: [a]", "line 3, column 9: at_end: expected a text, not a list"),
            ("words: {}", "line 3, column 8: words: expected a list, not a mapping"),
            ("words: [a]", "line 3, column 9: words[0]: expected a mapping, not a"),
            (
                "complete_when_steps_done: 'true'",
                "line 3, column 27: complete_when_steps_done: expected true or false, not \"true\"",
            ),
            (
                "complete_when_steps_done: True",
                "line 3, column 27: complete_when_steps_done: expected true or false, not True",
            ),
            (
                "max_iterations: '5'",
                "line 3, column 17: max_iterations: expected a whole number from 1 to 4294967295, not \"5\"",
            ),
            (
                "words: [{suspended: [], word: a}]",
                "line 3, column 21: words[0].suspended: expected true, false or a kind of suspension, not a list",
            ),
        ],
    );
    each(
        phases,
        &[
            ("{a: {initial: yes}}", "line 2, column 23: phases.a.initial: expected true or false, not yes"),
            (
                "{a: {initial: true, next: {}}}",
                "line 2, column 35: phases.a.next: expected the name of a phase or a list of such names, not a mapping",
            ),
            (
                "{a: {initial: true, next: [b, []]}, b: {}, c: {}}",
                "line 2, column 39: phases.a.next[1]: expected a text, not a list",
            ),
            ("{a: 5}", "line 2, column 13: phases.a: expected a mapping, not 5"),
        ],
    );
}

#[test]
fn a_number_or_a_duration_out_of_its_bounds_is_told() {
    for number in ["0", "4294967296", "1.0", "1e3", "007", "0x10", "-1", "+1", "1_000"] {
        let wanted =
            format!("line 3, column 17: max_iterations: expected a whole number from 1 to 4294967295, not {number}");
        assert_eq!(with(&format!("max_iterations: {number}")), [wanted]);
    }
    for share in ["0", "1.01", "-0.5", "nan", ".inf", "1e-400"] {
        let wanted =
            format!("line 3, column 40: budgets[0].warn_at: expected a number above 0, at most 1, not {share}");
        assert_eq!(with(&format!("budgets: [{{name: a, limit: 1, warn_at: {share}, then: ABORT}}]")), [wanted]);
    }
    for duration in ["0s", "366d1ms", "15", "1.5h", "30m1h", "soon"] {
        let rule = "expected a duration such as 500ms, 90s, 15m, 1h30m or 7d, from 1ms to 366d";
        let wanted = format!("line 3, column 15: report_every: {rule}, not {duration}");
        assert_eq!(with(&format!("report_every: {duration}")), [wanted]);
    }
    each(
        with,
        &[
            ("report_every: 366d", ""),
            ("ready_timeout: 1ms", ""),
            ("budgets: [{name: a, limit: 9223372036854775807, warn_at: 1e-3, then: ABORT}]", ""),
        ],
    );
}

#[test]
fn a_text_that_breaks_its_rule_is_told() {
    let name = "must be 1 to 64 characters of [a-z0-9_.-], a lower-case letter first";
    let code = "must be 1 to 64 characters of [A-Z0-9_], an upper-case letter first";
    each(
        with,
        &[
            (
                "budgets: [{name: A, limit: 1, then: ABORT}]",
                &format!("line 3, column 18: budgets[0].name: \"A\" {name}"),
            ),
            ("words: [{suspended: help, word: a}]", &format!("line 3, column 21: words[0].suspended: \"help\" {code}")),
            ("words: [{suspended: QUESTION, word: a}]", ""),
            ("words: [{reason_code: 1A, word: a}]", &format!("line 3, column 23: words[0].reason_code: \"1A\" {code}")),
            ("words: [{word: ''}]", "line 3, column 16: words[0].word: must have 1 to 64 bytes"),
            ("words: [{word: ' a'}]", "line 3, column 16: words[0].word: must not begin or end with a blank"),
            ("words: [{word: \"a\\tb\"}]", "line 3, column 16: words[0].word: must not have control characters"),
            ("words: [{word_from: status}]", "line 3, column 21: words[0].word_from: expected phase, not status"),
            ("redact_keys: ['']", "line 3, column 15: redact_keys[0]: must have 1 to 64 bytes"),
            ("redact_keys: [a*, '*']", "line 3, column 19: redact_keys[1]: matches every key"),
            (
                "completion_requires: [report]",
                "line 3, column 23: completion_requires[0]: expected REPORT or LINK:rel, not \"report\"",
            ),
            ("on_suspend: {Paused: b}", &format!("line 3, column 14: on_suspend.Paused: \"Paused\" {code}")),
            (
                "on_suspend: {QUESTION: b}",
                "line 3, column 14: on_suspend.QUESTION: QUESTION has no phase: an answer resumes the run without naming one",
            ),
        ],
    );
    each(
        phases,
        &[
            ("{A: {initial: true}}", &format!("line 2, column 10: phases.A: \"A\" {name}")),
            (
                "{a: {initial: true, next: b}, b: {suspends: x}}",
                &format!("line 2, column 53: phases.b.suspends: \"x\" {code}"),
            ),
        ],
    );
    let long = "a".repeat(65);
    assert_eq!(found(&format!("name: {long}\nphases: {{a: {{initial: true}}}}")).len(), 1);
    assert_eq!(with(&format!("redact_keys: [{long}]")), ["line 3, column 15: redact_keys[0]: must have 1 to 64 bytes"]);
    assert_eq!(
        with(&format!("words: [{{word: {long}}}]")),
        ["line 3, column 16: words[0].word: must have 1 to 64 bytes"]
    );
}

#[test]
fn what_must_be_there_once_is_told_the_second_time() {
    each(
        with,
        &[
            (
                "completion_requires: [REPORT, REPORT]",
                "line 3, column 31: completion_requires[1]: \"REPORT\" stands on line 3 already",
            ),
            (
                "budgets: [{name: a, limit: 1, then: ABORT}, {name: a, limit: 1, then: ABORT}]",
                "line 3, column 52: budgets[1].name: \"a\" stands on line 3 already",
            ),
            ("at_end: b\nat_end: b", "line 4, column 1: at_end: the key \"at_end\" stands on line 3 already"),
        ],
    );
}

#[test]
fn the_first_one_too_many_is_told() {
    let listed = |key: &str, count: usize, item: &dyn Fn(usize) -> String| {
        let items: Vec<String> = (0..count).map(item).collect();
        let told = with(&format!("{key}: [{}]", items.join(", ")));
        told.iter().map(|finding| finding.split_once(": ").unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    for (key, max, item) in [
        ("budgets", 16, &(|index| format!("{{name: a{index}, limit: 1, then: ABORT}}")) as &dyn Fn(usize) -> String),
        ("completion_requires", 16, &|index| format!("'LINK:a{index}'")),
        ("redact_keys", 32, &|index| format!("a{index}")),
        ("words", 64, &|index| format!("{{reason_code: A{index}, word: a}}")),
    ] {
        assert_eq!(listed(key, max, item), none, "{key}");
        assert_eq!(listed(key, max + 2, item), [format!("{key}[{max}]: there may be {max} at most")]);
    }
    let many = |count: usize| {
        let more: Vec<String> = (1..count).map(|index| format!("p{index}: {{next: p{}}}", index - 1)).collect();
        phases(&format!("{{p0: {{initial: true, next: p{}}}, {}}}", count - 1, more.join(", ")))
    };
    assert_eq!(many(32), none);
    let told = many(34);
    assert!(told.len() == 1 && told[0].ends_with("phases.p32: there may be 32 at most"), "{told:?}");
}
