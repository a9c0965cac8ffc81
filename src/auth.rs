//! Who calls, and what the caller may do. Where no identity is configured, a caller is believed: its name keeps honest
//! agents apart, not hostile ones. Else a credential proves it, and the access file says what was granted to it.

pub mod access_file;
pub mod gate;
pub mod jwks;
pub mod jwt;
pub mod reload;
pub mod rules;
pub mod token;

mod access;
mod grant;
mod names;
mod role;
mod template;
mod trusted;

pub use self::access::{Access, Needs, Scope};
pub use self::gate::{Gate, Kinds};
pub use self::grant::{Allowed, Grant, Grants, Lacking};
pub use self::names::agent as named_agent;
pub use self::role::Role;
pub use self::trusted::Trusted;
use crate::domain::{Agents, Namespace, Pattern, Principal};

/// The caller of a call, and the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The namespace that the call is for.
    pub namespace: Namespace,
    /// The principal that makes the call.
    pub principal: Principal,
    /// The agents whose runs the call may write.
    pub agents: Agents,
    /// What else the caller may do.
    pub rights: Rights,
}

/// What a caller may do beside the call's own namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights(Option<Grants>);

impl Rights {
    /// Everything: the caller is believed.
    #[must_use]
    pub fn all() -> Self {
        Self(None)
    }

    /// Nothing.
    #[must_use]
    pub fn none() -> Self {
        Self(Some(Grants::default()))
    }

    /// What was granted.
    #[must_use]
    pub fn of(grants: Grants) -> Self {
        Self(Some(grants))
    }

    /// Whether the caller may do this in a namespace.
    ///
    /// # Errors
    ///
    /// What its grants lack.
    pub fn allow(&self, access: Access, namespace: &str) -> Result<(), Lacking> {
        self.0.as_ref().map_or(Ok(()), |grants| grants.allow(access, namespace))
    }

    /// Whether the caller may do this in every namespace.
    ///
    /// # Errors
    ///
    /// What its grants lack.
    pub fn allow_everywhere(&self, access: Access) -> Result<(), Lacking> {
        self.0.as_ref().map_or(Ok(()), |grants| grants.allow_everywhere(access))
    }

    /// The namespaces in which the caller may do this.
    #[must_use]
    pub fn namespaces(&self, access: Access) -> Vec<Pattern> {
        let Some(grants) = &self.0 else { return vec![Pattern::Any] };
        let patterns: Vec<Pattern> = grants.namespaces(access).cloned().collect();
        if patterns.contains(&Pattern::Any) { vec![Pattern::Any] } else { patterns }
    }

    /// What was granted; none where the caller is believed, and may do everything.
    #[must_use]
    pub fn grants(&self) -> Option<&Grants> {
        self.0.as_ref()
    }

    /// The agents as which the caller may report in a namespace: see [`Grants::agents`].
    #[must_use]
    pub fn agents(&self, namespace: &str) -> String {
        self.0.as_ref().map_or_else(|| "*".to_owned(), |grants| grants.agents(Access::Report, namespace))
    }

    /// Whether the caller may make an agent the owner of a run in a namespace.
    #[must_use]
    pub fn may_act_as(&self, namespace: &str, agent: &str) -> bool {
        self.0.as_ref().is_none_or(|grants| grants.may_act_as(namespace, agent))
    }
}
