//! Lifecycles: what users declare about the runs of theirs. Which phase follows which, where a run may complete and
//! what that takes, what a state of affairs is called, and which keys are never written down.
//!
//! Invariants:
//!
//! - A lifecycle refines what happens inside a status, and changes no rule of the statuses.
//! - A declaration never changes: a new one is the next version of its name, in a row of its own. A run that names one
//!   is pinned to that version for its life.
//! - [`decide`](super::decide::decide) reads a declaration as a [side](super::sides): under the head or, where the run
//!   is pinned to it, from memory. A pin has the digest of what was declared, so nothing that is remembered is ever
//!   stale.
//! - The event says what was concluded (the phase, the iteration, the word). [`evolve`](super::evolve::evolve) never
//!   sees a declaration, so a history can be read without any.

mod masking;
pub mod put;
mod reference;
mod words;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::masking::{Masks, lower};
pub use self::put::{PutFacts, PutLifecycle, PutOutcome, PutRefusal};
pub use self::reference::{LifecycleId, LifecycleName, LifecyclePin};
pub use self::words::{Suspended, WordRule};
use super::limits::LIFECYCLE_NAME_BYTES_MAX;
use super::{Namespace, Principal, Time, TimeoutThen};

/// The rule of the names of lifecycles, phases and budgets, for people.
pub const NAME_RULE: &str = "must be 1 to 64 characters of [a-z0-9_.-], a lower-case letter first";

/// Whether a text is a name of a lifecycle, a phase or a budget.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'-');
    (1..=LIFECYCLE_NAME_BYTES_MAX).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(inner)
}

/// A declaration. The serde form is the ledger's: a field that is not known is an error and not a loss.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lifecycle {
    pub name: String,
    /// The phases, in the order of the declaration.
    pub phases: Vec<Phase>,
    /// The phase that a suspension of each of these kinds moves a run to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub on_suspend: BTreeMap<String, String>,
    /// What a run must have before it may complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completion_requires: Vec<Requirement>,
    /// What a run may spend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
    /// How often a report is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_every_ms: Option<u64>,
    /// Patterns of keys whose values are never written down, in lower case: `*` stands for any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact_keys: Vec<String>,
    /// What a state of affairs is called: the first rule that matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<WordRule>,
    /// The phase that a run is in once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_end: Option<String>,
    /// The step from phase to phase that begins another iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterates: Option<Iterates>,
    /// How many iterations there may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    /// What happens to a run that would begin one more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations_then: Option<LimitThen>,
    /// What happens to a run one of whose steps failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_step_failed: Option<OnStepFailed>,
    /// The run completes with its last step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub complete_when_steps_done: bool,
    /// How long a run may be ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_timeout_ms: Option<u64>,
    /// How many attempts at a run there may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// How long one of them may be running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_timeout_ms: Option<u64>,
    /// Where the next one begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_retry: Option<OnRetry>,
}

/// Where the attempt begins that comes after a failed one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OnRetry {
    /// In the initial phase.
    #[default]
    Restart,
    /// In the phase where the last one failed.
    Stay,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Phase {
    pub name: String,
    /// A run begins in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub initial: bool,
    /// The phases that may follow it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
    /// A run may complete in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_complete: bool,
    /// The kind of suspension that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspends: Option<String>,
    /// How long that suspension may last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What becomes of the run then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_then: Option<TimeoutThen>,
}

/// What a run must have before it may complete. Its text is `REPORT` or `LINK:rel`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Requirement {
    Report,
    /// A link with this `rel`.
    Link(String),
}

impl From<Requirement> for String {
    fn from(requirement: Requirement) -> Self {
        match requirement {
            Requirement::Report => "REPORT".to_owned(),
            Requirement::Link(rel) => format!("LINK:{rel}"),
        }
    }
}

impl TryFrom<String> for Requirement {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.split_once(':') {
            None if text == "REPORT" => Ok(Self::Report),
            Some(("LINK", rel)) if super::Link::is_rel(rel) => Ok(Self::Link(rel.to_owned())),
            None | Some(_) => Err("expected REPORT or LINK:rel"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    pub name: String,
    /// How much a run may spend.
    pub limit: u64,
    /// The part of it at which a run is warned: above 0, at most 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<f64>,
    /// What happens to a run that spent it.
    pub then: BudgetThen,
}

/// What happens to a run that spent a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BudgetThen {
    /// It shows so.
    Signal,
    Suspend,
    Abort,
}

/// The step from phase to phase that begins another iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Iterates {
    /// The phase before.
    pub from: String,
    /// The phase after.
    pub to: String,
}

/// What happens to a run that would begin an iteration above its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LimitThen {
    /// The call is refused.
    #[default]
    Refuse,
    /// The run is suspended.
    Suspend,
    /// The run is aborted.
    Abort,
}

impl LimitThen {
    /// The name that declarations and requests use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refuse => "REFUSE",
            Self::Suspend => "SUSPEND",
            Self::Abort => "ABORT",
        }
    }
}

/// What happens to a run one of whose steps failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OnStepFailed {
    /// It goes on.
    Continue,
    FailRun,
}

/// A version of a lifecycle, as the ledger keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct LifecycleRecord {
    /// The namespace that it belongs to.
    pub namespace: Namespace,
    /// Its name and version.
    pub id: LifecycleId,
    /// The declaration as it was written, YAML or JSON.
    pub source: String,
    /// The time at which it was put.
    pub at: Time,
    /// Who put it.
    pub by: Principal,
}

impl Lifecycle {
    /// The phase of this name.
    #[must_use]
    pub fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }

    /// The kind of suspension that a phase is.
    #[must_use]
    pub fn suspends(&self, phase: &str) -> Option<&str> {
        self.phase(phase)?.suspends.as_deref()
    }

    /// The phase that a kind of suspension leads to from a phase, where no phase is named: the one that it leads to from every
    /// phase, else the only one among those that may follow which is such a suspension. A step that begins an iteration is
    /// made by its name alone.
    #[must_use]
    pub fn phase_of_kind(&self, from: Option<&str>, kind: &str) -> Option<&str> {
        if let Some(phase) = self.on_suspend.get(kind) {
            return Some(phase);
        }
        match self.suspend_next(from?, kind)[..] {
            [to] if !self.iterates(from, to) => Some(to),
            _ => None,
        }
    }

    /// The phases that may follow a phase and suspend by a kind; none where the phase is such a suspension itself.
    #[must_use]
    pub fn suspend_next(&self, from: &str, kind: &str) -> Vec<&str> {
        let suspends = |phase: &str| self.suspends(phase) == Some(kind);
        if suspends(from) { Vec::new() } else { self.allowed(Some(from)).filter(|phase| suspends(phase)).collect() }
    }

    /// The phase in which a run goes on that nobody resumed in time: the first that may follow and does not suspend.
    #[must_use]
    pub fn goes_on_in(&self, from: &str) -> Option<&str> {
        self.allowed(Some(from)).find(|phase| self.suspends(phase).is_none())
    }

    /// The phase that a run begins in.
    #[must_use]
    pub fn initial(&self) -> Option<&str> {
        self.phases.iter().find(|phase| phase.initial).map(|phase| phase.name.as_str())
    }

    /// The phases that may follow a phase; none: those that a run may begin in.
    #[must_use]
    pub fn allowed<'a>(&'a self, from: Option<&str>) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        match from {
            None => Box::new(self.initial().into_iter()),
            Some(from) => {
                Box::new(self.phase(from).into_iter().flat_map(|phase| phase.next.iter().map(String::as_str)))
            }
        }
    }

    /// Whether the step begins another iteration.
    #[must_use]
    pub fn iterates(&self, from: Option<&str>, to: &str) -> bool {
        self.iterates.as_ref().is_some_and(|edge| from == Some(edge.from.as_str()) && edge.to == to)
    }

    /// The phases in which a run may complete; none: in all.
    #[must_use]
    pub fn completes_in(&self) -> Option<Vec<&str>> {
        let may: Vec<&str> = self.phases.iter().filter(|phase| phase.may_complete).map(|phase| &*phase.name).collect();
        (!may.is_empty()).then_some(may)
    }

    /// What it says that this release keeps and does not enforce yet: a run does not start with it.
    #[must_use]
    pub fn not_enforced(&self) -> Vec<&'static str> {
        let waits_for_report = self.completion_requires.contains(&Requirement::Report);
        [
            ("completion_requires: REPORT", waits_for_report),
            ("budgets", !self.budgets.is_empty()),
            ("report_every", self.report_every_ms.is_some()),
            ("on_step_failed", self.on_step_failed.is_some()),
            ("complete_when_steps_done", self.complete_when_steps_done),
        ]
        .into_iter()
        .filter_map(|(name, is_used)| is_used.then_some(name))
        .collect()
    }

    /// The text that the ledger keeps, and commits read.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("strings and finite numbers serialize")
    }

    /// About how many bytes it takes in memory: for bounds on caches.
    #[must_use]
    pub fn weight(&self) -> usize {
        let texts = |texts: &[String]| texts.iter().map(|text| size_of::<String>() + text.len()).sum::<usize>();
        let phases: usize = self
            .phases
            .iter()
            .map(|phase| {
                size_of::<Phase>()
                    + phase.name.len()
                    + texts(&phase.next)
                    + phase.suspends.as_ref().map_or(0, String::len)
            })
            .sum();
        let on_suspend: usize = self.on_suspend.iter().map(|(kind, phase)| 96 + kind.len() + phase.len()).sum();
        let words: usize = self.words.iter().map(WordRule::weight).sum();
        let requires: usize = self.completion_requires.iter().map(|_| 96).sum();
        let budgets: usize = self.budgets.iter().map(|budget| size_of::<Budget>() + budget.name.len()).sum();
        size_of::<Self>()
            + self.name.len()
            + phases
            + on_suspend
            + words
            + requires
            + budgets
            + texts(&self.redact_keys)
    }
}
