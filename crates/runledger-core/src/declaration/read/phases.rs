//! Phases.

use super::super::finding::quoted;
use super::super::tree::Kind;
use super::ReadDeclaration;
use super::fields::Field;
use super::values::plain;
use crate::domain::TimeoutThen;
use crate::domain::lifecycle::{NAME_RULE, Phase, is_name};
use crate::domain::limits::PHASES_MAX;

/// The keys of a phase.
const KEYS: &[&str] = &["initial", "next", "may_complete", "suspends", "timeout", "timeout_then"];

impl ReadDeclaration {
    pub(super) fn phases(&mut self, field: &Field<'_>) {
        for (name, field) in self.entries(field, Some(PHASES_MAX)).unwrap_or_default() {
            // A phase is named by its key, so that is its place.
            self.places.insert(field.path.clone(), field.key_at);
            if !is_name(name) {
                self.say(field.key_at, field.path.clone(), format!("{} {NAME_RULE}", quoted(name)));
            }
            let phase = self.phase(name, &field);
            self.lifecycle.phases.push(phase);
        }
    }

    fn phase(&mut self, name: &str, field: &Field<'_>) -> Phase {
        let mut phase = Phase { name: name.to_owned(), ..Phase::default() };
        // A phase of which nothing is said may be written with nothing after its colon.
        if matches!(plain(field), Some("" | "~" | "null")) {
            return phase;
        }
        let findings = self.findings.len();
        let parts = self.fields(field, KEYS, &[]).unwrap_or_default();
        if self.findings.len() > findings {
            // A key that is not known may be a slip for one of these: what would follow from its absence is not told.
            for key in ["initial", "next", "may_complete"] {
                if !parts.iter().any(|part| part.key() == key) {
                    self.unread.insert(format!("{}.{key}", field.path));
                }
            }
        }
        for part in parts {
            match part.key() {
                "initial" => phase.initial = self.flag(&part).unwrap_or_default(),
                "next" => phase.next = self.next(&part),
                "may_complete" => phase.may_complete = self.flag(&part).unwrap_or_default(),
                "suspends" => phase.suspends = self.suspends(&part),
                "timeout" => phase.timeout_ms = self.duration(&part),
                _ => {
                    let choices =
                        [("ABORT", TimeoutThen::Abort), ("RESUME", TimeoutThen::Resume), ("FAIL", TimeoutThen::Fail)];
                    phase.timeout_then = self.choice(&part, &choices);
                }
            }
        }
        phase
    }

    /// The names of phases: a list, or one alone.
    fn next(&mut self, field: &Field<'_>) -> Vec<String> {
        match &field.node.kind {
            Kind::List(_) => {
                let items = self.items(field, PHASES_MAX);
                items.iter().map(|item| self.text(item).unwrap_or_default()).collect()
            }
            Kind::Scalar { .. } => self.text(field).into_iter().collect(),
            Kind::Map(_) | Kind::Refused => {
                self.mistyped(field, "the name of a phase or a list of such names");
                Vec::new()
            }
        }
    }
}
