//! The read path: callers that ask for runs at the same moment share a query.
//!
//! A caller may join the next query, never one that was sent. Invariant: an answer was read after its caller asked, and
//! shows every commit that was acknowledged before. No answer is cached, since another replica may have committed
//! since. At low load a caller's query goes out at once and alone; no timer waits for company.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, oneshot};

use crate::domain::RunKey;
use crate::store::{Found, RunAsKept, Runs, StoreError};

/// Queries in flight at most. While so many are, callers gather for the next.
const QUERIES_MAX: usize = 3;

/// Runs that one query reads at most.
const RUNS_MAX: usize = 64;

/// Bytes of runs at which a query stops reading: a run may have some hundred kilobytes. The next one reads the rest.
const BYTES_MAX: usize = 1024 * 1024;

/// Callers that have gathered when those that went away are first looked for.
const TIDY_MIN: usize = 256;

type Answer = Result<Option<Counted>, StoreError>;

struct Ask {
    key: RunKey,
    reply: oneshot::Sender<Answer>,
}

/// The callers that wait for the next query. Each of them holds a call, and the transport bounds these.
#[derive(Default)]
struct Gathered {
    asks: VecDeque<Ask>,
    /// The number of callers at which those that went away are removed: so there are at most about as many of these as
    /// of the others.
    tidy_at: usize,
}

/// A run that was read, and counts until its caller has it or is found to be gone.
struct Counted {
    read: Box<RunAsKept>,
    _count: Count,
}

struct Count {
    weight: usize,
    bytes: Arc<AtomicUsize>,
}

impl Drop for Count {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

/// The entry of the read path. No task of its own reads: a caller whose turn it is reads for all that have gathered.
pub struct Reads {
    store: Arc<dyn Runs>,
    gathered: Mutex<Gathered>,
    turns: Semaphore,
    bytes: Arc<AtomicUsize>,
}

impl Reads {
    /// Reads from a store.
    #[must_use]
    pub fn new(store: Arc<dyn Runs>) -> Self {
        Self { store, gathered: Mutex::default(), turns: Semaphore::new(QUERIES_MAX), bytes: Arc::default() }
    }

    /// The bytes of runs that were read and that their callers do not have yet, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The callers that wait for a query, with some that went away.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.gathered().asks.len()
    }

    /// The run as it is, with its lease: sees every commit that was acknowledged before the call.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn run(&self, key: &RunKey) -> Result<Option<RunAsKept>, StoreError> {
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
                return answered.map(|counted| counted.map(|counted| *counted.read));
            }
        }
    }

    fn gather(&self, ask: Ask) {
        let mut gathered = self.gathered();
        if gathered.asks.len() >= gathered.tidy_at.max(TIDY_MIN) {
            gathered.asks.retain(|ask| !ask.reply.is_closed());
            gathered.tidy_at = gathered.asks.len() * 2;
        }
        gathered.asks.push_back(ask);
    }

    /// The callers whose query is the next, without those that went away.
    fn take(&self) -> Vec<Ask> {
        let mut gathered = self.gathered();
        let mut asks = Vec::new();
        while asks.len() < RUNS_MAX {
            let Some(ask) = gathered.asks.pop_front() else { break };
            if !ask.reply.is_closed() {
                asks.push(ask);
            }
        }
        asks
    }

    /// Reads for callers, in as many queries as the bytes of their runs need.
    async fn read(&self, mut asks: Vec<Ask>) {
        while !asks.is_empty() {
            let keys: Vec<RunKey> = asks.iter().map(|ask| ask.key.clone()).collect();
            match self.store.runs(&keys, BYTES_MAX).await {
                Ok(found) => {
                    let both = asks.into_iter().zip(found);
                    asks = both.filter_map(|(ask, found)| self.answer(ask, found)).collect();
                }
                Err(error) if error.may_be_of_one_run() && asks.len() > 1 => {
                    // The error may be of one run, and the other callers must not see it.
                    for ask in asks {
                        let found = self.store.runs(std::slice::from_ref(&ask.key), BYTES_MAX).await;
                        match found.map(|mut found| found.pop()) {
                            Ok(found) => drop(found.and_then(|found| self.answer(ask, found))),
                            Err(error) => drop(ask.reply.send(Err(error))),
                        }
                    }
                    return;
                }
                Err(error) => return fail(asks, error),
            }
        }
    }

    /// Answers a caller, or returns it where its run was not read.
    fn answer(&self, ask: Ask, found: Found) -> Option<Ask> {
        let read = match found {
            Found::Run(read) => Some(self.count(read)),
            Found::Nothing => None,
            Found::Left => return Some(ask).filter(|ask| !ask.reply.is_closed()),
        };
        let _gone = ask.reply.send(Ok(read));
        None
    }

    fn count(&self, read: Box<RunAsKept>) -> Counted {
        let weight = read.run.weight();
        self.bytes.fetch_add(weight, Ordering::Relaxed);
        Counted { read, _count: Count { weight, bytes: self.bytes.clone() } }
    }

    /// No panic leaves a half-made change under this mutex, so a poisoned one can be used.
    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers all callers with an error, which one caller alone gets as it is.
fn fail(mut asks: Vec<Ask>, error: StoreError) {
    let Some(last) = asks.pop() else { return };
    if asks.is_empty() {
        let _gone = last.reply.send(Err(error));
        return;
    }
    let error = Arc::new(error);
    for Ask { reply, .. } in asks.into_iter().chain([last]) {
        let _gone = reply.send(Err(StoreError::shared(&error)));
    }
}
