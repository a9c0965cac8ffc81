//! The read path: callers that ask for runs at the same moment share a query.
//!
//! A caller may join the next query, never one that was sent. Invariant: an answer was read after its caller asked, and
//! shows every commit that was acknowledged before. No answer is cached, since another replica may have committed
//! since. At low load a caller's query goes out at once and alone; no timer waits for company.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, oneshot};

use crate::domain::{Run, RunKey};
use crate::store::{Runs, StoreError};

/// Queries in flight at most. While so many are, callers gather for the next.
const QUERIES_MAX: usize = 3;

/// Runs that one query reads at most: each may be some hundred kilobytes.
const RUNS_MAX: usize = 64;

type Answer = Result<Option<Run>, StoreError>;

struct Ask {
    key: RunKey,
    reply: oneshot::Sender<Answer>,
}

/// The entry of the read path. No task of its own reads: a caller whose turn it is reads for all that have gathered.
pub struct Reads {
    store: Arc<dyn Runs>,
    gathered: Mutex<VecDeque<Ask>>,
    turns: Semaphore,
}

impl Reads {
    /// Reads from a store.
    #[must_use]
    pub fn new(store: Arc<dyn Runs>) -> Self {
        Self { store, gathered: Mutex::default(), turns: Semaphore::new(QUERIES_MAX) }
    }

    /// The run as it is: sees every commit that was acknowledged before the call.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn run(&self, key: &RunKey) -> Answer {
        // Repeats the read where the caller that read for this one went away.
        loop {
            let (reply, mut answer) = oneshot::channel();
            self.gather(Ask { key: key.clone(), reply });
            let answered = loop {
                tokio::select! {
                    biased;
                    answered = &mut answer => break answered,
                    turn = self.turns.acquire() => {
                        let asks = self.take();
                        if asks.is_empty() {
                            // Another caller is reading for this one.
                            drop(turn);
                            break answer.await;
                        }
                        self.read(asks).await;
                    }
                }
            };
            if let Ok(answered) = answered {
                return answered;
            }
        }
    }

    fn gather(&self, ask: Ask) {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner).push_back(ask);
    }

    /// The callers whose query is the next, without those that went away.
    fn take(&self) -> Vec<Ask> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut asks = Vec::new();
        while asks.len() < RUNS_MAX {
            let Some(ask) = gathered.pop_front() else { break };
            if !ask.reply.is_closed() {
                asks.push(ask);
            }
        }
        asks
    }

    async fn read(&self, asks: Vec<Ask>) {
        if let [_] = asks.as_slice() {
            for Ask { key, reply } in asks {
                let _gone = reply.send(self.store.run(&key).await);
            }
            return;
        }
        let keys: Vec<RunKey> = asks.iter().map(|ask| ask.key.clone()).collect();
        match self.store.runs(&keys).await {
            Ok(runs) => {
                for (Ask { reply, .. }, run) in asks.into_iter().zip(runs) {
                    let _gone = reply.send(Ok(run));
                }
            }
            Err(error) if error.may_be_of_one_run() => {
                // The error may be of one run, and the other callers must not see it.
                for Ask { key, reply } in asks {
                    let _gone = reply.send(self.store.run(&key).await);
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
}
