//! A run's priority among those that wait for a claim.

use crate::domain::{Priority, Run};
use crate::wire::validate::Violations;
use runledger_proto::v1;

impl Violations {
    /// A priority.
    pub(in crate::wire) fn priority(&mut self, number: Option<i32>) -> Option<Priority> {
        let priority = Priority::of(number?);
        if priority.is_none() {
            self.push("priority", format!("must be -{max} to {max}", max = Priority::MAX));
        }
        priority
    }
}

pub(in crate::wire) fn show(run: &Run, shown: &mut v1::Run) {
    shown.priority = run.refinements.as_ref().map_or(0, |refinements| refinements.priority.get().into());
}

pub(in crate::wire) fn show_change(priority: Option<Priority>, shown: &mut v1::RunChanges) {
    shown.priority = priority.map(|priority| priority.get().into());
}
