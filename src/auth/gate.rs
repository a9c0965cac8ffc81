//! The gate that every call passes: its credential, its namespace, its role and its agent, by its headers alone and
//! before its request is read.
//!
//! Invariant: a credential that comes with a call is good, or the call is refused. No call falls back to another
//! credential, or to none. No text of a credential leaves this module.

mod credential;
mod denied;
mod sessions;

use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use http::HeaderMap;
use tokio::time::Instant;

use self::credential::Credential;
pub use self::denied::{BadCredential, Denied};
pub use self::sessions::Session;
use self::sessions::Sessions;
use super::names::Names;
use super::rules::{Known, Rules};
use super::{Access, Allowed, Caller, Rights};
use crate::clock::Clock;
use crate::domain::{Agents, Namespace, Principal, Time};

/// Time for which a credential is still taken after its end: clocks differ.
const SKEW_MS: u64 = 30_000;

/// A client certificate, whose chain the connection has verified.
#[derive(Clone, Copy, Debug)]
pub struct Certificate<'a> {
    /// The name in it.
    pub name: &'a str,
    /// The distinguished name of its issuer.
    pub issuer: &'a str,
}

/// The kinds of credentials that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    /// Tokens of the access file.
    pub token: bool,
    /// Signed tokens of its issuers.
    pub jwt: bool,
    /// Client certificates.
    pub certificate: bool,
}

impl Kinds {
    /// All kinds.
    #[must_use]
    pub fn all() -> Self {
        Self { token: true, jwt: true, certificate: true }
    }

    /// No kind.
    #[must_use]
    pub fn none() -> Self {
        Self { token: false, jwt: false, certificate: false }
    }
}

/// A call that was let in.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// The caller.
    pub caller: Caller,
    /// The time at which streams and waits of the call end, since its credential does.
    pub ends_at: Option<Instant>,
    /// Tells when the call's grant is taken; none where there is nothing to take.
    pub session: Option<Arc<Session>>,
}

/// What is known of a call without waiting.
#[derive(Debug)]
pub enum Looked {
    /// The call is let in.
    Admitted(Box<Admitted>),
    /// The call is refused.
    Denied(Denied),
}

/// See the module.
pub struct Gate(Option<Checked>);

struct Checked {
    kinds: Kinds,
    rules: ArcSwap<Rules>,
    sessions: Mutex<Sessions>,
    clock: Arc<dyn Clock>,
}

impl Gate {
    /// The gate that lets everybody in, and believes every caller.
    #[must_use]
    pub fn open() -> Self {
        Self(None)
    }

    /// The gate that lets in those whom the rules know by a credential of these kinds.
    #[must_use]
    pub fn of(kinds: Kinds, rules: Rules, clock: Arc<dyn Clock>) -> Self {
        Self(Some(Checked { kinds, rules: ArcSwap::from_pointee(rules), sessions: Mutex::default(), clock }))
    }

    /// Looks at a call, by its path and its headers. `lasts`: the call may outlive its credential or its grants.
    pub fn look(&self, path: &str, headers: &HeaderMap, certificate: Option<Certificate<'_>>, lasts: bool) -> Looked {
        let looked = match &self.0 {
            None => believed(path, headers),
            Some(checked) => checked.look(path, headers, certificate, lasts),
        };
        match looked {
            Ok(admitted) => Looked::Admitted(Box::new(admitted)),
            Err(denied) => Looked::Denied(denied),
        }
    }

    /// Takes new rules. Streams and waits whose grants are gone are told to end.
    pub fn take(&self, rules: Rules) {
        if let Some(checked) = &self.0 {
            checked.rules.store(Arc::new(rules));
            let rules = checked.rules.load();
            sessions::held(&checked.sessions).end_denied(|session| {
                let known = checked.known_by(&rules, &session.credential)?;
                Checked::admit(known, session.access, session.names.clone()).map(drop)
            });
        }
    }
}

/// Lets a caller in who is believed. Health and reflection name nobody.
fn believed(path: &str, headers: &HeaderMap) -> Result<Admitted, Denied> {
    let names = match Access::of(path) {
        Some(Access::Read | Access::Report) | None => Names::of(headers).map_err(Denied::Headers)?,
        Some(Access::Open | Access::Know | Access::Govern | Access::Inspect) => Names::none(),
    };
    let principal = names.agent.map_or_else(Principal::anonymous, Principal::claimed);
    let caller = Caller { namespace: names.namespace, principal, agents: Agents::All, rights: Rights::all() };
    Ok(Admitted { caller, ends_at: None, session: None })
}

impl Checked {
    fn look(
        &self,
        path: &str,
        headers: &HeaderMap,
        certificate: Option<Certificate<'_>>,
        lasts: bool,
    ) -> Result<Admitted, Denied> {
        let access = Access::of(path).ok_or(Denied::UnknownMethod)?;
        let credential = match Credential::of(headers, certificate)? {
            Some(credential) => credential,
            None if access == Access::Open => return Ok(Admitted::anonymous()),
            None => return Err(Denied::NoCredential),
        };
        let known = self.known_by(&self.rules.load(), &credential)?;
        if access == Access::Open {
            return Ok(Admitted::anonymous());
        }
        let ends_at = known.expires_at.map(|end| self.ends_at(end));
        let names = match access {
            Access::Read | Access::Report => Names::of(headers).map_err(Denied::Headers)?,
            Access::Open | Access::Know | Access::Govern | Access::Inspect => Names::none(),
        };
        let mut admitted = Self::admit(known, access, names.clone())?;
        admitted.ends_at = ends_at;
        if lasts {
            let session = Arc::new(Session::new(credential, access, names));
            sessions::held(&self.sessions).add(&session);
            // New rules may have come before the session was there to be told.
            let known = self.known_by(&self.rules.load(), &session.credential)?;
            Self::admit(known, session.access, session.names.clone())?;
            admitted.session = Some(session);
        }
        Ok(admitted)
    }

    /// Whoever a credential proves.
    fn known_by(&self, rules: &Rules, credential: &Credential) -> Result<Known, Denied> {
        let known = match credential {
            Credential::Token(_) if !self.kinds.token => return Err(BadCredential::NotTaken.into()),
            Credential::Token(hash) => rules.of_token(hash).ok_or(BadCredential::Unknown)?.clone(),
            Credential::Jwt => return Err(BadCredential::NotTaken.into()),
            Credential::Certificate { .. } if !self.kinds.certificate => return Err(Denied::NoCredential),
            Credential::Certificate { name, issuer } => {
                rules.of_certificate(name, issuer).ok_or(BadCredential::Unknown)?
            }
        };
        let now = self.clock.now();
        match known.expires_at {
            Some(end) if end.plus_ms(SKEW_MS) <= now => Err(BadCredential::Expired.into()),
            Some(_) | None => Ok(known),
        }
    }

    /// Lets a known caller in, or says what its grants lack.
    fn admit(known: Known, access: Access, names: Names) -> Result<Admitted, Denied> {
        let Known { identity, grants, .. } = known;
        let Allowed { agent_id, agents } = match access {
            Access::Read | Access::Report => {
                let agent = names.agent.clone();
                grants.allow_as(access, &names.namespace, agent).map_err(|lacking| Denied::lacking(lacking, &names))?
            }
            Access::Inspect => {
                grants.allow_everywhere(access).map_err(|lacking| Denied::lacking(lacking, &names))?;
                Allowed { agent_id: None, agents: Agents::All }
            }
            // The request names the namespace.
            Access::Open | Access::Know | Access::Govern => Allowed { agent_id: None, agents: Agents::All },
        };
        let principal = Principal::authenticated(identity, agent_id);
        let caller = Caller { namespace: names.namespace, principal, agents, rights: Rights::of(grants) };
        Ok(Admitted { caller, ends_at: None, session: None })
    }

    /// The time at which streams end whose credential ends at a time.
    fn ends_at(&self, end: Time) -> Instant {
        let left = end.plus_ms(SKEW_MS).micros().saturating_sub(self.clock.now().micros());
        let left = std::time::Duration::from_micros(u64::try_from(left).unwrap_or(0));
        // A time that is out of reach is as good as none.
        let now = Instant::now();
        now.checked_add(left).unwrap_or_else(|| now + std::time::Duration::from_hours(24 * 366))
    }
}

impl Admitted {
    fn anonymous() -> Self {
        let caller = Caller {
            namespace: Namespace::only(),
            principal: Principal::anonymous(),
            agents: Agents::All,
            rights: Rights::none(),
        };
        Self { caller, ends_at: None, session: None }
    }
}

#[cfg(test)]
mod tests;
