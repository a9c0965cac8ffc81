//! Calls that last, and what lets them: when new rules come, those end that they no longer let in.

use std::sync::{Arc, OnceLock, Weak};

use tokio_util::sync::CancellationToken;

use super::Denied;
use super::credential::Credential;
use crate::auth::names::Names;
use crate::auth::{Access, Allowed};
use crate::domain::Time;

/// A stream or a wait, as long as it is open.
#[derive(Debug)]
pub struct Session {
    pub(super) credential: Credential,
    /// The certificate of its connection, where a token names the caller.
    pub(super) beside: Option<Credential>,
    pub(super) access: Access,
    pub(super) names: Names,
    /// The end of the credential, by which the call was let in.
    pub(super) expires_at: Option<Time>,
    /// As whom the call writes, and which runs, where it may write.
    pub(super) writes: Option<Allowed>,
    denied: OnceLock<Denied>,
    ended: CancellationToken,
}

impl Session {
    pub(super) fn new(
        (credential, beside): (Credential, Option<Credential>),
        access: Access,
        names: Names,
        (expires_at, allowed): (Option<Time>, Allowed),
    ) -> Self {
        let writes = (access == Access::Report).then_some(allowed);
        let (denied, ended) = (OnceLock::new(), CancellationToken::new());
        Self { credential, beside, access, names, expires_at, writes, denied, ended }
    }

    /// Ends once the call is no longer let in, with the reason.
    pub async fn until_denied(&self) -> Denied {
        self.ended.cancelled().await;
        self.denied.get().cloned().unwrap_or(Denied::NoCredential)
    }

    fn end(&self, denied: Denied) {
        let _first = self.denied.set(denied);
        self.ended.cancel();
    }
}

/// All sessions of a process.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    all: Vec<Weak<Session>>,
    /// The place from which on the next free one is looked for.
    next: usize,
}

impl Sessions {
    /// Adds a session. Places of sessions that have gone are used again; two are looked at for each new session, so that
    /// the list is at most about twice as long as there are sessions.
    pub(super) fn add(&mut self, session: &Arc<Session>) {
        for _ in 0..2.min(self.all.len()) {
            self.next = (self.next + 1) % self.all.len();
            if self.all[self.next].strong_count() == 0 {
                self.all[self.next] = Arc::downgrade(session);
                return;
            }
        }
        self.all.push(Arc::downgrade(session));
    }

    /// The number of places.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Ends the sessions that are denied now.
    pub(super) fn end_denied(&mut self, look: impl Fn(&Session) -> Result<(), Denied>) {
        self.all.retain(|session| session.strong_count() > 0);
        for session in self.all.iter().filter_map(Weak::upgrade) {
            if let Err(denied) = look(&session) {
                session.end(denied);
            }
        }
    }
}
