//! The read path: callers that ask for runs at the same moment share a query, which brings the runs with their leases.
//!
//! A caller may join the next query, never one that was sent. Invariant: an answer was read after its caller asked, and
//! shows every commit that was acknowledged before. No answer is cached, since another replica may have committed
//! since. At low load a caller's query goes out at once and alone; no timer waits for company.
//!
//! Those that wait are read for in rounds, one read of each caller: who asks for thousands of runs at once waits for
//! them, and nobody else does.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, oneshot};

use crate::domain::RunKey;
use crate::fairness::CallerKey;
use crate::store::{FoundRun, RunAsKept, Runs, StoreError};
use crate::tasks::Supervisor;

/// Queries in flight at most. While so many are, callers gather for the next.
const QUERIES_MAX: usize = 3;

/// Runs that one query reads at most.
const RUNS_MAX: usize = 64;

/// Bytes of runs at which a query stops reading: a run may have some hundred kilobytes. The next one reads the rest.
const BYTES_MAX: usize = 1024 * 1024;

/// The bytes that a caller takes who waits, about: its key and its channel.
const ASK_BYTES: usize = 256;

/// Callers that have gathered when those that went away are first looked for.
const TIDY_MIN: usize = 256;

type Answer = Result<Option<Counted>, StoreError>;

struct Ask {
    /// The caller's number.
    number: u64,
    key: RunKey,
    reply: oneshot::Sender<Answer>,
}

/// The callers that wait for the next query. Each of them holds a call, and the transport bounds these.
#[derive(Default)]
struct Gathered {
    asks: HashMap<CallerKey, VecDeque<Ask>>,
    /// The callers that have asked, in the order in which they are next.
    callers: VecDeque<CallerKey>,
    /// The asks of all callers.
    count: usize,
    /// The callers that have asked so far.
    numbered: u64,
    /// The number of callers at which those that went away are removed: so there are at most about as many of these as
    /// of the others.
    tidy_at: usize,
}

impl Gathered {
    fn add(&mut self, caller: CallerKey, ask: Ask) {
        let asks = self.asks.entry(caller).or_default();
        if asks.is_empty() {
            self.callers.push_back(caller);
        }
        asks.push_back(ask);
        self.count += 1;
    }

    /// The next ask of the caller whose turn it is.
    fn next(&mut self) -> Option<Ask> {
        let caller = self.callers.pop_front()?;
        let asks = self.asks.get_mut(&caller)?;
        let ask = asks.pop_front();
        if asks.is_empty() {
            self.asks.remove(&caller);
        } else {
            self.callers.push_back(caller);
        }
        self.count -= usize::from(ask.is_some());
        ask
    }

    /// Removes the asks of callers that went away.
    fn tidy(&mut self) {
        for asks in self.asks.values_mut() {
            asks.retain(|ask| !ask.reply.is_closed());
        }
        self.asks.retain(|_, asks| !asks.is_empty());
        let Self { asks, callers, .. } = self;
        callers.retain(|caller| asks.contains_key(caller));
        self.count = self.asks.values().map(VecDeque::len).sum();
        self.tidy_at = self.count * 2;
    }
}

/// A run that was read, and counts until its caller has it or is found to be gone.
struct Counted {
    read: Box<RunAsKept>,
    count: Count,
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

/// The entry of the read path. A caller whose turn it is reads for all that have gathered: for itself alone in its own
/// future, and where others have asked as well, in a task, so that nobody's read ends when one of the callers goes.
pub struct Reads {
    reader: Arc<Reader>,
    supervisor: Supervisor,
}

struct Reader {
    store: Arc<dyn Runs>,
    gathered: Mutex<Gathered>,
    turns: Arc<Semaphore>,
    bytes: Arc<AtomicUsize>,
    /// Runs that the next query asks for at most, as the last ones let it: a server sends all runs of a query, also
    /// those that nobody reads any more because the answer is full.
    runs_max: AtomicUsize,
}

impl Reads {
    /// Reads from a store.
    #[must_use]
    pub fn new(store: Arc<dyn Runs>, supervisor: &Supervisor) -> Self {
        let reader = Reader {
            store,
            gathered: Mutex::default(),
            turns: Arc::new(Semaphore::new(QUERIES_MAX)),
            bytes: Arc::default(),
            runs_max: AtomicUsize::new(RUNS_MAX),
        };
        Self { reader: Arc::new(reader), supervisor: supervisor.clone() }
    }

    /// The bytes of runs that were read and that their callers do not have yet, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.reader.bytes.load(Ordering::Relaxed)
    }

    /// The bytes of the callers that wait for a query, about.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.waiting() * ASK_BYTES
    }

    /// The callers that wait for a query, with some that went away.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.reader.gathered().count
    }

    /// The run as it is, with its lease: sees every commit that was acknowledged before the call.
    pub async fn run(&self, caller: CallerKey, key: &RunKey) -> Result<Option<RunAsKept>, StoreError> {
        let (reply, mut answer) = oneshot::channel();
        let number = self.reader.gather(caller, key.clone(), reply);
        let answered = loop {
            tokio::select! {
                biased;
                answered = &mut answer => break answered,
                turn = self.reader.turns.clone().acquire_owned() => {
                    let asks = self.reader.take();
                    match asks.as_slice() {
                        // Another caller's task is reading for this one.
                        [] => {
                            drop(turn);
                            break answer.await;
                        }
                        [own] if own.number == number => self.reader.read(asks).await,
                        [..] => {
                            let reader = self.reader.clone();
                            self.supervisor.spawn(async move {
                                let _turn = turn;
                                reader.read(asks).await;
                            });
                        }
                    }
                }
            }
        };
        match answered {
            Ok(answered) => answered.map(|counted| counted.map(|counted| *counted.read)),
            // The shared read panicked: whose run it was shows when each caller reads its own.
            Err(_panicked) => self.reader.read_alone(key).await,
        }
    }
}

impl Reader {
    fn gather(&self, caller: CallerKey, key: RunKey, reply: oneshot::Sender<Answer>) -> u64 {
        let mut gathered = self.gathered();
        if gathered.count >= gathered.tidy_at.max(TIDY_MIN) {
            gathered.tidy();
        }
        gathered.numbered += 1;
        let number = gathered.numbered;
        gathered.add(caller, Ask { number, key, reply });
        number
    }

    /// The callers whose query is the next, without those that went away.
    fn take(&self) -> Vec<Ask> {
        let runs_max = self.runs_max();
        let mut gathered = self.gathered();
        let mut asks = Vec::new();
        while asks.len() < runs_max {
            let Some(ask) = gathered.next() else { break };
            if !ask.reply.is_closed() {
                asks.push(ask);
            }
        }
        asks
    }

    fn runs_max(&self) -> usize {
        self.runs_max.load(Ordering::Relaxed)
    }

    /// Reads for callers, in as many queries as the bytes of their runs need.
    async fn read(&self, mut asks: Vec<Ask>) {
        while !asks.is_empty() {
            let rest = asks.split_off(asks.len().min(self.runs_max()));
            asks = self.query(asks).await;
            asks.extend(rest);
            asks.retain(|ask| !ask.reply.is_closed());
        }
    }

    /// Reads for callers in one query, and returns those whose runs it left. A query that nobody waits for is dropped.
    async fn query(&self, mut asks: Vec<Ask>) -> Vec<Ask> {
        let keys: Vec<RunKey> = asks.iter().map(|ask| ask.key.clone()).collect();
        let found = tokio::select! {
            biased;
            found = self.store.runs(&keys, BYTES_MAX) => found,
            () = all_gone(&mut asks) => return Vec::new(),
        };
        match found {
            Ok(found) => self.answer(asks, found),
            Err(error) if error.may_be_of_one_run() && asks.len() > 1 => {
                // The error may be of one run, and the other callers must not see it.
                for ask in asks.into_iter().filter(|ask| !ask.reply.is_closed()) {
                    let read = self.store.runs(std::slice::from_ref(&ask.key), BYTES_MAX).await;
                    let _gone = ask.reply.send(read.map(|found| only(found).map(|read| self.count(read))));
                }
                Vec::new()
            }
            Err(error) => {
                fail(asks, error);
                Vec::new()
            }
        }
    }

    /// Reads a run for one caller, which waits for a turn.
    async fn read_alone(&self, key: &RunKey) -> Result<Option<RunAsKept>, StoreError> {
        let _turn = self.turns.acquire().await;
        self.store.runs(std::slice::from_ref(key), BYTES_MAX).await.map(|found| only(found).map(|read| *read))
    }

    /// Answers the callers whose runs were read, and returns the others.
    fn answer(&self, asks: Vec<Ask>, found: Vec<FoundRun>) -> Vec<Ask> {
        let (asked, mut left, mut bytes) = (asks.len(), Vec::new(), 0);
        for (ask, found) in asks.into_iter().zip(found) {
            let read = match found {
                FoundRun::Run(read) => Some(self.count(read)),
                FoundRun::Nothing => None,
                FoundRun::Left => {
                    left.push(ask);
                    continue;
                }
            };
            bytes += read.as_ref().map_or(0, |counted| counted.count.weight);
            let _gone = ask.reply.send(Ok(read));
        }
        self.learn(asked, left.len(), bytes);
        left
    }

    /// Learns from a query how many runs the next one should ask for: the size of runs is only known afterwards.
    fn learn(&self, asked: usize, left: usize, bytes: usize) {
        let runs_max = self.runs_max();
        if left > 0 {
            self.runs_max.store((asked - left).max(1), Ordering::Relaxed);
        } else if asked >= runs_max && bytes <= BYTES_MAX / 2 {
            self.runs_max.store((runs_max * 2).min(RUNS_MAX), Ordering::Relaxed);
        }
    }

    fn count(&self, read: Box<RunAsKept>) -> Counted {
        let weight = read.run.weight();
        self.bytes.fetch_add(weight, Ordering::Relaxed);
        Counted { read, count: Count { weight, bytes: self.bytes.clone() } }
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock()
    }
}

/// The run that was asked for alone.
fn only(mut found: Vec<FoundRun>) -> Option<Box<RunAsKept>> {
    match found.pop() {
        Some(FoundRun::Run(read)) => Some(read),
        // One run is always read.
        Some(FoundRun::Nothing | FoundRun::Left) | None => None,
    }
}

/// Ends when none of the callers waits any more.
async fn all_gone(asks: &mut [Ask]) {
    for ask in asks {
        ask.reply.closed().await;
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
