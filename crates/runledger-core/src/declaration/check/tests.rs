//! The rules over several values: what breaks each of them, and that nothing is told which only follows.

use crate::declaration::{Finding, read};

/// The findings of a declaration whose second line begins with these phases.
fn phases(lines: &str) -> Vec<String> {
    let read = read(&format!("name: a\nphases: {lines}\n"));
    read.map_or_else(|findings| findings.iter().map(Finding::to_string).collect(), |_| Vec::new())
}

/// Holds the findings of some phases against those that are wanted.
fn each(wanted: &[(&str, &[&str])]) {
    for (lines, wanted) in wanted {
        assert_eq!(phases(lines), *wanted, "{lines}");
    }
}

#[test]
fn exactly_one_phase_is_initial_and_does_not_suspend() {
    each(&[
        ("{a: {next: b}, b: {}}", &["line 2, column 1: phases: no phase is initial: one must be"]),
        ("{a: {initial: false}}", &["line 2, column 1: phases: no phase is initial: one must be"]),
        (
            "{a: {initial: true}, b: {initial: true}, c: {initial: true}}",
            &[
                "line 2, column 43: phases.b.initial: the phase \"a\" is initial already",
                "line 2, column 63: phases.c.initial: the phase \"a\" is initial already",
            ],
        ),
        (
            "{a: {initial: true, suspends: PAUSED}}",
            &["line 2, column 39: phases.a.suspends: the initial phase must not suspend: nobody could begin the run"],
        ),
        (
            "{a: {initial: 1}, b: {}}",
            &[
                "line 2, column 23: phases.a.initial: expected true or false, not 1",
                "line 2, column 27: phases.b: nothing leads to this phase",
            ],
        ),
    ]);
}

#[test]
fn a_phase_leads_to_others_that_are_there_and_to_each_once() {
    each(&[
        (
            "{a: {initial: true, next: [b, c]}, b: {next: a}}",
            &["line 2, column 39: phases.a.next[1]: there is no phase \"c\""],
        ),
        ("{a: {initial: true, next: c}}", &["line 2, column 35: phases.a.next: there is no phase \"c\""]),
        ("{a: {initial: true, next: a}}", &["line 2, column 35: phases.a.next: the same phase again is no transition"]),
        (
            "{a: {initial: true, next: [b, b]}, b: {}}",
            &["line 2, column 39: phases.a.next[1]: the phase \"b\" stands in the list already"],
        ),
        (
            "{a: {initial: true, next: [c.d]}, c.d: {next: [e.f]}}",
            &["line 2, column 56: phases.\"c.d\".next[0]: there is no phase \"e.f\""],
        ),
    ]);
}

#[test]
fn something_leads_to_each_phase() {
    each(&[
        ("{a: {initial: true}, b: {}}", &["line 2, column 30: phases.b: nothing leads to this phase"]),
        (
            "{a: {initial: true}, b: {next: c}, c: {next: b}}",
            &[
                "line 2, column 30: phases.b: nothing leads to this phase",
                "line 2, column 44: phases.c: nothing leads to this phase",
            ],
        ),
        ("{a: {initial: true}, b: {suspends: PAUSED, next: c}, c: {}}\non_suspend: {HELP: b}", &[]),
        ("{a: {initial: true}, b: {}}\nat_end: b", &[]),
        (
            "{a: {initial: true}, b: {next: c}, c: {}}\nat_end: b",
            &["line 2, column 44: phases.c: nothing leads to this phase"],
        ),
    ]);
}

#[test]
fn from_each_phase_an_end_can_be_reached() {
    let no_end = |column, name| {
        format!("line 2, column {column}: phases.{name}: no phase with may_complete can be reached from this phase")
    };
    each(&[
        ("{a: {initial: true, next: b}, b: {}}", &[]),
        ("{a: {initial: true, next: [b, c]}, b: {may_complete: true}, c: {}}", &[&no_end(69, "c")]),
        (
            "{a: {initial: true, next: [b, c]}, b: {may_complete: true}, c: {next: d}, d: {next: c}}",
            &[&no_end(69, "c"), &no_end(83, "d")],
        ),
        ("{a: {initial: true, next: b}, b: {may_complete: true}, c: {}}\nat_end: c", &[]),
        ("{a: {initial: true, next: [b, c]}, b: {may_complete: true}, c: {}}\nat_end: c", &[&no_end(69, "c")]),
        ("{a: {initial: true, next: b}, b: {next: c}, c: {next: [a, d]}, d: {may_complete: true}}", &[]),
    ]);
}

#[test]
fn what_is_said_of_suspensions_goes_together() {
    let ways = "{a: {initial: true, next: b}, b: {suspends: PAUSED}}";
    for (lines, wanted) in [
        ("on_suspend: {PAUSED: b, BUDGET: b}", ""),
        ("on_suspend: {PAUSED: c}", "line 3, column 22: on_suspend.PAUSED: there is no phase \"c\""),
        ("on_suspend: {PAUSED: a}", "line 3, column 22: on_suspend.PAUSED: the phase \"a\" does not suspend"),
    ] {
        assert_eq!(phases(&format!("{ways}\n{lines}")).join("\n"), wanted, "{lines}");
    }
    each(&[
        (
            "{a: {initial: true, timeout: 5m}}",
            &["line 2, column 38: phases.a.timeout: the phase does not suspend, so there is no suspension to end"],
        ),
        (
            "{a: {initial: true, timeout: 5m, suspends: []}}",
            &["line 2, column 52: phases.a.suspends: expected a text, not a list"],
        ),
        (
            "{a: {initial: true, next: b}, b: {suspends: QUESTION, timeout: 5m}}\non_suspend: {PAUSED: b}",
            &[
                "line 2, column 53: phases.b.suspends: QUESTION has no phase: an answer resumes the run without naming one",
            ],
        ),
    ]);
}

#[test]
fn names_of_phases_elsewhere_are_there() {
    let ways = "{a: {initial: true, next: b}, b: {}}";
    for (lines, wanted) in [
        ("at_end: c", "line 3, column 9: at_end: there is no phase \"c\""),
        ("iterates: {from: c, to: b}", "line 3, column 18: iterates.from: there is no phase \"c\""),
        ("iterates: {from: a, to: c}", "line 3, column 25: iterates.to: there is no phase \"c\""),
        ("iterates: {from: a, to: b}", ""),
        ("iterates: {from: b, to: a}", "line 3, column 25: iterates.to: the phase \"b\" does not lead to \"a\""),
        ("iterates: {from: a}", "line 3, column 1: iterates.to: is missing"),
        ("iterates: {from: a, to: 1}", "line 3, column 25: iterates.to: expected a text, not 1"),
        ("words: [{phase: c, word: x}]", "line 3, column 17: words[0].phase: there is no phase \"c\""),
    ] {
        assert_eq!(phases(&format!("{ways}\n{lines}")).join("\n"), wanted, "{lines}");
    }
}

#[test]
fn a_rule_of_words_behind_one_without_a_condition_is_never_reached() {
    let ways = "{a: {initial: true}}";
    let never = "line 3, column 22: words[1]: is never reached: words[0] has no condition";
    for (lines, wanted) in [
        ("words: [{word: x}]", ""),
        ("words: [{word:  xyz}, {word: y}, {word: z}]", &*never.replace("22", "23")),
        ("words: [{word_from: phase}, {word: y}]", &*never.replace("22", "29")),
        ("words: [{ready: false, word: x}, {word: y}]", ""),
        ("words: [{}, {word: y}]", "line 3, column 9: words[0]: has neither word nor word_from"),
    ] {
        assert_eq!(phases(&format!("{ways}\n{lines}")).join("\n"), wanted, "{lines}");
    }
}

#[test]
fn nothing_is_told_that_only_follows_from_a_finding() {
    each(&[
        // The slip is for `verifying`, to which nothing would lead.
        (
            "{a: {initial: true, next: verifyng}, verifying: {may_complete: true}}",
            &["line 2, column 35: phases.a.next: there is no phase \"verifyng\""],
        ),
        (
            "{a: {initial: true, next: 5}, b: {next: b2}, b2: {}}",
            &["line 2, column 35: phases.a.next: expected a text, not 5"],
        ),
        (
            "{a: {initial: true, next: [B]}, B: {}}",
            &[
                "line 2, column 41: phases.B: \"B\" must be 1 to 64 characters of [a-z0-9_.-], a lower-case letter first",
            ],
        ),
        (
            "{a: {initial: true, next: b}, b: {may_complete: 1}}",
            &["line 2, column 57: phases.b.may_complete: expected true or false, not 1"],
        ),
        (
            "{a: {initial: true}, b: {suspends: X}}\non_suspend: {X: []}",
            &["line 3, column 17: on_suspend.X: expected a text, not a list"],
        ),
        ("{a: {initial: true}, b: {}}\nat_end: 5", &["line 3, column 9: at_end: expected a text, not 5"]),
        ("{a: 5, b: {}}", &["line 2, column 13: phases.a: expected a mapping, not 5"]),
        (
            "{a: &x {initial: true, next: b}, b: *x}",
            &[
                "line 2, column 13: phases.a: anchors are not taken",
                "line 2, column 45: phases.b: aliases are not taken: write the value itself",
            ],
        ),
    ]);
}

#[test]
fn what_becomes_of_a_run_is_said_of_a_suspension_that_has_an_end_and_leads_on() {
    each(&[
        ("{a: {initial: true, next: b}, b: {suspends: HELP, next: a, timeout: 1h, timeout_then: RESUME}}", &[]),
        (
            "{a: {initial: true, timeout_then: FAIL}}",
            &["line 2, column 43: phases.a.timeout_then: the phase does not suspend, so there is no suspension to end"],
        ),
        (
            "{a: {initial: true, next: b}, b: {suspends: HELP, timeout_then: FAIL}}",
            &["line 2, column 73: phases.b.timeout_then: the phase has no timeout"],
        ),
        (
            "{a: {initial: true, next: b}, b: {suspends: HELP, timeout: 1h, timeout_then: RESUME}}",
            &[
                "line 2, column 86: phases.b.timeout_then: a run goes on in the first phase of `next` that does not suspend, and \
               there is none",
            ],
        ),
        (
            "{a: {initial: true, next: b}, b: {suspends: HELP, next: a, timeout: 1h, timeout_then: WAIT}}",
            &["line 2, column 95: phases.b.timeout_then: expected ABORT or RESUME or FAIL, not WAIT"],
        ),
        // Of what could not be read nothing is told that only follows from it.
        (
            "{a: {initial: true, next: b}, b: {suspends: HELP, timeout: 1, timeout_then: FAIL}}",
            &[
                "line 2, column 68: phases.b.timeout: expected a duration such as 500ms, 90s, 15m, 1h30m or 7d, from 1ms to 366d, \
               not 1",
            ],
        ),
    ]);
}
