//! What a run is bound to outside the ledger: its route, and the ids of what it belongs to there.

use serde::{Deserialize, Serialize};

use super::redaction::Redaction;
use super::texts::{self, set};
use crate::domain::form::object;

/// The channel that executes a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// Model Context Protocol.
    Mcp,
    /// Command line.
    Cli,
    /// Plain HTTP.
    Http,
}

impl Route {
    /// Every route.
    pub const ALL: [Self; 3] = [Self::Mcp, Self::Cli, Self::Http];

    /// The lower-case name that the bridges' envelope uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Cli => "cli",
            Self::Http => "http",
        }
    }
}

/// A run's route and the ids of what it is bound to; also the change of them that an ask brings or an event made, which
/// leaves what is absent, or false, and clears what is empty. A new optional text of a run has its place here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bindings {
    /// The channel that executes the run.
    pub route: Option<Route>,
    /// The run degraded from MCP to CLI.
    pub fallback_used: bool,
    /// The tab group, when tab groups isolate agents.
    pub tab_group_id: Option<String>,
    /// The browser-audit session that the run is linked to.
    pub audit_session_id: Option<String>,
    /// The workflow or playbook that the run is part of.
    pub workflow_id: Option<String>,
}

object!(Bindings {
    route: "route",
    fallback_used: "fallbackUsed",
    tab_group_id: "tabGroupId",
    audit_session_id: "auditSessionId",
    workflow_id: "workflowId"
});

pub type BindingsChange = Bindings;

impl Bindings {
    pub(in crate::domain) fn fold(&mut self, change: &BindingsChange) {
        let Self { route, fallback_used, tab_group_id, audit_session_id, workflow_id } = self;
        *route = change.route.or(*route);
        *fallback_used |= change.fallback_used;
        set(tab_group_id, change.tab_group_id.as_ref());
        set(audit_session_id, change.audit_session_id.as_ref());
        set(workflow_id, change.workflow_id.as_ref());
    }

    /// The part of the change that has an effect on these bindings.
    #[must_use]
    pub(in crate::domain) fn effective(&self, mut change: BindingsChange) -> BindingsChange {
        let Self { route, fallback_used, tab_group_id, audit_session_id, workflow_id } = self;
        change.route = change.route.filter(|new| *route != Some(*new));
        change.fallback_used &= !fallback_used;
        texts::keep_new(&mut change.tab_group_id, tab_group_id.as_ref());
        texts::keep_new(&mut change.audit_session_id, audit_session_id.as_ref());
        texts::keep_new(&mut change.workflow_id, workflow_id.as_ref());
        change
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { route: _, fallback_used: _, tab_group_id, audit_session_id, workflow_id } = self;
        texts::weight([tab_group_id, audit_session_id, workflow_id])
    }

    /// No path of a redaction names them.
    pub(in crate::domain) fn take_out(&mut self, _: &Redaction) -> u64 {
        let Self { route: _, fallback_used: _, tab_group_id: _, audit_session_id: _, workflow_id: _ } = self;
        0
    }
}
