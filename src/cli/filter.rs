//! The flags that choose runs, for every command that is about many.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::exit::Stop;
use super::fields::{self, Label, Route, Status};
use crate::clock::{Clock as _, SystemClock};
use crate::text::When;
use crate::wire::scalars;
use runledger_proto::v1;

/// Runs must match every flag that is given.
#[derive(Args, Debug)]
pub(super) struct Filter {
    /// Runs in this status; repeat it for more
    #[arg(long = "status", value_name = "STATUS", value_enum, value_delimiter = ',', help_heading = "Filters")]
    statuses: Vec<Status>,
    /// Runs of this task thread
    #[arg(long, visible_alias = "task-thread-id", value_name = "ID", value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    task_thread: Option<String>,
    /// Runs that this agent owns
    #[arg(long, visible_alias = "agent", value_name = "ID", value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    agent_id: Option<String>,
    /// Runs of this workflow
    #[arg(long, visible_alias = "workflow-id", value_name = "ID", value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    workflow: Option<String>,
    /// Runs of this audit session
    #[arg(long, visible_alias = "audit-session-id", value_name = "ID", value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    audit_session: Option<String>,
    /// Runs that this run started
    #[arg(long, visible_alias = "parent-run-id", value_name = "RUN_ID", value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    parent: Option<String>,
    /// Runs that go on with this run
    #[arg(long, visible_alias = "continues-run-id", value_name = "RUN_ID", value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    continues: Option<String>,
    /// Runs in this phase
    #[arg(long, value_name = "PHASE", value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    phase: Option<String>,
    /// Runs with this lifecycle, whatever its version
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    lifecycle: Option<String>,
    /// Runs that are suspended, also those that are ready to go on; `=false`: the others
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Filters")]
    suspended: Option<bool>,
    /// Runs that are suspended by this kind of suspension
    #[arg(long, value_name = "KIND", value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    suspension_kind: Option<String>,
    /// Runs that are ready for the next claim; `=false`: the others
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Filters")]
    ready: Option<bool>,
    /// Runs on this route
    #[arg(long, value_name = "ROUTE", value_enum, help_heading = "Filters")]
    route: Option<Route>,
    /// Runs with this label; repeat it for more, all of which they must have
    #[arg(long = "label", value_name = "KEY=VALUE", help_heading = "Filters")]
    labels: Vec<Label>,
    /// Runs created at this time or later: 2026-01-31T10:00:00Z, 2026-01-31 (UTC), or so long ago, such as 90m or 7d
    #[arg(long, value_name = "TIME|DURATION", help_heading = "Filters")]
    started_from: Option<When>,
    /// Runs created before this time, said in the same way
    #[arg(long, value_name = "TIME|DURATION", help_heading = "Filters")]
    started_before: Option<When>,
    /// Archived runs as well [default: lists and counts leave them out]
    #[arg(long, help_heading = "Filters")]
    archived: bool,
    /// Archived runs alone
    #[arg(long, conflicts_with = "archived", help_heading = "Filters")]
    only_archived: bool,
}

impl Filter {
    pub(super) fn message(self) -> Result<v1::RunFilter, Stop> {
        let archived = match (self.archived, self.only_archived) {
            (_, true) => v1::ArchivedFilter::Only,
            (true, false) => v1::ArchivedFilter::Included,
            (false, false) => v1::ArchivedFilter::Unspecified,
        };
        let now = SystemClock.now();
        let at = |when: Option<When>| when.map(|when| scalars::timestamp(when.from(now)));
        Ok(v1::RunFilter {
            archived: archived.into(),
            task_thread_id: self.task_thread.unwrap_or_default(),
            statuses: self.statuses.iter().map(|status| v1::RunStatus::from(*status).into()).collect(),
            agent_id: self.agent_id.unwrap_or_default(),
            workflow_id: self.workflow.unwrap_or_default(),
            audit_session_id: self.audit_session.unwrap_or_default(),
            route: fields::route(self.route),
            labels: fields::labels(self.labels)?,
            started_from: at(self.started_from),
            started_before: at(self.started_before),
            parent_run_id: self.parent.unwrap_or_default(),
            continues_run_id: self.continues.unwrap_or_default(),
            phase: self.phase.unwrap_or_default(),
            lifecycle: self.lifecycle.unwrap_or_default(),
            suspended: self.suspended,
            ready: self.ready,
            suspension_kind: self.suspension_kind.unwrap_or_default(),
        })
    }
}
