//! Where a run stands within its status: its lifecycle, its phase and its iteration.

use crate::domain::lifecycle::{NAME_RULE, is_name};
use crate::domain::{LifecycleName, LimitThen, PositionAsk, PositionChange, Refinements, Run, RunPosition};
use crate::wire::scalars::{text, timestamp};
use crate::wire::validate::Violations;
use runledger_proto::v1;

impl Violations {
    /// The name of a phase or a lifecycle, absent when empty.
    pub(in crate::wire) fn phase(&mut self, field: &str, name: String) -> Option<String> {
        if !name.is_empty() && !is_name(&name) {
            self.push(field, NAME_RULE);
        }
        Some(name).filter(|name| !name.is_empty())
    }

    /// What most asks say of where their run is to stand: a phase, and perhaps a limit; 0: none.
    pub(in crate::wire) fn position(&mut self, phase: String, max_iterations: u32) -> PositionAsk {
        let max_iterations = Some(max_iterations).filter(|max| *max > 0);
        PositionAsk { phase: self.phase("phase", phase), max_iterations, ..PositionAsk::default() }
    }

    /// A lifecycle, with or without a version; absent when empty.
    pub(in crate::wire) fn lifecycle(&mut self, field: &str, text: &str) -> Option<LifecycleName> {
        let name = LifecycleName::parse(text);
        if name.is_none() && !text.is_empty() {
            self.push(field, format!("the name {NAME_RULE}; or such a name and @ and a version, from 1"));
        }
        name
    }

    /// What happens above a limit; absent when unspecified.
    pub(in crate::wire) fn limit_then(&mut self, field: &str, number: i32) -> Option<LimitThen> {
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
pub(in crate::wire) fn show(run: &Run, shown: &mut v1::Run) {
    let Some(Refinements { position, .. }) = run.refinements.as_deref() else { return };
    let RunPosition {
        lifecycle,
        phase,
        phase_started_at,
        iteration,
        max_iterations,
        max_iterations_then,
        word,
        // What a completion is judged by is not shown.
        ended_in: _,
        met: _,
    } = position;
    shown.lifecycle = lifecycle.as_ref().map(|pin| pin.id.to_string()).unwrap_or_default();
    shown.phase = text(phase.as_ref());
    shown.phase_started_at = phase_started_at.map(timestamp);
    shown.iteration = *iteration;
    shown.max_iterations = max_iterations.unwrap_or_default();
    shown.max_iterations_then = limit_then(*max_iterations_then);
    if lifecycle.is_some() {
        shown.word = word.clone().unwrap_or_else(|| run.status.name().to_owned());
    }
}

pub(in crate::wire) fn show_change(change: &PositionChange, shown: &mut v1::RunChanges) {
    let PositionChange { lifecycle, phase, iteration, max_iterations, max_iterations_then, word, met, ended_in: _ } =
        change;
    shown.lifecycle = lifecycle.as_ref().map(|pin| pin.id.to_string()).unwrap_or_default();
    shown.phase = text(phase.as_ref());
    shown.iteration = *iteration;
    shown.max_iterations = *max_iterations;
    shown.max_iterations_then = limit_then(*max_iterations_then);
    shown.word.clone_from(word);
    shown.requirements_met = met.iter().cloned().map(String::from).collect();
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
