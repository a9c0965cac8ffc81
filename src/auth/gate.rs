//! The gate that every call passes: its credential, its namespace, its role and its agent, by its headers alone and
//! before its request is read.
//!
//! Invariants:
//!
//! - Where there is an access file, a call passes with a good credential, for a namespace and in a role that were
//!   granted, and as an agent of the caller's own; but for methods that are open to everybody.
//! - A credential that comes with a call is good, or the call is refused. No call falls back to another credential, or
//!   to none. No text of a credential leaves this module.
//! - A method without a row in the table of methods is denied to everybody.
//! - A stream or a wait ends when new rules would refuse it, or when its credential ends.

mod credential;
mod denied;
mod sessions;

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::credential::{Credential, ShownCredential};
pub use self::denied::{BadCredential, Denied};
pub use self::sessions::Session;
use self::sessions::Sessions;
use super::names::Names;
use super::rules::Known;
use super::trusted::Trusted;
use super::{Access, Allowed, Caller, Needs as _, Rights, Scope};
use crate::clock::Clock;
use crate::domain::{Agents, Namespace, Principal, Time};
use crate::fairness::CallerKey;

/// Time for which a credential is still taken after its end: clocks differ.
const SKEW_MS: u64 = 30_000;

/// A client certificate, whose chain the connection has verified.
#[derive(Clone, Copy, Debug)]
pub struct Certificate<'a> {
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
    /// The call has a signed token that was not verified lately: [`Gate::prove`] tells.
    Unproven,
}

impl From<Result<Admitted, Denied>> for Looked {
    fn from(looked: Result<Admitted, Denied>) -> Self {
        match looked {
            Ok(admitted) => Self::Admitted(Box::new(admitted)),
            Err(denied) => Self::Denied(denied),
        }
    }
}

/// A call, as far as the gate looks at it.
#[derive(Clone, Copy, Debug)]
pub struct GatedCall<'a> {
    /// The access that its method needs; none for a method that the port does not have, which is denied.
    pub access: Option<Access>,
    pub headers: &'a HeaderMap,
    /// The certificate of its connection.
    pub certificate: Option<Certificate<'a>>,
    /// Whether it may outlive its credential or its grants.
    pub lasts: bool,
}

/// See the module.
pub struct Gate(Option<Checked>);

struct Checked {
    kinds: Kinds,
    trusted: ArcSwap<Trusted>,
    sessions: Mutex<Sessions>,
    clock: Arc<dyn Clock>,
}

impl Gate {
    /// The gate that lets everybody in, and believes every caller.
    #[must_use]
    pub fn open() -> Self {
        Self(None)
    }

    /// The gate that lets in those who are known by a credential of these kinds.
    #[must_use]
    pub fn of(kinds: Kinds, trusted: Trusted, clock: Arc<dyn Clock>) -> Self {
        Self(Some(Checked { kinds, trusted: ArcSwap::from_pointee(trusted), sessions: Mutex::default(), clock }))
    }

    /// Looks at a call, without waiting.
    pub fn look(&self, asked: GatedCall<'_>) -> Looked {
        match &self.0 {
            None => believed(asked).into(),
            Some(checked) => checked.look(asked).unwrap_or_else(Looked::Denied),
        }
    }

    /// Looks at a call whose signed token was not verified lately. `caller`: its connection.
    ///
    /// # Errors
    ///
    /// The reason for which the call is refused.
    pub async fn prove(&self, asked: GatedCall<'_>, caller: CallerKey) -> Result<Admitted, Denied> {
        match &self.0 {
            None => believed(asked),
            Some(checked) => checked.prove(asked, caller).await,
        }
    }

    /// What credentials are held against; none where callers are believed.
    #[must_use]
    pub fn trusted(&self) -> Option<Arc<Trusted>> {
        self.0.as_ref().map(|checked| checked.trusted.load_full())
    }

    /// Holds credentials against something else. Streams and waits whose grants are gone are told to end.
    pub fn take(&self, trusted: Trusted) {
        if let Some(checked) = &self.0 {
            checked.trusted.store(Arc::new(trusted));
            let trusted = checked.trusted.load();
            checked.sessions.lock().end_denied(|session| {
                let known = checked.known_by(&trusted, &session.credential)?;
                checked.is_good_beside(&trusted, session.beside.as_ref())?;
                if known.expires_at != session.expires_at {
                    // The call knows the former end alone: it comes back, and knows the other one.
                    return Err(BadCredential::Expired.into());
                }
                let admitted = Checked::admit(known, session.access, session.names.clone())?;
                match &session.writes {
                    // It would go on with what it may write no more.
                    Some(writes) if *writes != admitted.allowed() => Err(BadCredential::Expired.into()),
                    Some(_) | None => Ok(()),
                }
            });
        }
    }

    /// Ends the streams and waits whose credential has ended by now: their own timers do not know of a time for which the
    /// machine slept, nor of a clock that was set.
    pub fn end_expired(&self) {
        if let Some(checked) = &self.0 {
            let now = checked.clock.now();
            checked.sessions.lock().end_denied(|session| match session.expires_at {
                Some(end) if end.plus_ms(SKEW_MS) <= now => Err(BadCredential::Expired.into()),
                Some(_) | None => Ok(()),
            });
        }
    }
}

/// Lets a caller in who is believed. Health and reflection name nobody.
fn believed(GatedCall { access, headers, .. }: GatedCall<'_>) -> Result<Admitted, Denied> {
    // Whoever asks who they are is answered with what they named.
    let is_named = |access: Access| access == Access::Identify || access.scope() == Scope::Headers;
    let is_named = access.is_none_or(is_named);
    let names = if is_named { Names::of(headers).map_err(Denied::Headers)? } else { Names::none() };
    let principal = names.agent.map_or_else(Principal::anonymous, Principal::claimed);
    let caller = Caller { namespace: names.namespace, principal, agents: Agents::All, rights: Rights::all() };
    Ok(Admitted { caller, ends_at: None, session: None })
}

impl Checked {
    fn look(&self, asked: GatedCall<'_>) -> Result<Looked, Denied> {
        let access = asked.access.ok_or(Denied::UnknownMethod)?;
        let trusted = self.trusted.load();
        let credential = match ShownCredential::of(asked.headers, asked.certificate)? {
            Some(ShownCredential::Credential(credential)) => credential,
            Some(ShownCredential::Jwt(_)) if !self.takes_jwts(&trusted) => return Err(BadCredential::NotTaken.into()),
            Some(ShownCredential::Jwt(token)) => match trusted.jwts().known(token) {
                Some(proof) => Credential::Jwt(proof),
                None => return Ok(Looked::Unproven),
            },
            None if access == Access::Open => return Ok(Ok(Admitted::anonymous()).into()),
            None => return Err(Denied::NoCredential),
        };
        self.enter(asked, access, &trusted, credential).map(|admitted| Ok(admitted).into())
    }

    async fn prove(&self, asked: GatedCall<'_>, caller: CallerKey) -> Result<Admitted, Denied> {
        let access = asked.access.ok_or(Denied::UnknownMethod)?;
        let Some(ShownCredential::Jwt(token)) = ShownCredential::of(asked.headers, asked.certificate)? else {
            return Err(Denied::NoCredential);
        };
        let jwts = Arc::clone(self.trusted.load().jwts());
        let credential = Credential::Jwt(jwts.verify(token, caller).await?);
        // Other rules may have come meanwhile.
        self.enter(asked, access, &self.trusted.load(), credential)
    }

    fn takes_jwts(&self, trusted: &Trusted) -> bool {
        self.kinds.jwt && !trusted.rules().issuers().is_empty()
    }

    /// Lets a call in by its credential, or tells why not.
    fn enter(
        &self,
        asked: GatedCall<'_>,
        access: Access,
        trusted: &Trusted,
        credential: Credential,
    ) -> Result<Admitted, Denied> {
        let known = match self.known_by(trusted, &credential) {
            // A prober that must show some certificate to be let on the port proves nothing else by it.
            Err(_) if access == Access::Open && matches!(credential, Credential::Certificate { .. }) => {
                return Ok(Admitted::anonymous());
            }
            known => known?,
        };
        if access == Access::Open {
            return Ok(Admitted::anonymous());
        }
        let is_named = access.scope() == Scope::Headers;
        let names = if is_named { Names::of(asked.headers).map_err(Denied::Headers)? } else { Names::none() };
        let beside = credential.beside(asked.certificate);
        self.is_good_beside(trusted, beside.as_ref())?;
        let expires_at = known.expires_at;
        let ends_at = expires_at.map(|end| self.ends_at(end));
        let mut admitted = Self::admit(known, access, names.clone())?;
        admitted.ends_at = ends_at;
        if asked.lasts {
            let session = Arc::new(Session::new((credential, beside), access, names, (expires_at, admitted.allowed())));
            self.sessions.lock().add(&session);
            // New rules may have come before the session was there to be told.
            let trusted = self.trusted.load();
            let known = self.known_by(&trusted, &session.credential)?;
            self.is_good_beside(&trusted, session.beside.as_ref())?;
            let again = Self::admit(known, session.access, session.names.clone())?;
            if again.allowed() != admitted.allowed() {
                return Err(BadCredential::Expired.into());
            }
            admitted.session = Some(session);
        }
        Ok(admitted)
    }

    /// Whoever a credential proves.
    fn known_by(&self, trusted: &Trusted, credential: &Credential) -> Result<Known, Denied> {
        let rules = trusted.rules();
        let known = match credential {
            Credential::Token(_) if !self.kinds.token => return Err(BadCredential::NotTaken.into()),
            Credential::Token(hash) => rules.of_token(hash).ok_or(BadCredential::Unknown)?.clone(),
            Credential::Jwt(_) if !self.takes_jwts(trusted) => return Err(BadCredential::NotTaken.into()),
            Credential::Jwt(proof) if !trusted.jwts().takes(proof) => return Err(BadCredential::Unknown.into()),
            Credential::Jwt(proof) => rules.of_proof(proof).ok_or(BadCredential::Unknown)?,
            // Where certificates name nobody, one is no credential: it let the connection in, and no more.
            Credential::Certificate { .. } if !self.kinds.certificate || !rules.has_certificates() => {
                return Err(Denied::NoCredential);
            }
            Credential::Certificate { name, issuer } => {
                rules.of_certificate(name, issuer).ok_or_else(|| BadCredential::UnknownCertificate(name.clone()))?
            }
        };
        match known.expires_at {
            Some(end) if end.plus_ms(SKEW_MS) <= self.clock.now() => Err(BadCredential::Expired.into()),
            Some(_) | None => Ok(known),
        }
    }

    /// Refuses a token that comes on a connection whose certificate names nobody, where certificates name somebody.
    fn is_good_beside(&self, trusted: &Trusted, certificate: Option<&Credential>) -> Result<(), Denied> {
        match certificate.map(|certificate| self.known_by(trusted, certificate)) {
            Some(Err(Denied::BadCredential(BadCredential::UnknownCertificate(name)))) => {
                Err(BadCredential::Certificate(name).into())
            }
            // Where certificates name nobody, one is no credential.
            None | Some(Ok(_) | Err(Denied::NoCredential)) => Ok(()),
            Some(Err(denied)) => Err(denied),
        }
    }

    /// Lets a known caller in, or says what its grants lack.
    fn admit(known: Known, access: Access, names: Names) -> Result<Admitted, Denied> {
        let Known { identity, grants, .. } = known;
        let Allowed { agent_id, agents } = match access.scope() {
            Scope::Headers => {
                let agent = names.agent.clone();
                let allowed = grants.allow_as(access, &names.namespace, agent);
                allowed.map_err(|lacking| Denied::lacking(lacking, access, &names, &grants))?
            }
            Scope::Everywhere => {
                let allowed = grants.allow_everywhere(access);
                allowed.map_err(|lacking| Denied::lacking(lacking, access, &names, &grants))?;
                Allowed { agent_id: None, agents: Agents::All }
            }
            // The request is looked at later.
            Scope::Nothing | Scope::Request => Allowed { agent_id: None, agents: Agents::All },
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
    /// As whom the call writes, and which runs.
    fn allowed(&self) -> Allowed {
        Allowed { agent_id: self.caller.principal.agent_id.clone(), agents: self.caller.agents.clone() }
    }

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
