//! Callers as the answer to who they are.

use runledger_proto::v1;

use crate::auth::{Caller, Grant, Grants, Role};
use crate::wire::from_domain::IntoMessage as _;

/// The answer to a `WhoAmI`.
#[must_use]
pub fn who_am_i(caller: &Caller) -> v1::WhoAmIResponse {
    let grants = caller.rights.grants();
    v1::WhoAmIResponse {
        principal: Some((&caller.principal).into_message()),
        believed: grants.is_none(),
        grants: grants.into_iter().flat_map(Grants::iter).map(shown).collect(),
    }
}

fn shown(grant: &Grant) -> v1::Grant {
    v1::Grant {
        namespaces: grant.namespaces.iter().map(ToString::to_string).collect(),
        roles: grant.roles.iter().map(|role| v1::Role::from(*role).into()).collect(),
        agents: grant.agents.iter().map(ToString::to_string).collect(),
    }
}

impl From<Role> for v1::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Reader => Self::Reader,
            Role::Reporter => Self::Reporter,
            Role::Operator => Self::Operator,
            Role::Admin => Self::Admin,
        }
    }
}
