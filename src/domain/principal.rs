//! Who makes a call.

use serde::{Deserialize, Serialize};

/// How far the authority knows who made a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrincipalKind {
    /// The caller named nobody.
    Anonymous,
    /// The caller named an agent; nothing proved it.
    Claimed,
    /// The caller proved who it is.
    Authenticated,
    /// Nobody called: the authority itself.
    Authority,
}

/// Who makes a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Principal {
    /// How far it is known.
    pub kind: PrincipalKind,
    /// The acting agent; none when anonymous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

impl Principal {
    /// A caller that named nobody.
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
