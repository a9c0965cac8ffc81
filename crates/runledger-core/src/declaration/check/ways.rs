//! The ways from phase to phase: that something leads to each of them, and that the work can come to an end from it.

use super::{Check, of_phase, within};
use crate::domain::lifecycle::{Lifecycle, Phase};

/// How near a name must be to that of a phase, to be taken for a slip.
const NEARNESS_MIN: f64 = 0.85;

impl Check<'_> {
    pub(super) fn ways(&mut self) {
        let lifecycle = self.lifecycle;
        let is_reached = self.reached();
        let comes_to_end = self.come_to_end();
        for (index, phase) in lifecycle.phases.iter().enumerate() {
            let path = within("phases", &phase.name);
            if is_reached.as_ref().is_some_and(|is_reached| !is_reached[index]) {
                self.refuse(&path, "nothing leads to this phase");
            }
            if !comes_to_end[index] {
                self.refuse(&path, "no phase with may_complete can be reached from this phase");
            }
        }
    }

    /// Whether something leads to each phase; none where that cannot be told.
    fn reached(&self) -> Option<Vec<bool>> {
        let lifecycle = self.lifecycle;
        let mut is_reached = vec![false; lifecycle.phases.len()];
        let is_root = |phase: &Phase| self.may_have(phase, "initial", phase.initial);
        let initial = lifecycle.phases.iter().enumerate().filter(|(_, phase)| is_root(phase)).map(|(index, _)| index);
        let suspended = lifecycle.on_suspend.values().filter_map(|name| meant(lifecycle, name));
        let mut open: Vec<usize> = initial.collect();
        if open.is_empty() || self.read.is_unread("on_suspend") || self.read.is_unread("at_end") {
            return None;
        }
        open.extend(suspended);
        while let Some(index) = open.pop() {
            if std::mem::replace(&mut is_reached[index], true) {
                continue;
            }
            let phase = &lifecycle.phases[index];
            if self.read.is_unread(&of_phase(phase, "next")) {
                return None;
            }
            open.extend(phase.next.iter().filter_map(|name| meant(lifecycle, name)));
        }
        // A run that has ended goes nowhere, so nothing is reached through this phase.
        if let Some(index) = lifecycle.at_end.as_ref().and_then(|name| meant(lifecycle, name)) {
            is_reached[index] = true;
        }
        Some(is_reached)
    }

    /// Whether an end can be reached from each phase. A phase of which that cannot be told has it.
    fn come_to_end(&self) -> Vec<bool> {
        let lifecycle = self.lifecycle;
        let is_end = |phase: &Phase| self.may_have(phase, "may_complete", phase.may_complete);
        if !lifecycle.phases.iter().any(|phase| phase.may_complete) {
            return vec![true; lifecycle.phases.len()];
        }
        let leads = |phase: &Phase, to: &str| phase.next.iter().any(|name| name == to);
        let is_at_end = |phase: &Phase| {
            lifecycle.at_end.as_ref() == Some(&phase.name)
                && !lifecycle.phases.iter().any(|from| leads(from, &phase.name))
        };
        let is_open = |phase: &Phase| {
            let leads_nowhere = |name: &String| lifecycle.phase(name).is_none();
            self.read.is_unread(&of_phase(phase, "next")) || phase.next.iter().any(leads_nowhere)
        };
        let mut comes: Vec<bool> =
            lifecycle.phases.iter().map(|phase| is_end(phase) || is_at_end(phase) || is_open(phase)).collect();
        // With each round at least one phase more comes to an end, or it is the last.
        loop {
            let reaches = |name: &String| meant(lifecycle, name).is_some_and(|index| comes[index]);
            let more: Vec<usize> = (0..comes.len())
                .filter(|&index| !comes[index] && lifecycle.phases[index].next.iter().any(reaches))
                .collect();
            if more.is_empty() {
                return comes;
            }
            for index in more {
                comes[index] = true;
            }
        }
    }
}

/// The phase that a name means: the one of that name, else the one that it is a slip for. The slip is a finding
/// already. That nothing leads to the phase would be another one, and only follow from it.
fn meant(lifecycle: &Lifecycle, name: &str) -> Option<usize> {
    let exact = lifecycle.phases.iter().position(|phase| phase.name == name);
    exact.or_else(|| {
        let nearness = |phase: &Phase| strsim::jaro_winkler(name, &phase.name);
        let phases = lifecycle.phases.iter().enumerate().map(|(index, phase)| (nearness(phase), index));
        let nearest = phases.max_by(|(one, _), (other, _)| one.total_cmp(other));
        nearest.filter(|(nearness, _)| *nearness >= NEARNESS_MIN).map(|(_, index)| index)
    })
}
