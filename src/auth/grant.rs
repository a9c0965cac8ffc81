//! What a caller was granted: in which namespaces, in which roles, as which agents.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Access, Needs as _, Role};
use crate::domain::limits::LINK_BYTES_MAX;
use crate::domain::{Agents, Pattern};

/// Whether a text can be shown and kept as a name.
pub(super) fn is_name(text: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// One grant of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The namespaces for which the grant holds.
    pub namespaces: Vec<Pattern>,
    pub roles: Vec<Role>,
    /// The agents as which the caller may act.
    pub agents: Arc<[Pattern]>,
}

impl Grant {
    fn holds_in(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|pattern| pattern.matches(namespace))
    }

    fn allows(&self, access: Access) -> bool {
        self.roles.iter().any(|role| access.admits(*role))
    }

    /// Whether one of the roles is an operator's.
    fn operates(&self) -> bool {
        self.roles.iter().any(|role| role.operates())
    }

    /// Whether the grant is for every agent.
    fn is_for_all(&self) -> bool {
        self.agents.contains(&Pattern::Any)
    }
}

/// The reason for which grants do not suffice for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// Nothing was granted in the namespace.
    Namespace,
    /// No role that was granted in the namespace allows the call.
    Role(Access),
    /// The acting agent is none of those as which the caller may act; or the caller names none, and has several.
    Agent,
}

/// Bytes that agents take at most in a refusal.
const AGENTS_BYTES_MAX: usize = 256;

/// All grants of a caller. A clone shares them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(Arc<[Grant]>);

/// What a call may do by its grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The acting agent.
    pub agent_id: Option<String>,
    /// The agents whose runs the call may write.
    pub agents: Agents,
}

impl Grants {
    /// These grants.
    #[must_use]
    pub fn new(grants: Vec<Grant>) -> Self {
        Self(grants.into())
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.0.iter()
    }

    /// Whether a role allows an access in a namespace.
    ///
    /// # Errors
    ///
    /// What is lacking.
    pub fn allow(&self, access: Access, namespace: &str) -> Result<(), Lacking> {
        if !self.0.iter().any(|grant| grant.holds_in(namespace)) {
            return Err(Lacking::Namespace);
        }
        let mut grants = self.0.iter().filter(|grant| grant.holds_in(namespace));
        if grants.any(|grant| grant.allows(access)) { Ok(()) } else { Err(Lacking::Role(access)) }
    }

    /// The namespaces in which a role allows an access.
    pub fn namespaces(&self, access: Access) -> impl Iterator<Item = &Pattern> {
        self.0.iter().filter(move |grant| grant.allows(access)).flat_map(|grant| &grant.namespaces)
    }

    /// Whether a role that was granted in every namespace allows an access.
    ///
    /// # Errors
    ///
    /// What is lacking.
    pub fn allow_everywhere(&self, access: Access) -> Result<(), Lacking> {
        let mut grants = self.0.iter().filter(|grant| grant.namespaces.contains(&Pattern::Any));
        if grants.any(|grant| grant.allows(access)) { Ok(()) } else { Err(Lacking::Role(access)) }
    }

    /// What a call in a namespace may do that names this acting agent, or none. A caller whose runs are those of one
    /// agent need not name it.
    ///
    /// # Errors
    ///
    /// What is lacking.
    pub fn allow_as(&self, access: Access, namespace: &str, agent: Option<String>) -> Result<Allowed, Lacking> {
        self.allow(access, namespace)?;
        let own = || self.0.iter().filter(|grant| grant.holds_in(namespace) && grant.allows(access));
        let patterns = || own().flat_map(|grant| grant.agents.iter());
        if agent.as_ref().is_some_and(|agent| !patterns().any(|pattern| pattern.matches(agent))) {
            return Err(Lacking::Agent);
        }
        if own().any(Grant::operates) {
            return Ok(Allowed { agent_id: agent, agents: Agents::All });
        }
        if own().any(Grant::is_for_all) {
            return Ok(Allowed { agent_id: agent, agents: Agents::AllAsReporter });
        }
        let agent_id = agent.or_else(|| the_only_one(patterns()));
        if access == Access::Report && agent_id.is_none() {
            return Err(Lacking::Agent);
        }
        let mut grants = own();
        let agents = match (grants.next(), grants.next()) {
            (Some(only), None) => only.agents.clone(),
            _ => patterns().cloned().collect(),
        };
        Ok(Allowed { agent_id, agents: Agents::Of(agents) })
    }

    /// The agents as which the caller may act in a namespace, by the roles that allow an access: as a text for the caller
    /// itself, which is cut where it would be too long.
    #[must_use]
    pub fn agents(&self, access: Access, namespace: &str) -> String {
        let own = self.0.iter().filter(|grant| grant.holds_in(namespace) && grant.allows(access));
        let patterns: BTreeSet<String> = own.flat_map(|grant| grant.agents.iter()).map(ToString::to_string).collect();
        let mut text = String::new();
        for pattern in patterns {
            let between = if text.is_empty() { "" } else { ", " };
            if text.len() + between.len() + pattern.len() > AGENTS_BYTES_MAX {
                return if text.is_empty() { "…".to_owned() } else { text + ", …" };
            }
            text = text + between + &pattern;
        }
        text
    }

    /// Whether an agent is one of those as which the caller may report in a namespace.
    #[must_use]
    pub fn may_act_as(&self, namespace: &str, agent: &str) -> bool {
        let grants = self.0.iter().filter(|grant| grant.holds_in(namespace) && grant.allows(Access::Report));
        grants.flat_map(|grant| grant.agents.iter()).any(|pattern| pattern.matches(agent))
    }
}

/// The one agent that the patterns stand for, if they stand for one.
fn the_only_one<'a>(mut patterns: impl Iterator<Item = &'a Pattern>) -> Option<String> {
    match (patterns.next(), patterns.next()) {
        (Some(Pattern::Exact(agent)), None) if is_name(agent, LINK_BYTES_MAX) => Some(agent.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
