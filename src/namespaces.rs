//! The namespaces that exist, as this process knows them: whether a call's namespace is there.
//!
//! `default` is always there. Another namespace that was found is taken to be there for [`FRESH`]; whoever deletes it
//! finds it empty and keeps it so, by the store. A namespace that is not known is looked up, by a statement that began
//! after the call came: so a namespace is there for every replica from its creation on. Answers that there is none are
//! not kept, and cost no more for it: one look-up is made at a time, for all calls that have gathered meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turns, oneshot};
use tokio::time::Instant;

use crate::domain::Namespace;
use crate::domain::ids::DEFAULT_NAMESPACE;
use crate::domain::limits::NAMESPACES_MAX;
use crate::store::{Namespaces, StoreError};

/// The time for which a namespace that was found is taken to be there.
pub const FRESH: Duration = Duration::from_secs(10);

/// Calls that one look-up is made for at most.
const ASKS_MAX: usize = 1_024;

type Answer = Result<bool, StoreError>;

struct Ask {
    name: Namespace,
    reply: oneshot::Sender<Answer>,
}

/// See the module.
pub struct Registry {
    store: Arc<dyn Namespaces>,
    /// When each namespace was looked up that was there. Only names that exist are here, so their number is bounded.
    found: Mutex<HashMap<Namespace, Instant>>,
    /// The calls that wait for the next look-up: the transport bounds their number.
    gathered: Mutex<Vec<Ask>>,
    /// The right to look up.
    turn: Turns<()>,
}

impl Registry {
    /// The namespaces of a store.
    #[must_use]
    pub fn new(store: Arc<dyn Namespaces>) -> Self {
        Self { store, found: Mutex::default(), gathered: Mutex::default(), turn: Turns::new(()) }
    }

    /// Whether a namespace is there.
    pub async fn has(&self, name: &Namespace) -> Result<bool, StoreError> {
        if *name == DEFAULT_NAMESPACE || self.is_fresh(name) {
            return Ok(true);
        }
        loop {
            let (reply, mut answer) = oneshot::channel();
            self.gather(Ask { name: name.clone(), reply });
            let answered = loop {
                tokio::select! {
                    biased;
                    answered = &mut answer => break answered,
                    _turn = self.turn.lock() => self.look_up().await,
                }
            };
            // The call that looked up for this one has gone, or its statement was cut: the next one looks up.
            if let Ok(answer) = answered {
                return answer;
            }
        }
    }

    /// Forgets a namespace that was deleted.
    pub fn forget(&self, name: &Namespace) {
        self.found.lock().remove(name);
    }

    fn is_fresh(&self, name: &Namespace) -> bool {
        self.found.lock().get(name).is_some_and(|at| at.elapsed() < FRESH)
    }

    fn gather(&self, ask: Ask) {
        let mut gathered = self.gathered.lock();
        if gathered.len() >= ASKS_MAX {
            gathered.retain(|ask| !ask.reply.is_closed());
        }
        gathered.push(ask);
    }

    /// Answers the calls that have gathered, by one statement. The caller has the turn.
    async fn look_up(&self) {
        let mut asks = take(&mut *self.gathered.lock());
        asks.retain(|ask| !ask.reply.is_closed());
        if asks.len() > ASKS_MAX {
            let later = asks.split_off(ASKS_MAX);
            self.gathered.lock().splice(0..0, later);
        }
        let names: BTreeSet<&Namespace> = asks.iter().map(|ask| &ask.name).collect();
        if names.is_empty() {
            return;
        }
        let names: Vec<Namespace> = names.into_iter().cloned().collect();
        let at = Instant::now();
        match self.store.namespaces(&names).await {
            Ok(records) => {
                let there: BTreeSet<Namespace> = records.into_iter().map(|record| record.name).collect();
                self.note(&there, at);
                for Ask { name, reply } in asks {
                    let _gone = reply.send(Ok(there.contains(&name)));
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for Ask { reply, .. } in asks {
                    let _gone = reply.send(Err(StoreError::shared(&error)));
                }
            }
        }
    }

    fn note(&self, there: &BTreeSet<Namespace>, at: Instant) {
        let mut found = self.found.lock();
        if found.len() as u64 >= NAMESPACES_MAX {
            found.retain(|_, at| at.elapsed() < FRESH);
        }
        found.extend(there.iter().map(|name| (name.clone(), at)));
    }
}
