//! The run: the fold of its events.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::limits::SUMMARY_REASON_BYTES_MAX;
use super::{Metadata, RunKey, Supervision, Time};

/// A run's lifecycle state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Created, not yet started.
    Pending,
    /// Under way.
    Running,
    /// Terminal: finished successfully.
    Completed,
    /// Terminal: stopped on purpose.
    Aborted,
    /// Terminal: ended with an error.
    Failed,
}

impl Status {
    /// Every status, in the order of their codes.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Completed, Self::Aborted, Self::Failed];

    /// Whether the status never changes again.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Completed | Self::Aborted | Self::Failed => true,
        }
    }

    /// The lower-case name that the bridges' envelope and every message use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
        }
    }

    /// The number that the tables' `status` columns and the proto use.
    #[must_use]
    pub fn code(self) -> i16 {
        match self {
            Self::Pending => 1,
            Self::Running => 2,
            Self::Completed => 3,
            Self::Aborted => 4,
            Self::Failed => 5,
        }
    }

    /// The matrix: whether `to` may follow `from`, where `None` is a run that does not exist.
    #[must_use]
    pub fn allows(from: Option<Self>, to: Self) -> bool {
        match (from, to) {
            (None, Self::Pending | Self::Running)
            | (Some(Self::Pending), Self::Running | Self::Aborted | Self::Failed)
            | (Some(Self::Running), Self::Completed | Self::Aborted | Self::Failed) => true,
            (None, Self::Completed | Self::Aborted | Self::Failed)
            | (Some(Self::Pending), Self::Pending | Self::Completed)
            | (Some(Self::Running), Self::Pending | Self::Running)
            | (Some(Self::Completed | Self::Aborted | Self::Failed), _) => false,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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

/// One run. Its serde form is the bridges' envelope without the metadata, as the ledger's keyframes keep it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The orchestration task that the run belongs to. Never changes.
    pub task_thread_id: String,
    /// The run's id.
    pub run_id: String,
    /// The namespace that the run lives in.
    pub namespace: String,
    /// The lifecycle state.
    pub status: Status,
    /// 1 at creation, +1 with every event.
    pub revision: u64,
    /// When the run was created.
    pub started_at: Time,
    /// When the run's last event happened.
    pub updated_at: Time,
    /// When the run first became running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_at: Option<Time>,
    /// When the run became terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
    /// The channel that executes the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Route>,
    /// The run degraded from MCP to CLI.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fallback_used: bool,
    /// The owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The tab group, when tab groups isolate agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tab_group_id: Option<String>,
    /// The browser-audit session that the run is linked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_session_id: Option<String>,
    /// The workflow or playbook that the run is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    /// Why the run ended, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why the run ended, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<String>,
    /// For filtering.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What the authority watches over.
    #[serde(default, skip_serializing_if = "Supervision::is_empty")]
    pub supervision: Supervision,
    /// The bridge's own data.
    #[serde(skip)]
    pub metadata: Metadata,
}

impl Run {
    /// The run's identity.
    #[must_use]
    pub fn key(&self) -> RunKey {
        RunKey { namespace: self.namespace.clone(), run_id: self.run_id.clone() }
    }

    /// The run without its metadata.
    #[must_use]
    pub fn without_metadata(&self) -> Self {
        Self { metadata: Metadata::default(), ..self.clone() }
    }

    /// What a refusal shows of the run.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            namespace: self.namespace.clone(),
            run_id: self.run_id.clone(),
            task_thread_id: self.task_thread_id.clone(),
            agent_id: self.agent_id.clone(),
            status: self.status,
            revision: self.revision,
            started_at: self.started_at,
            running_at: self.running_at,
            updated_at: self.updated_at,
            completed_at: self.completed_at,
            presumed: self.supervision.presumed,
            reason_code: self.reason_code.clone(),
            failure_reason: self
                .failure_reason
                .as_deref()
                .map(|text| text[..text.floor_char_boundary(SUMMARY_REASON_BYTES_MAX)].to_owned()),
        }
    }

    /// About how many bytes the run takes in memory: for bounds on queues and caches.
    #[must_use]
    pub fn weight(&self) -> usize {
        let texts =
            [&self.agent_id, &self.tab_group_id, &self.audit_session_id, &self.workflow_id, &self.failure_reason];
        size_of::<Self>()
            + self.task_thread_id.len()
            + self.run_id.len()
            + texts.iter().filter_map(|text| text.as_ref().map(String::len)).sum::<usize>()
            + self.labels.iter().map(|(key, value)| 64 + key.len() + value.len()).sum::<usize>()
            + self.supervision.weight()
            + self.metadata.weight()
    }
}

/// What a refusal shows of a run: enough to see who won, small enough for HTTP/2 trailers.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// See [`Run::namespace`].
    pub namespace: String,
    /// See [`Run::run_id`].
    pub run_id: String,
    /// See [`Run::task_thread_id`].
    pub task_thread_id: String,
    /// See [`Run::agent_id`].
    pub agent_id: Option<String>,
    /// See [`Run::status`].
    pub status: Status,
    /// See [`Run::revision`].
    pub revision: u64,
    /// See [`Run::started_at`].
    pub started_at: Time,
    /// See [`Run::running_at`].
    pub running_at: Option<Time>,
    /// See [`Run::updated_at`].
    pub updated_at: Time,
    /// See [`Run::completed_at`].
    pub completed_at: Option<Time>,
    /// See [`Supervision::presumed`].
    pub presumed: bool,
    /// See [`Run::reason_code`].
    pub reason_code: Option<String>,
    /// The first 512 bytes of [`Run::failure_reason`], cut at a character.
    pub failure_reason: Option<String>,
}
