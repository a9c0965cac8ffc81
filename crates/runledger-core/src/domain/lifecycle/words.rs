//! Words: what a state of affairs is called in the users' own system.

use serde::{Deserialize, Serialize};

use super::Lifecycle;
use crate::domain::{Run, Status};

/// A rule that says what a run is called while every condition that it has holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WordRule {
    /// The run has this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The run is in this phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Whether the run is suspended, or by which kind of suspension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<Suspended>,
    /// Whether the run is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// The run ended for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<String>,
    /// The word; none: the name of the run's phase, or no word where it is in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
}

/// A condition on a run's suspension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Suspended {
    /// Whether it is suspended at all.
    Any(bool),
    /// By this kind of suspension.
    Kind(String),
}

impl WordRule {
    fn matches(&self, run: &Run) -> bool {
        let phase = run.position().and_then(|stands| stands.phase.as_ref());
        let is = |wanted: &Option<String>, found: Option<&String>| wanted.is_none() || wanted.as_ref() == found;
        self.status.is_none_or(|status| status == run.status)
            && is(&self.phase, phase)
            && self.suspended.as_ref().is_none_or(|suspended| match (suspended, run.suspension()) {
                (Suspended::Any(wanted), suspension) => *wanted == suspension.is_some(),
                (Suspended::Kind(kind), suspension) => suspension.is_some_and(|suspension| suspension.kind == *kind),
            })
            && self.ready.is_none_or(|ready| ready == run.is_ready())
            && is(&self.reason_code, run.ending.reason_code.as_ref())
    }

    pub(super) fn weight(&self) -> usize {
        let kind = match &self.suspended {
            Some(Suspended::Kind(kind)) => kind.len(),
            Some(Suspended::Any(_)) | None => 0,
        };
        let texts = [&self.phase, &self.reason_code, &self.word];
        size_of::<Self>() + kind + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

impl Lifecycle {
    /// What the run is called; none: by its status.
    #[must_use]
    pub fn word(&self, run: &Run) -> Option<String> {
        let rule = self.words.iter().find(|rule| rule.matches(run))?;
        rule.word.clone().or_else(|| run.position()?.phase.clone())
    }
}
