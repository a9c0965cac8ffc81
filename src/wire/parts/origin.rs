//! The runs that a run comes from.

use crate::domain::{Refinements, RefinementsChange, Run, RunId};
use runledger_proto::v1;

pub(in crate::wire) fn show(run: &Run, shown: &mut v1::Run) {
    let Some(Refinements { origin, .. }) = run.refinements.as_deref() else { return };
    shown.parent_run_id = text(origin.parent_run_id.as_ref());
    shown.continues_run_id = text(origin.continues_run_id.as_ref());
}

pub(in crate::wire) fn show_change(change: &RefinementsChange, shown: &mut v1::RunChanges) {
    shown.parent_run_id = text(change.origin.parent_run_id.as_ref());
    shown.continues_run_id = text(change.origin.continues_run_id.as_ref());
}

fn text(run_id: Option<&RunId>) -> String {
    run_id.map(ToString::to_string).unwrap_or_default()
}
