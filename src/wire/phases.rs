//! Where a run stands within its status: as requests bring it, and as answers show it.

use super::answer::{text, timestamp};
use super::validate::Violations;
use crate::domain::lifecycle::NAME_RULE;
use crate::domain::{LifecycleName, LimitThen, Refinements, RefinementsChange, Status};
use runledger_proto::v1;

impl Violations {
    /// A lifecycle, with or without a version; absent when empty.
    pub(super) fn lifecycle(&mut self, field: &str, text: &str) -> Option<LifecycleName> {
        let name = LifecycleName::parse(text);
        if name.is_none() && !text.is_empty() {
            self.push(field, format!("the name {NAME_RULE}; or such a name and @ and a version, from 1"));
        }
        name
    }

    /// What happens above a limit; absent when unspecified.
    pub(super) fn limit_then(&mut self, field: &str, number: i32) -> Option<LimitThen> {
        match v1::LimitThen::try_from(number) {
            Ok(v1::LimitThen::Unspecified) => None,
            Ok(v1::LimitThen::Refuse) => Some(LimitThen::Refuse),
            Ok(v1::LimitThen::Abort) => Some(LimitThen::Abort),
            Ok(v1::LimitThen::Suspend) => Some(LimitThen::Suspend),
            Err(_) => {
                self.push(field, format!("{number} is not a value of LimitThen"));
                None
            }
        }
    }
}

/// Shows of a run where it stands.
pub(super) fn show(refinements: &Refinements, status: Status, shown: &mut v1::Run) {
    shown.lifecycle = refinements.lifecycle.as_ref().map(|pin| pin.id.to_string()).unwrap_or_default();
    shown.phase = text(refinements.phase.as_ref());
    shown.phase_started_at = refinements.phase_started_at.map(timestamp);
    shown.iteration = refinements.iteration;
    shown.max_iterations = refinements.max_iterations.unwrap_or_default();
    shown.max_iterations_then = limit_then(refinements.max_iterations_then);
    shown.priority = refinements.priority.get().into();
    shown.suspension = refinements.suspension.as_deref().map(|it| Box::new(it.into()));
    shown.resumed_from = refinements.resumed_from.as_deref().map(|it| Box::new(it.into()));
    if refinements.lifecycle.is_some() {
        shown.word = refinements.word.clone().unwrap_or_else(|| status.name().to_owned());
    }
}

pub(super) fn show_change(change: &RefinementsChange, shown: &mut v1::RunChanges) {
    shown.lifecycle = change.lifecycle.as_ref().map(|pin| pin.id.to_string()).unwrap_or_default();
    shown.phase = text(change.phase.as_ref());
    shown.iteration = change.iteration;
    shown.max_iterations = change.max_iterations;
    shown.max_iterations_then = limit_then(change.max_iterations_then);
    shown.priority = change.priority.map(|priority| priority.get().into());
    shown.suspension = change.suspension.as_deref().map(|it| Box::new(it.into()));
    shown.resumption = change.resumption.as_deref().map(|it| Box::new(it.into()));
    shown.word.clone_from(&change.word);
    shown.requirements_met = change.met.iter().cloned().map(String::from).collect();
}

fn limit_then(then: Option<LimitThen>) -> i32 {
    let then = match then {
        None => v1::LimitThen::Unspecified,
        Some(LimitThen::Refuse) => v1::LimitThen::Refuse,
        Some(LimitThen::Suspend) => v1::LimitThen::Suspend,
        Some(LimitThen::Abort) => v1::LimitThen::Abort,
    };
    then.into()
}
