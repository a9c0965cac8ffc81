//! The indexes that lead to runs, and which of them serves a filter.

use super::filter;
use crate::domain::Filter;

/// The index that leads to the runs of a filter: of the indexes that fit, the one that surely leads to the fewest
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The runs of one task.
    TaskThread,
    /// The runs that are linked to one audit session.
    AuditSession,
    /// The runs that are not terminal, in the table `active`.
    Active,
    /// The runs that are at rest, in the table `suspended`.
    Suspended,
    /// The pending runs of one priority, in the table `active`.
    Priority,
    /// The runs that are not terminal and have no priority there, in the table `active`.
    Unprioritised,
    /// The runs of one owner.
    Agent,
    /// The runs of one workflow.
    Workflow,
    /// The runs that one run started.
    Parent,
    /// The runs that go on with one run.
    Continued,
    /// All runs.
    Start,
}

/// The table that an index is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Table {
    /// All runs.
    Runs,
    /// The runs that are not terminal.
    Active,
    /// The runs that are at rest.
    Suspended,
}

impl By {
    /// All of the indexes.
    pub const ALL: [Self; 11] = [
        Self::Continued,
        Self::Parent,
        Self::TaskThread,
        Self::AuditSession,
        Self::Suspended,
        Self::Priority,
        Self::Unprioritised,
        Self::Active,
        Self::Agent,
        Self::Workflow,
        Self::Start,
    ];

    /// The index that leads to the runs of this filter.
    #[must_use]
    pub fn new(filter: &Filter) -> Self {
        let active = !filter.statuses.is_empty() && filter.statuses.iter().all(|status| !status.is_terminal());
        if filter.continues_run_id.is_some() {
            Self::Continued
        } else if filter.parent_run_id.is_some() {
            Self::Parent
        } else if filter.task_thread_id.is_some() {
            Self::TaskThread
        } else if filter.audit_session_id.is_some() {
            Self::AuditSession
        } else if filter.suspended == Some(true) || filter.ready == Some(true) || filter.suspension_kind.is_some() {
            Self::Suspended
        } else if active && let Some(priority) = filter.priority {
            if priority.is_none() { Self::Unprioritised } else { Self::Priority }
        } else if active {
            Self::Active
        } else if filter.agent_id.is_some() {
            Self::Agent
        } else if filter.workflow_id.is_some() {
            Self::Workflow
        } else {
            Self::Start
        }
    }

    /// The index, by the name that it has in both stores.
    #[must_use]
    pub fn index(self) -> &'static str {
        self.parts().0
    }

    /// The table that it is of.
    pub(in crate::store) fn table(self) -> Table {
        self.parts().1
    }

    /// The column that the index has between the namespace and the place.
    pub(in crate::store) fn column(self) -> Option<&'static str> {
        self.parts().2
    }

    #[rustfmt::skip]
    fn parts(self) -> (&'static str, Table, Option<&'static str>) {
        match self {
            Self::TaskThread    => ("runs_by_task_thread",   Table::Runs,      Some("task_thread_id")),
            Self::AuditSession  => ("runs_by_audit_session", Table::Runs,      Some("audit_session_id")),
            Self::Active | Self::Unprioritised => ("active_by_start", Table::Active, None),
            Self::Suspended     => ("suspended_by_start",    Table::Suspended, None),
            Self::Priority      => ("active_by_priority",    Table::Active,    Some("priority")),
            Self::Agent         => ("runs_by_agent",         Table::Runs,      Some("agent_id")),
            Self::Workflow      => ("runs_by_workflow",      Table::Runs,      Some("workflow_id")),
            Self::Parent        => ("runs_by_parent",        Table::Runs,      Some("parent_run_id")),
            Self::Continued     => ("runs_by_continued",     Table::Runs,      Some("continues_run_id")),
            Self::Start         => ("runs_by_start",         Table::Runs,      None),
        }
    }

    /// The text that this column must have.
    pub(in crate::store) fn value(self, filter: &Filter) -> Option<&str> {
        self.column().and_then(|column| filter::text(filter, column))
    }

    /// The range of the index that a walk goes over, of columns of `table`: `$1` is the namespace, `$2` to `$5` are
    /// the places that it lies between, and the value of the index's column comes last, since SQLite numbers parameters
    /// in the order in which they occur. `every`: the index's own condition, which is true of all rows, where SQL must
    /// state it.
    pub(in crate::store) fn range(self, table: &str, every: &str) -> String {
        let known = match self.column() {
            None => every.to_owned(),
            Some(column) => format!(" and {table}{column} = {}", filter::parameter(column)),
        };
        let place = format!("({table}started_at, {table}run_id)");
        format!("{table}namespace = $1\n          and {place} > ($2, $3) and {place} < ($4, $5){known}")
    }
}
