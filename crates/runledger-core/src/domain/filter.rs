//! The filter of a list, a count or a watch.

use std::collections::{BTreeMap, BTreeSet};

use super::{Priority, Refinements, Route, Run, RunId, Status, Time};

/// The runs that match every field that is given; without any, all runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    /// [`Run::task_thread_id`] is this.
    pub task_thread_id: Option<String>,
    /// [`Run::status`] is one of these; none: any.
    pub statuses: BTreeSet<Status>,
    /// [`Run::agent_id`] is this.
    pub agent_id: Option<String>,
    /// [`Bindings::workflow_id`](super::Bindings::workflow_id) is this.
    pub workflow_id: Option<String>,
    /// [`Bindings::audit_session_id`](super::Bindings::audit_session_id) is this.
    pub audit_session_id: Option<String>,
    /// [`Bindings::route`](super::Bindings::route) is this.
    pub route: Option<Route>,
    /// [`Origin::parent_run_id`](super::Origin::parent_run_id) is this.
    pub parent_run_id: Option<RunId>,
    /// [`Origin::continues_run_id`](super::Origin::continues_run_id) is this.
    pub continues_run_id: Option<RunId>,
    /// [`RunPosition::phase`](super::RunPosition::phase) is this.
    pub phase: Option<String>,
    /// The name of [`RunPosition::lifecycle`](super::RunPosition::lifecycle) is this, whatever its version.
    pub lifecycle: Option<String>,
    /// [`Run::labels`] has each of these.
    pub labels: BTreeMap<String, String>,
    /// [`Run::started_at`] is this or later.
    pub started_from: Option<Time>,
    /// [`Run::started_at`] is earlier than this.
    pub started_before: Option<Time>,
    /// Whether the run is [archived](Run::archived_at); none: archived or not.
    pub archived: Option<bool>,
    /// Whether the run is [suspended](Run::suspension), also where it is ready.
    pub suspended: Option<bool>,
    /// Whether the run is [ready](Run::is_ready).
    pub ready: Option<bool>,
    /// The run is suspended by this kind of suspension.
    pub suspension_kind: Option<String>,
    /// [`Run::priority`] is this.
    pub priority: Option<Priority>,
    /// These runs match as well, whatever `statuses` says. A store's lists and counts ignore this field.
    pub or: Option<AtRest>,
}

/// Runs that are RUNNING and executed by nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtRest {
    /// Those that are ready for whatever claim: a claim of theirs was not begun, or an attempt at them failed.
    NotBegun,
    /// All that are ready.
    Ready,
    /// All that are at rest.
    Any,
}

impl AtRest {
    /// Whether a run is one of them.
    #[must_use]
    pub fn has(self, run: &Run) -> bool {
        match self {
            Self::NotBegun => {
                let not_begun = run.supervision.ready.as_ref().is_some_and(|ready| ready.not_begun);
                not_begun || (run.is_between_attempts() && run.suspension().is_none())
            }
            Self::Ready => run.is_ready(),
            Self::Any => run.is_at_rest(),
        }
    }
}

impl Filter {
    /// Whether the filter matches a run.
    #[must_use]
    pub fn matches(&self, run: &Run) -> bool {
        let of = |wanted: &Option<RunId>, found: fn(&Refinements) -> &Option<RunId>| {
            wanted.is_none() || run.refinements.as_ref().is_some_and(|refinements| found(refinements) == wanted)
        };
        let stands = |wanted: &Option<String>, found: fn(&Refinements) -> Option<&String>| {
            wanted.is_none() || run.refinements.as_deref().and_then(found) == wanted.as_ref()
        };
        let is = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        self.task_thread_id.as_ref().is_none_or(|wanted| *wanted == run.task_thread_id)
            && (self.statuses.is_empty()
                || self.statuses.contains(&run.status)
                || self.or.is_some_and(|or| or.has(run)))
            && self.suspended.is_none_or(|suspended| suspended == run.suspension().is_some())
            && self.priority.is_none_or(|priority| priority == run.priority())
            && self.ready.is_none_or(|ready| ready == run.is_ready())
            && self.suspension_kind.as_ref().is_none_or(|kind| run.suspension().is_some_and(|it| it.kind == *kind))
            && is(&self.agent_id, &run.agent_id)
            && is(&self.workflow_id, &run.bindings.workflow_id)
            && is(&self.audit_session_id, &run.bindings.audit_session_id)
            && (self.route.is_none() || self.route == run.bindings.route)
            && of(&self.parent_run_id, |refinements| &refinements.origin.parent_run_id)
            && of(&self.continues_run_id, |refinements| &refinements.origin.continues_run_id)
            && stands(&self.phase, |refinements| refinements.position.phase.as_ref())
            && stands(&self.lifecycle, |refinements| refinements.position.lifecycle.as_ref().map(|pin| &pin.id.name))
            && self.labels.iter().all(|(key, value)| run.labels.get(key) == Some(value))
            && self.started_from.is_none_or(|from| run.started_at >= from)
            && self.started_before.is_none_or(|before| run.started_at < before)
            && self.archived.is_none_or(|archived| archived == run.archived_at.is_some())
    }

    /// The same filter, but only of runs that are not terminal; none when the filter asks for terminal ones only.
    #[must_use]
    pub fn active(&self) -> Option<Self> {
        let statuses: BTreeSet<_> = Status::ALL
            .into_iter()
            .filter(|status| !status.is_terminal() && (self.statuses.is_empty() || self.statuses.contains(status)))
            .collect();
        (!statuses.is_empty()).then(|| Self { statuses, ..self.clone() })
    }
}
