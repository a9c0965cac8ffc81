//! The answers to calls that do not pass the gate.

use super::{Code, DRAINING_RETRY, Problem, RETRY, UNAVAILABLE_RETRY, after, invalid, overloaded};
use crate::auth::gate::{BadCredential, Denied};
use crate::auth::{Access, Lacking, Needs as _};
use crate::telemetry::record;

/// A call that does not pass: nothing of its request was read.
#[must_use]
pub fn denied(denied: Denied) -> Problem {
    match denied {
        Denied::NoCredential => {
            let message = "This server lets in callers with a credential only: send `authorization: Bearer TOKEN`, or \
                           a client certificate.";
            record::auth_failure("MISSING");
            Problem::new(Code::Unauthenticated, "CREDENTIAL_MISSING", message)
        }
        Denied::BadCredential(bad) => bad_credential(&bad),
        Denied::KeysUnavailable => {
            let message =
                "The keys of the token's issuer cannot be read now, so the token cannot be verified: try again.";
            record::auth_failure("UNVERIFIED");
            Problem::new(Code::Unavailable, "CREDENTIAL_UNVERIFIED", message).detail(RETRY, &after(UNAVAILABLE_RETRY))
        }
        Denied::Busy => overloaded(),
        Denied::UnknownMethod => Problem::new(Code::Unimplemented, "UNKNOWN_METHOD", "The server has no such method."),
        Denied::Headers(violations) => invalid(violations),
        Denied::Namespace => namespace_denied(),
        Denied::Role(access) => role_denied(access),
        Denied::Agent { named, own } => agent_denied(named.as_deref(), &own),
    }
}

/// The credential of a stream's or a wait's caller is taken no more; the call goes on with another one.
#[must_use]
pub fn credential_ends() -> Problem {
    let message = "The credential that the call came with is taken no more: go on with a new one.";
    Problem::new(Code::Unavailable, "DRAINING", message).detail(RETRY, &after(DRAINING_RETRY))
}

/// A stream or a wait that the rules no longer let in. A caller whose credential was replaced comes back with the next
/// one; one that has no other hears then that it is refused.
#[must_use]
pub fn let_in_no_more(denied: Denied) -> Problem {
    if matches!(denied, Denied::NoCredential | Denied::BadCredential(_)) {
        credential_ends()
    } else {
        self::denied(denied)
    }
}

/// A call that lacks a grant in the namespace that its request names.
#[must_use]
pub fn lacking(lacking: Lacking) -> Problem {
    match lacking {
        Lacking::Namespace => namespace_denied(),
        Lacking::Role(access) => role_denied(access),
        Lacking::Agent => agent_denied(None, ""),
    }
}

fn bad_credential(bad: &BadCredential) -> Problem {
    record::auth_failure(bad.name());
    let message = format!("The credential is not good: {bad}.");
    let problem = Problem::new(Code::Unauthenticated, "CREDENTIAL_INVALID", message).info("cause", bad.name());
    match bad.certificate() {
        Some(name) => problem.info("certificate", name),
        None => problem,
    }
}

/// Nothing was granted to the caller in the namespace. The answer is the same where the namespace does not exist.
#[must_use]
pub fn namespace_denied() -> Problem {
    let message = "Nothing was granted to this caller in this namespace, whether there is such a namespace or not.";
    Problem::new(Code::PermissionDenied, "NAMESPACE_DENIED", message)
}

/// No role of the caller's allows the call.
#[must_use]
pub fn role_denied(access: Access) -> Problem {
    let (name, least) = (access.name(), access.least_role());
    let message = format!("No role that was granted to this caller allows it to {name}: that takes {least}.");
    Problem::new(Code::PermissionDenied, "ROLE_DENIED", message)
}

/// The caller may not act as an agent, or names none and has several. `own`: the agents as which it may act.
#[must_use]
pub fn agent_denied(agent: Option<&str>, own: &str) -> Problem {
    let message = match (agent, own) {
        (_, "") => "This caller may act as no agent here: see `runledger whoami`.".to_owned(),
        (Some(_), own) => format!("This caller may not act as this agent, but as one of its own: {own}."),
        (None, own) => {
            format!("This caller reports as agents of its own only: name one in `runledger-agent-id`, of {own}.")
        }
    };
    let problem = Problem::new(Code::PermissionDenied, "AGENT_DENIED", message);
    problem.info("agent_id", agent.unwrap_or_default()).info("agents", own)
}
