//! The rules over several values: what leads where, and names that must be there.
//!
//! A rule passes over what could not be read, so that no finding only follows from another.

#[cfg(test)]
mod tests;
mod ways;

use std::collections::BTreeSet;

use super::finding::{Finding, quoted, within};
use super::read::ReadDeclaration;
use crate::domain::TimeoutThen;
use crate::domain::lifecycle::{Lifecycle, Phase, WordRule};
use crate::domain::limits::PHASES_MAX;

/// What is wrong with a lifecycle as a whole.
pub(super) fn check(read: &ReadDeclaration) -> Vec<Finding> {
    let mut check = Check { read, lifecycle: &read.lifecycle, findings: Vec::new() };
    check.redact_keys();
    check.words();
    match check.lifecycle.phases.len() {
        0 if check.is_read("phases") => check.refuse("phases", "there is no phase: one at least is needed"),
        // Names mean nothing without phases, and too many of them are a finding of their own.
        0 => {}
        count if count > PHASES_MAX => {}
        _ => {
            check.initial();
            check.phases();
            check.on_suspend();
            check.at_end();
            check.iterates();
            check.ways();
        }
    }
    check.findings
}

/// A lifecycle that is held against the rules.
struct Check<'a> {
    read: &'a ReadDeclaration,
    lifecycle: &'a Lifecycle,
    findings: Vec<Finding>,
}

impl Check<'_> {
    fn refuse(&mut self, path: &str, message: impl Into<String>) {
        self.findings.push(Finding { at: self.read.at(path), path: path.to_owned(), message: message.into() });
    }

    /// Whether the declaration has a value at a path, and it could be read.
    fn is_read(&self, path: &str) -> bool {
        self.read.has(path) && !self.read.is_unread(path)
    }

    /// Whether a phase has something, or may have it: what could not be read counts as said.
    fn may_have(&self, phase: &Phase, key: &str, is_said: bool) -> bool {
        is_said || self.read.is_unread(&of_phase(phase, key))
    }

    /// Holds the name of a phase against those that are there.
    fn named(&mut self, path: &str, name: &str) -> bool {
        let is_there = self.lifecycle.phase(name).is_some();
        if !is_there && self.is_read(path) {
            self.refuse(path, format!("there is no phase {}", quoted(name)));
        }
        is_there
    }

    fn initial(&mut self) {
        let lifecycle = self.lifecycle;
        let is_initial = |phase: &&Phase| phase.initial;
        if !lifecycle.phases.iter().any(|phase| self.may_have(phase, "initial", phase.initial)) {
            self.refuse("phases", "no phase is initial: one must be");
        }
        if let Some(first) = lifecycle.phases.iter().find(is_initial) {
            for phase in lifecycle.phases.iter().filter(is_initial).skip(1) {
                let message = format!("the phase {} is initial already", quoted(&first.name));
                self.refuse(&of_phase(phase, "initial"), message);
            }
        }
        for phase in lifecycle.phases.iter().filter(is_initial).filter(|phase| phase.suspends.is_some()) {
            self.refuse(&of_phase(phase, "suspends"), "the initial phase must not suspend: nobody could begin the run");
        }
    }

    fn phases(&mut self) {
        let lifecycle = self.lifecycle;
        for phase in &lifecycle.phases {
            let mut seen = BTreeSet::new();
            for (index, name) in phase.next.iter().enumerate() {
                let path = self.next_path(phase, index);
                if *name == phase.name {
                    self.refuse(&path, "the same phase again is no transition");
                } else if self.named(&path, name) && !seen.insert(name) {
                    self.refuse(&path, format!("the phase {} stands in the list already", quoted(name)));
                }
            }
            let may_suspend = self.may_have(phase, "suspends", phase.suspends.is_some());
            if phase.timeout_ms.is_some() && !may_suspend {
                self.refuse(
                    &of_phase(phase, "timeout"),
                    "the phase does not suspend, so there is no suspension to end",
                );
            }
            self.timeout_then(phase, may_suspend);
        }
    }

    fn timeout_then(&mut self, phase: &Phase, may_suspend: bool) {
        let Some(then) = phase.timeout_then else { return };
        let path = of_phase(phase, "timeout_then");
        let goes_on = || {
            let may = |name: &String| self.lifecycle.phase(name).is_none_or(|next| next.suspends.is_none());
            phase.next.iter().any(may)
        };
        if !may_suspend {
            self.refuse(&path, "the phase does not suspend, so there is no suspension to end");
        } else if !self.may_have(phase, "timeout", phase.timeout_ms.is_some()) {
            self.refuse(&path, "the phase has no timeout");
        } else if then == TimeoutThen::Resume && !self.may_have(phase, "next", goes_on()) {
            self.refuse(&path, "a run goes on in the first phase of `next` that does not suspend, and there is none");
        }
    }

    fn on_suspend(&mut self) {
        let lifecycle = self.lifecycle;
        for (kind, name) in &lifecycle.on_suspend {
            let path = within("on_suspend", kind);
            if !self.named(&path, name) {
                continue;
            }
            let target = lifecycle.phase(name);
            if target.is_some_and(|phase| !self.may_have(phase, "suspends", phase.suspends.is_some())) {
                self.refuse(&path, format!("the phase {} does not suspend", quoted(name)));
            }
        }
    }

    fn at_end(&mut self) {
        if let Some(name) = &self.lifecycle.at_end {
            self.named("at_end", name);
        }
    }

    fn iterates(&mut self) {
        let lifecycle = self.lifecycle;
        let Some(edge) = &lifecycle.iterates else { return };
        let are_there = [self.named("iterates.from", &edge.from), self.named("iterates.to", &edge.to)];
        let Some(from) = lifecycle.phase(&edge.from).filter(|_| are_there == [true, true]) else { return };
        if !self.may_have(from, "next", from.next.contains(&edge.to)) {
            let message = format!("the phase {} does not lead to {}", quoted(&edge.from), quoted(&edge.to));
            self.refuse("iterates.to", message);
        }
    }

    fn words(&mut self) {
        let lifecycle = self.lifecycle;
        let has_phases = (1..=PHASES_MAX).contains(&lifecycle.phases.len());
        let mut ended_by = None;
        for (index, rule) in lifecycle.words.iter().enumerate() {
            let path = format!("words[{index}]");
            if let Some(name) = rule.phase.as_ref().filter(|_| has_phases) {
                self.named(&format!("{path}.phase"), name);
            }
            if let Some(earlier) = ended_by.take() {
                self.refuse(&path, format!("is never reached: words[{earlier}] has no condition"));
                break;
            }
            if has_no_condition(rule) && !self.read.is_unread(&path) && self.is_whole(&path) {
                ended_by = Some(index);
            }
        }
    }

    fn redact_keys(&mut self) {
        for (index, pattern) in self.lifecycle.redact_keys.iter().enumerate() {
            if !pattern.is_empty() && pattern.bytes().all(|byte| byte == b'*') {
                self.refuse(&format!("redact_keys[{index}]"), "matches every key");
            }
        }
    }

    /// Whether a rule has a word: one without is another mistake.
    fn is_whole(&self, path: &str) -> bool {
        self.read.has(&format!("{path}.word")) || self.read.has(&format!("{path}.word_from"))
    }

    /// The path of a name in a phase's `next`, which may be one name alone.
    fn next_path(&self, phase: &Phase, index: usize) -> String {
        let path = of_phase(phase, "next");
        let item = format!("{path}[{index}]");
        if self.read.has(&item) { item } else { path }
    }
}

/// The path of a phase's key.
fn of_phase(phase: &Phase, key: &str) -> String {
    within(&within("phases", &phase.name), key)
}

fn has_no_condition(rule: &WordRule) -> bool {
    let WordRule { status, phase, suspended, ready, reason_code, word: _ } = rule;
    status.is_none() && phase.is_none() && suspended.is_none() && ready.is_none() && reason_code.is_none()
}
