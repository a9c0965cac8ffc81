//! What a run is bound to: its agent, its route, and ids of others.

use clap::Args;

use super::row::Row;
use crate::cli::fields::{Route, route};
use crate::text::MaybeEmpty;
use runledger_proto::v1;

/// The flags of a start.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct Bindings {
    /// Route by which the run is executed
    #[arg(long, value_name = "ROUTE", value_enum)]
    route: Option<Route>,
    /// The run degraded from MCP to CLI
    #[arg(long)]
    fallback_used: bool,
    /// The run's owner [default: the acting agent]
    #[arg(long, visible_alias = "agent", value_name = "ID")]
    agent_id: Option<String>,
    /// The run's tab group
    #[arg(long, visible_alias = "tab-group", value_name = "ID")]
    tab_group_id: Option<String>,
    /// The run's audit session
    #[arg(long, visible_alias = "audit-session", value_name = "ID")]
    audit_session_id: Option<String>,
    /// The run's workflow
    #[arg(long, visible_alias = "workflow", value_name = "ID")]
    workflow_id: Option<String>,
}

/// The flags of an update.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct Rebindings {
    /// Route by which the run is executed
    #[arg(long, value_name = "ROUTE", value_enum)]
    route: Option<Route>,
    /// The run degraded from MCP to CLI
    #[arg(long)]
    fallback_used: bool,
    /// The run's tab group; empty for none
    #[arg(long, visible_alias = "tab-group", value_name = "ID")]
    tab_group_id: Option<MaybeEmpty>,
    /// The run's audit session; empty for none
    #[arg(long, visible_alias = "audit-session", value_name = "ID")]
    audit_session_id: Option<MaybeEmpty>,
    /// The run's workflow; empty for none
    #[arg(long, visible_alias = "workflow", value_name = "ID")]
    workflow_id: Option<MaybeEmpty>,
}

impl Bindings {
    pub(in crate::cli::run) fn put(self, request: &mut v1::StartRunRequest) {
        request.route = route(self.route);
        request.fallback_used = self.fallback_used;
        request.agent_id = self.agent_id.unwrap_or_default();
        request.tab_group_id = self.tab_group_id.unwrap_or_default();
        request.audit_session_id = self.audit_session_id.unwrap_or_default();
        request.workflow_id = self.workflow_id.unwrap_or_default();
    }
}

impl Rebindings {
    pub(in crate::cli::run) fn put(self, request: &mut v1::UpdateRunRequest) {
        request.route = route(self.route);
        request.fallback_used = self.fallback_used;
        request.tab_group_id = self.tab_group_id.map(|text| text.0);
        request.audit_session_id = self.audit_session_id.map(|text| text.0);
        request.workflow_id = self.workflow_id.map(|text| text.0);
    }
}

pub(super) const ROWS: &[Row] = &[
    Row::plain("agent"),
    Row::plain("route"),
    Row::plain("fallback used"),
    Row::plain("tab group"),
    Row::plain("audit session"),
    Row::plain("workflow"),
];
