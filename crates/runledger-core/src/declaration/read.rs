//! A tree as a lifecycle.
//!
//! What can be read is read, whatever is wrong elsewhere. A value that breaks a rule of its own, such as a name with a
//! blank, stays in the lifecycle, so that whatever refers to it still finds it. What cannot be read at all is *unread*:
//! the rules over several values pass over it.

mod fields;
mod phases;
mod texts;
mod values;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use self::fields::Field;
use super::finding::{At, Finding, quoted};
use super::tree::Node;
use crate::domain::lifecycle::{
    Budget, BudgetThen, Iterates, Lifecycle, LimitThen, NAME_RULE, OnRetry, OnStepFailed, Requirement, is_name, lower,
};
use crate::domain::limits::ATTEMPTS_MAX;

/// The keys of a declaration.
const KEYS: &[&str] = &[
    "name",
    "phases",
    "on_suspend",
    "completion_requires",
    "budgets",
    "report_every",
    "redact_keys",
    "words",
    "at_end",
    "iterates",
    "max_iterations",
    "max_iterations_then",
    "on_step_failed",
    "complete_when_steps_done",
    "ready_timeout",
    "max_attempts",
    "attempt_timeout",
    "on_retry",
];

/// Budgets of one lifecycle.
const BUDGETS_MAX: usize = 16;
/// Entries of `completion_requires`.
const REQUIREMENTS_MAX: usize = 16;
/// Stars of a pattern: every key of what runs bring is held against it, while others wait.
const STARS_MAX: usize = 2;
/// Entries of `redact_keys`.
const REDACT_KEYS_MAX: usize = 32;
/// Entries of `words`.
const WORDS_MAX: usize = 64;
/// The most that can be spent: what is spent saturates there, and a higher limit would never be reached.
const BUDGET_LIMIT_MAX: u64 = i64::MAX as u64;

/// What was read.
#[derive(Default)]
pub(super) struct ReadDeclaration {
    /// The lifecycle, as far as it could be read. In its lists an empty entry stands for one that could not be read.
    pub(super) lifecycle: Lifecycle,
    /// Everything that is wrong with single values.
    pub(super) findings: Vec<Finding>,
    /// The places of all values by their paths. That of a list or mapping is its key's.
    places: BTreeMap<String, At>,
    /// The paths of values that could not be read.
    unread: BTreeSet<String>,
}

impl ReadDeclaration {
    /// The place of a value; of one that is not there, the first character.
    pub(super) fn at(&self, path: &str) -> At {
        self.places.get(path).copied().unwrap_or(At::START)
    }

    /// Whether the declaration has a value at this path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.places.contains_key(path)
    }

    /// Whether the value, a part of it or what it is a part of is there and could not be read.
    pub(super) fn is_unread(&self, path: &str) -> bool {
        let is_boundary = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        let mut parts = self.unread.range(path.to_owned()..).map_while(|unread| unread.strip_prefix(path));
        let mut parents = path.match_indices(['.', '[']).map(|(end, _)| &path[..end]);
        parts.any(is_boundary) || parents.any(|parent| self.unread.contains(parent))
    }
}

/// Reads a lifecycle from a tree.
pub(super) fn lifecycle(tree: &Node) -> ReadDeclaration {
    let mut read = ReadDeclaration::default();
    let root = Field { path: String::new(), key_at: tree.at, node: tree };
    let Some(fields) = read.fields(&root, KEYS, &["name", "phases"]) else { return read };
    for field in fields {
        read.top(&field);
    }
    read
}

impl ReadDeclaration {
    /// Reads what stands at one of the [`KEYS`].
    fn top(&mut self, field: &Field<'_>) {
        match field.path.as_str() {
            "name" => self.lifecycle.name = self.name(field).unwrap_or_default(),
            "phases" => self.phases(field),
            "on_suspend" => self.on_suspend(field),
            "completion_requires" => self.completion_requires(field),
            "budgets" => self.budgets(field),
            "report_every" => self.lifecycle.report_every_ms = self.duration(field),
            "redact_keys" => self.redact_keys(field),
            "words" => self.words(field),
            "at_end" => self.lifecycle.at_end = self.text(field),
            "iterates" => self.iterates(field),
            "max_iterations" => {
                let iterations = self.whole(field, 1, u32::MAX.into());
                self.lifecycle.max_iterations = iterations.and_then(|number| u32::try_from(number).ok());
            }
            "max_iterations_then" => {
                let choices =
                    [("REFUSE", LimitThen::Refuse), ("SUSPEND", LimitThen::Suspend), ("ABORT", LimitThen::Abort)];
                self.lifecycle.max_iterations_then = self.choice(field, &choices);
            }
            "on_step_failed" => {
                let choices = [("CONTINUE", OnStepFailed::Continue), ("FAIL_RUN", OnStepFailed::FailRun)];
                self.lifecycle.on_step_failed = self.choice(field, &choices);
            }
            "complete_when_steps_done" => {
                self.lifecycle.complete_when_steps_done = self.flag(field).unwrap_or_default();
            }
            "ready_timeout" => self.lifecycle.ready_timeout_ms = self.duration(field),
            "max_attempts" => {
                let attempts = self.whole(field, 1, ATTEMPTS_MAX.into());
                self.lifecycle.max_attempts = attempts.and_then(|number| u32::try_from(number).ok());
            }
            "attempt_timeout" => self.lifecycle.attempt_timeout_ms = self.duration(field),
            "on_retry" => {
                let choices = [("RESTART", OnRetry::Restart), ("STAY", OnRetry::Stay)];
                self.lifecycle.on_retry = self.choice(field, &choices);
            }
            unknown => debug_assert!(false, "{unknown} is one of the keys and is not read"),
        }
    }

    fn on_suspend(&mut self, field: &Field<'_>) {
        for (kind, field) in self.entries(field, None).unwrap_or_default() {
            self.phase_kind(field.key_at, &field.path, kind);
            let phase = self.text(&field).unwrap_or_default();
            self.lifecycle.on_suspend.insert(kind.to_owned(), phase);
        }
    }

    fn completion_requires(&mut self, field: &Field<'_>) {
        let mut seen = BTreeMap::new();
        for item in self.items(field, REQUIREMENTS_MAX) {
            let Some(text) = self.text(&item) else { continue };
            match Requirement::try_from(text.clone()) {
                Err(expected) => self.refuse(&item, format!("{expected}, not {}", quoted(&text))),
                Ok(requirement) => {
                    self.only_once(&mut seen, &text, &item);
                    self.lifecycle.completion_requires.push(requirement);
                }
            }
        }
    }

    fn budgets(&mut self, field: &Field<'_>) {
        let mut seen = BTreeMap::new();
        for item in self.items(field, BUDGETS_MAX) {
            let mut budget = Budget { name: String::new(), limit: 0, warn_at: None, then: BudgetThen::Signal };
            let keys = ["name", "limit", "warn_at", "then"];
            for part in self.fields(&item, &keys, &["name", "limit", "then"]).unwrap_or_default() {
                match part.key() {
                    "name" => {
                        budget.name = self.name(&part).unwrap_or_default();
                        self.only_once(&mut seen, &budget.name, &part);
                    }
                    "limit" => budget.limit = self.whole(&part, 1, BUDGET_LIMIT_MAX).unwrap_or_default(),
                    "warn_at" => budget.warn_at = self.share(&part),
                    _ => {
                        let choices = [
                            ("SIGNAL", BudgetThen::Signal),
                            ("SUSPEND", BudgetThen::Suspend),
                            ("ABORT", BudgetThen::Abort),
                        ];
                        budget.then = self.choice(&part, &choices).unwrap_or(BudgetThen::Signal);
                    }
                }
            }
            self.lifecycle.budgets.push(budget);
        }
    }

    fn redact_keys(&mut self, field: &Field<'_>) {
        for item in self.items(field, REDACT_KEYS_MAX) {
            let pattern = lower(&self.text(&item).unwrap_or_default());
            if self.is_unread(&item.path) {
                continue;
            }
            if !(1..=64).contains(&pattern.len()) {
                self.complain(&item, "must have 1 to 64 bytes".to_owned());
            } else if pattern.contains(char::is_control) {
                self.complain(&item, "must have no control characters".to_owned());
            } else if pattern.matches('*').count() > STARS_MAX && pattern.contains(|part| part != '*') {
                self.complain(&item, format!("may have {STARS_MAX} stars at most"));
            }
            self.lifecycle.redact_keys.push(pattern);
        }
    }

    fn iterates(&mut self, field: &Field<'_>) {
        let mut edge = Iterates { from: String::new(), to: String::new() };
        let Some(parts) = self.fields(field, &["from", "to"], &["from", "to"]) else { return };
        for part in parts {
            let phase = self.text(&part).unwrap_or_default();
            if part.key() == "from" { edge.from = phase } else { edge.to = phase }
        }
        self.lifecycle.iterates = Some(edge);
    }

    /// A name by the rule of names, or as it was written.
    fn name(&mut self, field: &Field<'_>) -> Option<String> {
        let name = self.text(field)?;
        if !is_name(&name) {
            self.complain(field, format!("{} {NAME_RULE}", quoted(&name)));
        }
        Some(name)
    }

    /// Tells of a text that stands in a list for the second time.
    fn only_once(&mut self, seen: &mut BTreeMap<String, At>, text: &str, field: &Field<'_>) {
        if text.is_empty() {
            return;
        }
        match seen.get(text) {
            None => {
                seen.insert(text.to_owned(), field.node.at);
            }
            Some(earlier) => {
                self.complain(field, format!("{} stands on line {} already", quoted(text), earlier.line));
            }
        }
    }
}
