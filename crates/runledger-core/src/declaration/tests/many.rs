//! Many mistakes at once are all told, each with its place, in YAML as in JSON.

use super::found;

const YAML: &str = r#"name: Bad Name
phases:
  start:   {initial: true, next: [middle, nowhere, start, middle]}
  middle:  {next: ende, timeout: 5m}
  ende:    {may_complete: true, next: waiting}
  waiting: {suspends: QUESTION, timeout: 400d, next: [start]}
  again:   {initial: true, next: [start], colour: red}
  island:  {may_complete: 1, next: [start]}
  loop:    {}
on_suspend: {PAUSED: middle, HELP: lost, blocked: waiting}
completion_requires: [REPORT, "LINK:Bad"]
budgets: [{name: tokens, limit: -1, warn_at: 1.5, then: STOP}, {limit: 1, then: ABORT}]
report_every: 15
redact_keys: ["*password*", "**"]
words:
  - {status: DONE, word: done}
  - {phase: absent, word: x, word_from: phase}
  - {word: "always"}
  - {status: FAILED, word: failed}
at_end: gone
iterates: {from: middle, to: start}
max_iterations: 0
max_iterations_then: WAIT
complete_when_steps_done: yes
"#;

const FOUND: &[&str] = &[
    "line 1, column 7: name: \"Bad Name\" must be 1 to 64 characters of [a-z0-9_.-], a lower-case letter first",
    "line 3, column 43: phases.start.next[1]: there is no phase \"nowhere\"",
    "line 3, column 52: phases.start.next[2]: the same phase again is no transition",
    "line 3, column 59: phases.start.next[3]: the phase \"middle\" stands in the list already",
    "line 4, column 34: phases.middle.timeout: the phase does not suspend, so there is no suspension to end",
    "line 6, column 23: phases.waiting.suspends: QUESTION has no phase: an answer resumes the run without naming one",
    "line 6, column 42: phases.waiting.timeout: expected a duration such as 500ms, 90s, 15m, 1h30m or 7d, from 1ms to 366d, not 400d",
    "line 7, column 22: phases.again.initial: the phase \"start\" is initial already",
    "line 7, column 43: phases.again.colour: there is no key \"colour\": the keys are initial, next, may_complete, suspends, timeout, timeout_then",
    "line 8, column 3: phases.island: nothing leads to this phase",
    "line 8, column 27: phases.island.may_complete: expected true or false, not 1",
    "line 9, column 3: phases.loop: no phase with may_complete can be reached from this phase",
    "line 9, column 3: phases.loop: nothing leads to this phase",
    "line 10, column 22: on_suspend.PAUSED: the phase \"middle\" does not suspend",
    "line 10, column 36: on_suspend.HELP: there is no phase \"lost\"",
    "line 10, column 42: on_suspend.blocked: \"blocked\" must be 1 to 64 characters of [A-Z0-9_], an upper-case letter first",
    "line 11, column 31: completion_requires[1]: expected REPORT or LINK:rel, not \"LINK:Bad\"",
    "line 12, column 33: budgets[0].limit: expected a whole number from 1 to 9223372036854775807, not -1",
    "line 12, column 46: budgets[0].warn_at: expected a number above 0, at most 1, not 1.5",
    "line 12, column 57: budgets[0].then: expected SIGNAL or SUSPEND or ABORT, not STOP",
    "line 12, column 64: budgets[1].name: is missing",
    "line 13, column 15: report_every: expected a duration such as 500ms, 90s, 15m, 1h30m or 7d, from 1ms to 366d, not 15",
    "line 14, column 29: redact_keys[1]: matches every key",
    "line 16, column 14: words[0].status: expected PENDING or RUNNING or COMPLETED or ABORTED or FAILED, not DONE",
    "line 17, column 5: words[1]: has word and word_from: one of them must go",
    "line 17, column 13: words[1].phase: there is no phase \"absent\"",
    "line 19, column 5: words[3]: is never reached: words[2] has no condition",
    "line 20, column 9: at_end: there is no phase \"gone\"",
    "line 21, column 30: iterates.to: the phase \"middle\" does not lead to \"start\"",
    "line 22, column 17: max_iterations: expected a whole number from 1 to 4294967295, not 0",
    "line 23, column 22: max_iterations_then: expected REFUSE or SUSPEND or ABORT, not WAIT",
    "line 24, column 27: complete_when_steps_done: expected true or false, not yes",
];

/// The same in JSON, indented with tabs.
const JSON: &str = r#"{
	"name": "Bad Name",
	"phases": {
		"start": {"initial": true, "next": ["middle", "nowhere", "start", "middle"]},
		"middle": {"next": "ende", "timeout": "5m"},
		"ende": {"may_complete": true, "next": "waiting"},
		"waiting": {"suspends": "QUESTION", "timeout": "400d", "next": ["start"]},
		"again": {
			"initial": true,
			"next": ["start"],
			"colour": "red"
		},
		"island": {"may_complete": 1, "next": ["start"]},
		"loop": {}
	},
	"on_suspend": {"PAUSED": "middle", "HELP": "lost", "blocked": "waiting"},
	"completion_requires": ["REPORT", "LINK:Bad"],
	"budgets": [
		{"name": "tokens", "limit": -1, "warn_at": 1.5, "then": "STOP"},
		{"limit": 1, "then": "ABORT"}
	],
	"report_every": 15,
	"redact_keys": ["*password*", "**"],
	"words": [
		{"status": "DONE", "word": "\u00e4\/\ud83d\ude00"},
		{"phase": "absent", "word": "x", "word_from": "phase"},
		{"word": "always"},
		{"status": "FAILED", "word": "failed"}
	],
	"at_end": "gone",
	"iterates": {"from": "middle", "to": "start"},
	"max_iterations": 0,
	"max_iterations_then": "WAIT",
	"complete_when_steps_done": "yes"
}
"#;

const FOUND_IN_JSON: &[&str] = &[
    "line 2, column 10: name: \"Bad Name\" must be 1 to 64 characters of [a-z0-9_.-], a lower-case letter first",
    "line 4, column 49: phases.start.next[1]: there is no phase \"nowhere\"",
    "line 4, column 60: phases.start.next[2]: the same phase again is no transition",
    "line 4, column 69: phases.start.next[3]: the phase \"middle\" stands in the list already",
    "line 5, column 41: phases.middle.timeout: the phase does not suspend, so there is no suspension to end",
    "line 7, column 27: phases.waiting.suspends: QUESTION has no phase: an answer resumes the run without naming one",
    "line 7, column 50: phases.waiting.timeout: expected a duration such as 500ms, 90s, 15m, 1h30m or 7d, from 1ms to 366d, not \"400d\"",
    "line 9, column 15: phases.again.initial: the phase \"start\" is initial already",
    "line 11, column 4: phases.again.colour: there is no key \"colour\": the keys are initial, next, may_complete, suspends, timeout, timeout_then",
    "line 13, column 3: phases.island: nothing leads to this phase",
    "line 13, column 30: phases.island.may_complete: expected true or false, not 1",
    "line 14, column 3: phases.loop: no phase with may_complete can be reached from this phase",
    "line 14, column 3: phases.loop: nothing leads to this phase",
    "line 16, column 27: on_suspend.PAUSED: the phase \"middle\" does not suspend",
    "line 16, column 45: on_suspend.HELP: there is no phase \"lost\"",
    "line 16, column 53: on_suspend.blocked: \"blocked\" must be 1 to 64 characters of [A-Z0-9_], an upper-case letter first",
    "line 17, column 36: completion_requires[1]: expected REPORT or LINK:rel, not \"LINK:Bad\"",
    "line 19, column 31: budgets[0].limit: expected a whole number from 1 to 9223372036854775807, not -1",
    "line 19, column 46: budgets[0].warn_at: expected a number above 0, at most 1, not 1.5",
    "line 19, column 59: budgets[0].then: expected SIGNAL or SUSPEND or ABORT, not \"STOP\"",
    "line 20, column 3: budgets[1].name: is missing",
    "line 22, column 18: report_every: expected a duration such as 500ms, 90s, 15m, 1h30m or 7d, from 1ms to 366d, not 15",
    "line 23, column 32: redact_keys[1]: matches every key",
    "line 25, column 14: words[0].status: expected PENDING or RUNNING or COMPLETED or ABORTED or FAILED, not \"DONE\"",
    "line 26, column 3: words[1]: has word and word_from: one of them must go",
    "line 26, column 13: words[1].phase: there is no phase \"absent\"",
    "line 28, column 3: words[3]: is never reached: words[2] has no condition",
    "line 30, column 12: at_end: there is no phase \"gone\"",
    "line 31, column 39: iterates.to: the phase \"middle\" does not lead to \"start\"",
    "line 32, column 20: max_iterations: expected a whole number from 1 to 4294967295, not 0",
    "line 33, column 25: max_iterations_then: expected REFUSE or SUSPEND or ABORT, not \"WAIT\"",
    "line 34, column 30: complete_when_steps_done: expected true or false, not \"yes\"",
];

#[test]
fn many_mistakes_are_all_told_with_line_and_column() {
    assert_eq!(found(YAML), FOUND);
}

#[test]
fn the_same_mistakes_in_json_have_their_own_places() {
    assert_eq!(found(JSON), FOUND_IN_JSON);
    assert_eq!(FOUND_IN_JSON.len(), FOUND.len(), "it is the same declaration");
}
