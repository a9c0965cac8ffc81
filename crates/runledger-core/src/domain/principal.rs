//! The caller of a call.
//!
//! Invariants:
//!
//! - The server itself finds who the principal of an event is: by a credential, or else by the agent that the caller
//!   names, which is noted as claimed and not as proven.
//! - A caller that is confined to its agents changes no run that another agent owns: `decide` refuses it, whatever the
//!   call is.
//! - Only an operator suspends a run that another worker holds, or approves a run that waits for an approval. An
//!   identity that executed a run never approves it, whether it executed the run under a lease or under none.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Pattern;

/// The degree to which the authority knows a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrincipalKind {
    /// The caller gave no name.
    Anonymous,
    /// The caller named an agent without a proof.
    Claimed,
    /// The caller proved its identity.
    Authenticated,
    /// The authority itself, without a caller.
    Authority,
}

/// An identity that a credential proved.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// The name that the issuer gave to whoever holds the credential.
    pub subject: String,
    /// The issuer of the credential.
    pub issuer: String,
}

/// The caller of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Principal {
    /// The degree to which the caller is known.
    pub kind: PrincipalKind,
    /// The acting agent; none when anonymous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The identity that was proven; none unless authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Arc<Identity>>,
}

impl Principal {
    /// A caller that gave no name.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { kind: PrincipalKind::Anonymous, agent_id: None, identity: None }
    }

    /// The authority itself.
    #[must_use]
    pub fn authority() -> Self {
        Self { kind: PrincipalKind::Authority, agent_id: None, identity: None }
    }

    /// A caller that named an agent, unproven.
    #[must_use]
    pub fn claimed(agent_id: String) -> Self {
        Self { kind: PrincipalKind::Claimed, agent_id: Some(agent_id), identity: None }
    }

    /// A caller that proved its identity, and acts as an agent of its own if it names one.
    #[must_use]
    pub fn authenticated(identity: Arc<Identity>, agent_id: Option<String>) -> Self {
        Self { kind: PrincipalKind::Authenticated, agent_id, identity: Some(identity) }
    }
}

/// The agents whose runs a caller may write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Agents {
    /// Every agent, and runs without an owner, as an operator: the caller also suspends what another holds, and
    /// approves. Where nobody has an identity, everybody is believed to be one.
    #[default]
    All,
    /// Every agent, and runs without an owner, as a reporter: what another holds is that one's to suspend.
    AllAsReporter,
    /// The agents that one of these patterns stands for. A run without an owner is none of theirs before it is taken.
    Of(Arc<[Pattern]>),
}

impl Agents {
    /// Whether these are not all agents: the caller writes runs of its own agents only.
    #[must_use]
    pub fn is_confined(&self) -> bool {
        match self {
            Self::All | Self::AllAsReporter => false,
            Self::Of(_) => true,
        }
    }

    /// Whether the caller suspends what another holds, and approves what another executed.
    #[must_use]
    pub fn is_operators(&self) -> bool {
        match self {
            Self::All => true,
            Self::AllAsReporter | Self::Of(_) => false,
        }
    }

    /// Whether an agent is one of these.
    #[must_use]
    pub fn contains(&self, agent_id: &str) -> bool {
        match self {
            Self::All | Self::AllAsReporter => true,
            Self::Of(patterns) => patterns.iter().any(|pattern| pattern.matches(agent_id)),
        }
    }
}
