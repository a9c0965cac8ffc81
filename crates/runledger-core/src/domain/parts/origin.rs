//! The runs that a run comes from.

use crate::domain::RunId;
use crate::domain::form::object;

/// The runs that a run comes from; also what a start says of them, and the change by an event: they are settled at the run's
/// creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The run that started this one.
    pub parent_run_id: Option<RunId>,
    /// The run that this one goes on with.
    pub continues_run_id: Option<RunId>,
}

object!(Origin { parent_run_id: "parentRunId", continues_run_id: "continuesRunId" });

impl Origin {
    pub(in crate::domain) fn fold(&mut self, change: &Self) {
        let Self { parent_run_id, continues_run_id } = change;
        for (now, change) in [(&mut self.parent_run_id, parent_run_id), (&mut self.continues_run_id, continues_run_id)]
        {
            if change.is_some() {
                now.clone_from(change);
            }
        }
    }

    /// Whether there is none.
    pub(in crate::domain) fn is_empty(&self) -> bool {
        let Self { parent_run_id, continues_run_id } = self;
        parent_run_id.is_none() && continues_run_id.is_none()
    }

    /// What a later start says of them, beside what was settled.
    pub(in crate::domain) fn beside(&self, asked: &Self) -> [(&'static str, Option<String>, Option<String>); 2] {
        let text = |id: &Option<RunId>| id.as_ref().map(ToString::to_string);
        let Self { parent_run_id, continues_run_id } = self;
        [
            ("parent_run_id", text(&asked.parent_run_id), text(parent_run_id)),
            ("continues_run_id", text(&asked.continues_run_id), text(continues_run_id)),
        ]
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { parent_run_id, continues_run_id } = self;
        [parent_run_id, continues_run_id].into_iter().flatten().map(|id| id.len()).sum()
    }
}
