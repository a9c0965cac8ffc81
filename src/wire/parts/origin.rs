//! The runs that a run comes from.

use crate::domain::{Origin, Refinements, Run, RunId};
use runledger_proto::v1;

pub(in crate::wire) fn show(run: &Run, shown: &mut v1::Run) {
    let Some(Refinements { origin, .. }) = run.refinements.as_deref() else { return };
    let Origin { parent_run_id, continues_run_id } = origin;
    shown.parent_run_id = text(parent_run_id.as_ref());
    shown.continues_run_id = text(continues_run_id.as_ref());
}

pub(in crate::wire) fn show_change(change: &Origin, shown: &mut v1::RunChanges) {
    let Origin { parent_run_id, continues_run_id } = change;
    shown.parent_run_id = text(parent_run_id.as_ref());
    shown.continues_run_id = text(continues_run_id.as_ref());
}

fn text(run_id: Option<&RunId>) -> String {
    run_id.map(ToString::to_string).unwrap_or_default()
}
