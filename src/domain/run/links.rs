//! A run's route and its links to things outside the ledger.

use serde::{Deserialize, Serialize};

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

/// A run's route and its links. A new optional field of a run has its place here: in the
/// struct, the change, the fold and `effective`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Links {
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

/// The changes of links that a command asks for, and that an event made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinksChange {
    /// The new channel.
    pub route: Option<Route>,
    /// True sets the field; false leaves it.
    pub fallback_used: bool,
    /// The new value; empty clears.
    pub tab_group_id: Option<String>,
    /// The new value; empty clears.
    pub audit_session_id: Option<String>,
    /// The new value; empty clears.
    pub workflow_id: Option<String>,
}

object!(Links {
    route: "route",
    fallback_used: "fallbackUsed",
    tab_group_id: "tabGroupId",
    audit_session_id: "auditSessionId",
    workflow_id: "workflowId"
});

object!(LinksChange {
    route: "route",
    fallback_used: "fallbackUsed",
    tab_group_id: "tabGroupId",
    audit_session_id: "auditSessionId",
    workflow_id: "workflowId"
});

impl Links {
    pub(in crate::domain) fn fold(&mut self, change: &LinksChange) {
        let LinksChange { route, fallback_used, tab_group_id, audit_session_id, workflow_id } = change;
        self.route = route.or(self.route);
        self.fallback_used |= fallback_used;
        set(&mut self.tab_group_id, tab_group_id.as_ref());
        set(&mut self.audit_session_id, audit_session_id.as_ref());
        set(&mut self.workflow_id, workflow_id.as_ref());
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        texts([&self.tab_group_id, &self.audit_session_id, &self.workflow_id])
    }
}

impl LinksChange {
    /// The part of the change that has an effect on these links.
    #[must_use]
    pub(in crate::domain) fn effective(mut self, links: &Links) -> Self {
        self.route = self.route.filter(|route| links.route != Some(*route));
        self.fallback_used &= !links.fallback_used;
        for (change, now) in [
            (&mut self.tab_group_id, &links.tab_group_id),
            (&mut self.audit_session_id, &links.audit_session_id),
            (&mut self.workflow_id, &links.workflow_id),
        ] {
            *change = change.take().filter(|value| value != now.as_deref().unwrap_or_default());
        }
        self
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        texts([&self.tab_group_id, &self.audit_session_id, &self.workflow_id])
    }
}

/// Applies a change to a field: an absent value leaves it, an empty one clears it.
pub(in crate::domain) fn set(field: &mut Option<String>, change: Option<&String>) {
    if let Some(value) = change {
        *field = Some(value.clone()).filter(|value| !value.is_empty());
    }
}

fn texts<const N: usize>(texts: [&Option<String>; N]) -> usize {
    texts.into_iter().flatten().map(String::len).sum()
}
