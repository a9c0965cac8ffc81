//! Where a run stands within its status: as requests bring it, and as answers show it.

use super::scalars::{text, timestamp};
use super::validate::Violations;
use crate::domain::lifecycle::NAME_RULE;
use crate::domain::{LifecycleName, LimitThen, PositionAsk, Refinements, RefinementsChange, Status};
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

/// What most asks say of where their run is to stand: a phase, and perhaps a limit; 0: none.
pub(super) fn asked(phase: String, max_iterations: u32, violations: &mut Violations) -> PositionAsk {
    let max_iterations = Some(max_iterations).filter(|max| *max > 0);
    PositionAsk { phase: violations.phase("phase", phase), max_iterations, ..PositionAsk::default() }
}

/// Shows of a run where it stands.
pub(super) fn show(refinements: &Refinements, status: Status, shown: &mut v1::Run) {
    let Refinements { position, priority, rest, attachments: _, origin: _ } = refinements;
    shown.lifecycle = position.lifecycle.as_ref().map(|pin| pin.id.to_string()).unwrap_or_default();
    shown.phase = text(position.phase.as_ref());
    shown.phase_started_at = position.phase_started_at.map(timestamp);
    shown.iteration = position.iteration;
    shown.max_iterations = position.max_iterations.unwrap_or_default();
    shown.max_iterations_then = limit_then(position.max_iterations_then);
    shown.priority = priority.get().into();
    shown.suspension = rest.suspension.as_deref().map(|it| Box::new(it.into()));
    shown.resumed_from = rest.resumed_from.as_deref().map(|it| Box::new(it.into()));
    if position.lifecycle.is_some() {
        shown.word = position.word.clone().unwrap_or_else(|| status.name().to_owned());
    }
}

pub(super) fn show_change(change: &RefinementsChange, shown: &mut v1::RunChanges) {
    let RefinementsChange { position, priority, rest, attachments: _, origin: _ } = change;
    shown.lifecycle = position.lifecycle.as_ref().map(|pin| pin.id.to_string()).unwrap_or_default();
    shown.phase = text(position.phase.as_ref());
    shown.iteration = position.iteration;
    shown.max_iterations = position.max_iterations;
    shown.max_iterations_then = limit_then(position.max_iterations_then);
    shown.priority = priority.map(|priority| priority.get().into());
    shown.suspension = rest.suspension.as_deref().map(|it| Box::new(it.into()));
    shown.resumption = rest.resumption.as_deref().map(|it| Box::new(it.into()));
    shown.word.clone_from(&position.word);
    shown.requirements_met = position.met.iter().cloned().map(String::from).collect();
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
