//! Words.

use super::super::tree::Kind;
use super::fields::Field;
use super::{ReadDeclaration, WORDS_MAX};
use crate::domain::Status;
use crate::domain::lifecycle::{Suspended, WordRule};

/// The keys of a rule.
const KEYS: &[&str] = &["status", "phase", "suspended", "ready", "reason_code", "word", "word_from"];

impl ReadDeclaration {
    pub(super) fn words(&mut self, field: &Field<'_>) {
        for item in self.items(field, WORDS_MAX) {
            let rule = self.rule(&item);
            self.lifecycle.words.push(rule);
        }
    }

    fn rule(&mut self, item: &Field<'_>) -> WordRule {
        let mut rule = WordRule::default();
        let Some(parts) = self.fields(item, KEYS, &[]) else { return rule };
        let has = |key| parts.iter().any(|part| part.key() == key);
        let mistake = match (has("word"), has("word_from")) {
            (true, false) | (false, true) => None,
            (true, true) => Some("has word and word_from: one of them must go"),
            (false, false) => Some("has neither word nor word_from"),
        };
        if let Some(mistake) = mistake {
            self.complain(item, mistake.to_owned());
        }
        for part in parts {
            match part.key() {
                "status" => rule.status = self.status(&part),
                "phase" => rule.phase = self.text(&part),
                "suspended" => rule.suspended = self.suspended(&part),
                "ready" => rule.ready = self.flag(&part),
                "reason_code" => rule.reason_code = self.code(&part),
                "word" => rule.word = self.word(&part),
                // A rule without a word takes the phase's name.
                _ => {
                    self.choice(&part, &[("phase", ())]);
                }
            }
        }
        rule
    }

    fn status(&mut self, field: &Field<'_>) -> Option<Status> {
        let choices = [
            ("PENDING", Status::Pending),
            ("RUNNING", Status::Running),
            ("COMPLETED", Status::Completed),
            ("ABORTED", Status::Aborted),
            ("FAILED", Status::Failed),
        ];
        self.choice(field, &choices)
    }

    fn suspended(&mut self, field: &Field<'_>) -> Option<Suspended> {
        match &field.node.kind {
            Kind::Scalar { text, is_plain: true } if text == "true" || text == "false" => {
                Some(Suspended::Any(text == "true"))
            }
            Kind::Scalar { .. } => self.code(field).map(Suspended::Kind),
            Kind::List(_) | Kind::Map(_) | Kind::Refused => {
                self.mistyped(field, "true, false or a kind of suspension");
                None
            }
        }
    }
}
