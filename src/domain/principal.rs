//! The caller of a call.

use serde::{Deserialize, Serialize};

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

/// The caller of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Principal {
    /// The degree to which the caller is known.
    pub kind: PrincipalKind,
    /// The acting agent; none when anonymous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

impl Principal {
    /// A caller that gave no name.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { kind: PrincipalKind::Anonymous, agent_id: None }
    }

    /// The authority itself.
    #[must_use]
    pub fn authority() -> Self {
        Self { kind: PrincipalKind::Authority, agent_id: None }
    }

    /// A caller that named an agent, unproven.
    #[must_use]
    pub fn claimed(agent_id: String) -> Self {
        Self { kind: PrincipalKind::Claimed, agent_id: Some(agent_id) }
    }
}
