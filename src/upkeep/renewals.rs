//! Renewals: those of one shard that meet share a write.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::domain::ids::{self, Shard};
use crate::domain::{Refusal, Renewal, RunKey, renewal};
use crate::fairness::{CallerKey, Share, Shares};
use crate::store::leases::Renewed;
use crate::store::{FoundRun, Ledger, Runs, StoreError, Upkeep};
use crate::tasks::Supervisor;
use crate::telemetry::record;

/// Renewals in one write at most: each is compared with each row.
const RENEWALS_MAX: usize = 128;

/// Renewals that one shard queues, and those of them that each caller may have, however many callers there are. Each is
/// a few hundred bytes.
const QUEUE_MAX: usize = 8_192;
const GRANTED: usize = 64;
const RENEWAL_BYTES: usize = 512;

/// Renewals that are taken from the queue for one write at most: also those that share a renewal, or wait.
const TAKEN_MAX: usize = 1_024;

/// Renewals that wait for another one of their run at most. The holders of a lease agree on its epoch, so more come
/// only from callers that guess, and take no place from other runs.
const CONFLICTS_MAX: usize = 128;

/// The time from one write to the next at least. No work waits for a heartbeat's answer, and each write costs a flush:
/// a renewal that comes alone is written at once, and of two thousand a second in two shards, twenty-five share a
/// write.
const PACE: Duration = Duration::from_millis(25);

/// The time that a heartbeat waits for its answer when its caller sets no deadline.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(15);

/// The time before a caller's deadline at which the answer to many heartbeats is written, at most.
const LAST_MOMENT: Duration = Duration::from_millis(100);

/// Bytes of runs that are read at once to tell why their leases were not renewed.
const REFUSED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The reason for which a heartbeat renewed no lease, or may not have.
#[derive(Debug)]
pub enum Failure {
    /// The lease is not the caller's, or is over.
    Refused(Box<Refusal>),
    /// The caller's share of the queue is full.
    Overloaded,
    /// The process stops.
    Draining,
    /// The caller's deadline passed.
    Deadline,
    /// The lease was not renewed, and the caller's deadline passed before it was known why.
    NotRenewed,
    /// The store does not answer.
    Store(StoreError),
}

struct Ask {
    key: RunKey,
    renewal: Renewal,
    /// The time since which the renewal waits for the store; none: it waits for another renewal of its run.
    since: Option<Instant>,
    /// The channel to the caller; none: no caller waits.
    reply: Option<Reply>,
}

/// The entry of renewals.
pub struct Renewals {
    runs: Arc<dyn Runs>,
    ledger: Ledger,
    inlets: Vec<Inlet>,
}

/// The sending side of a shard's queue. The bound is that of the places, which let all callers together have twice as
/// many at times.
struct Inlet {
    queue: mpsc::Sender<(Ask, Share)>,
    places: Arc<Shares>,
}

impl Inlet {
    fn offer(&self, caller: CallerKey, ask: Ask) -> Result<(), Failure> {
        let place = self.places.take(caller, 1).ok_or(Failure::Overloaded)?;
        self.queue.try_send((ask, place)).map_err(|error| match error {
            TrySendError::Full(_) => Failure::Overloaded,
            TrySendError::Closed(_) => Failure::Draining,
        })
    }
}

impl Renewals {
    /// Starts a writer for each shard. `runs` gives the run that a renewal was refused for.
    #[must_use]
    pub fn start(upkeep: &Arc<dyn Upkeep>, runs: Arc<dyn Runs>, supervisor: &Supervisor) -> Self {
        let ledger = upkeep.ledger();
        let inlets = (0..ledger.shard_count).map(|shard| {
            let (queue, asks) = mpsc::channel(4 * QUEUE_MAX);
            supervisor.vital("renewals", write(upkeep.clone(), Shard(shard), asks, supervisor.stop()));
            Inlet { queue, places: Shares::new(QUEUE_MAX, GRANTED) }
        });
        Self { inlets: inlets.collect(), runs, ledger }
    }

    /// The bytes that queued renewals take, and may take, about.
    #[must_use]
    pub fn bytes(&self) -> (usize, usize) {
        let queued: usize = self.inlets.iter().map(|inlet| inlet.places.all()).sum();
        (queued * RENEWAL_BYTES, self.inlets.len() * 2 * QUEUE_MAX * RENEWAL_BYTES)
    }

    /// Renews a lease soon, if the queue has room. The caller does not wait for the renewal or hear its result.
    pub fn renew_soon(&self, caller: CallerKey, key: RunKey, renewal: Renewal) {
        let shard = ids::shard_of(self.ledger.id, self.ledger.shard_count, &key);
        let ask = Ask { key, renewal, since: Some(Instant::now()), reply: None };
        let _full_or_closed = self.inlets[usize::from(shard.0)].offer(caller, ask);
    }

    /// Renews a lease and answers when that is durable.
    ///
    /// # Errors
    ///
    /// See [`Failure`]. A second renewal does no harm where the lease may have been renewed all the same.
    pub async fn renew(
        &self,
        caller: CallerKey,
        key: RunKey,
        renewal: Renewal,
        deadline: Option<Instant>,
    ) -> Result<Renewed, Failure> {
        let by = answer_by(deadline);
        let answer = self.ask(caller, key.clone(), renewal.clone());
        match answered(answer, by).await? {
            Some(renewed) => Ok(renewed),
            None => Err(self.why_not(&key, &renewal).await),
        }
    }

    /// Renews leases and answers when all that are renewed are so for good, each as by [`renew`](Renewals::renew), in their
    /// order.
    pub async fn renew_all(
        &self,
        caller: CallerKey,
        asked: Vec<(RunKey, Renewal)>,
        deadline: Option<Instant>,
    ) -> Vec<Result<Renewed, Failure>> {
        // Many answers take a moment to be written.
        let by = answer_by(deadline);
        let by = by - (by.saturating_duration_since(Instant::now()) / 10).min(LAST_MOMENT);
        let asks: Vec<_> = asked.iter().map(|(key, renewal)| self.ask(caller, key.clone(), renewal.clone())).collect();
        let mut made = Vec::with_capacity(asks.len());
        for answer in asks {
            made.push(answered(answer, by).await);
        }
        let refused = made.iter().zip(&asked).filter(|(made, _)| matches!(made, Ok(None)));
        let refused: Vec<_> = refused.map(|(_, (key, renewal))| (key.clone(), renewal)).collect();
        let mut why = self.why_none_of(&refused, by).await.into_iter();
        let renewed = made.into_iter().map(|made| match made {
            Ok(Some(renewed)) => Ok(renewed),
            Ok(None) => Err(why.next().unwrap_or(Failure::NotRenewed)),
            Err(failure) => Err(failure),
        });
        renewed.collect()
    }

    /// Why each of these leases was not renewed, as far as there is time to find out.
    async fn why_none_of(&self, refused: &[(RunKey, &Renewal)], by: Instant) -> Vec<Failure> {
        let keys: Vec<RunKey> = refused.iter().map(|(key, _)| key.clone()).collect();
        let mut why = Vec::with_capacity(keys.len());
        while why.len() < keys.len() {
            let read = timeout_at(by, self.runs.runs(&keys[why.len()..], REFUSED_BYTES_MAX)).await;
            let found = match read {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => {
                    let (error, left) = (Arc::new(error), keys.len() - why.len());
                    why.extend((0..left).map(|_| Failure::Store(StoreError::shared(&error))));
                    return why;
                }
                Err(_elapsed) => return why,
            };
            let read = found.into_iter().map_while(|found| match found {
                FoundRun::Run(read) => Some(Some(read.run)),
                FoundRun::Nothing => Some(None),
                FoundRun::Left => None,
            });
            for run in read.collect::<Vec<_>>() {
                let (key, renewal) = &refused[why.len()];
                why.push(Failure::Refused(Box::new(renewal::refusal(key, run.as_ref(), renewal))));
            }
        }
        why
    }

    /// Queues a renewal.
    fn ask(&self, caller: CallerKey, key: RunKey, renewal: Renewal) -> Result<oneshot::Receiver<Made>, Failure> {
        let shard = ids::shard_of(self.ledger.id, self.ledger.shard_count, &key);
        let (reply, answer) = oneshot::channel();
        let ask = Ask { key, renewal, since: Some(Instant::now()), reply: Some(reply) };
        self.inlets[usize::from(shard.0)].offer(caller, ask)?;
        Ok(answer)
    }

    /// The reason for which a lease was not renewed. The run is read after the write, and shows it.
    async fn why_not(&self, key: &RunKey, renewal: &Renewal) -> Failure {
        match self.runs.run(key).await {
            Ok(run) => Failure::Refused(Box::new(renewal::refusal(key, run.as_ref(), renewal))),
            Err(error) => Failure::Store(error),
        }
    }
}

fn answer_by(deadline: Option<Instant>) -> Instant {
    let by = Instant::now() + ANSWER_WAIT_MAX;
    deadline.map_or(by, |deadline| deadline.min(by))
}

/// What became of a renewal that was queued, if it was; none where the lease was not renewed.
async fn answered(answer: Result<oneshot::Receiver<Made>, Failure>, by: Instant) -> Result<Option<Renewed>, Failure> {
    match timeout_at(by, answer?).await {
        Err(_elapsed) => Err(Failure::Deadline),
        Ok(Err(_dropped)) => Err(Failure::Draining),
        Ok(Ok(Err(Unmade::Overloaded))) => Err(Failure::Overloaded),
        Ok(Ok(Err(Unmade::Store(error)))) => Err(Failure::Store(StoreError::shared(&error))),
        Ok(Ok(Ok(renewed))) => Ok(renewed),
    }
}

/// Writes the renewals that queued while the last write ran, until the stop. Renewals that are queued then are still
/// written.
async fn write(store: Arc<dyn Upkeep>, shard: Shard, mut asks: mpsc::Receiver<(Ask, Share)>, stop: CancellationToken) {
    let mut waiting = VecDeque::new();
    let mut next = Instant::now();
    loop {
        if waiting.is_empty() {
            let ask = tokio::select! {
                biased;
                ask = asks.recv() => ask,
                () = stop.cancelled() => {
                    asks.close();
                    asks.recv().await
                }
            };
            let Some((ask, _place)) = ask else { return };
            waiting.push_back(ask);
        }
        if !stop.is_cancelled() {
            sleep_until(next).await;
        }
        next = Instant::now() + PACE;
        let mut batch = Batch::default();
        let mut since = None;
        for ask in std::mem::take(&mut waiting) {
            // The wait of renewals whose callers gave up counts as well; that of renewals behind another of their run
            // does not.
            since = since.into_iter().chain(ask.since).min();
            batch.add(ask);
        }
        let mut taken = 0;
        while batch.renewals.len() < RENEWALS_MAX && taken < TAKEN_MAX {
            let Ok((ask, _place)) = asks.try_recv() else { break };
            since = since.into_iter().chain(ask.since).min();
            batch.add(ask);
            taken += 1;
        }
        if let Some(since) = since {
            store.renewals_waited(since.elapsed());
        }
        let Batch { renewals, replies, rest, .. } = batch;
        waiting = rest;
        if renewals.is_empty() {
            continue;
        }
        match store.renew(shard, &renewals).await {
            Ok(renewed) => {
                for (replies, renewed) in replies.into_iter().zip(renewed) {
                    record::renewal(if renewed.is_some() { (0, "made") } else { (1, "lost") });
                    for reply in replies {
                        let _gone = reply.send(Ok(renewed.clone()));
                    }
                }
            }
            Err(error) => {
                for _renewal in &renewals {
                    record::renewal((2, "failed"));
                }
                let error = Unmade::Store(Arc::new(error));
                for reply in replies.into_iter().flatten() {
                    let _gone = reply.send(Err(error.clone()));
                }
            }
        }
    }
}

/// The reason for which a renewal was not made, or may not have been.
#[derive(Clone)]
enum Unmade {
    Overloaded,
    Store(Arc<StoreError>),
}

/// What became of a renewal: none where its lease was not renewed.
type Made = Result<Option<Renewed>, Unmade>;

type Reply = oneshot::Sender<Made>;

/// The renewals of the next write, which has no run twice, and those that wait for the write after it. Renewals of
/// callers that went away are left out.
#[derive(Default)]
struct Batch {
    renewals: Vec<(RunKey, Renewal)>,
    /// The callers that wait for each renewal.
    replies: Vec<Vec<Reply>>,
    places: HashMap<RunKey, usize>,
    rest: VecDeque<Ask>,
}

impl Batch {
    /// Adds a renewal. Equal asks share one, with the last report of progress; an ask for the same run as another agent
    /// or under another epoch waits.
    fn add(&mut self, mut ask: Ask) {
        if ask.reply.as_ref().is_some_and(Reply::is_closed) {
            return;
        }
        let Some(place) = self.places.get(&ask.key) else {
            self.places.insert(ask.key.clone(), self.renewals.len());
            self.renewals.push((ask.key, ask.renewal));
            self.replies.push(ask.reply.into_iter().collect());
            return;
        };
        let (_, renewal) = &mut self.renewals[*place];
        if renewal.is_of_same_caller(&ask.renewal) {
            renewal.progress = ask.renewal.progress.or(renewal.progress.take());
            self.replies[*place].extend(ask.reply);
        } else if self.rest.len() < CONFLICTS_MAX {
            ask.since = None;
            self.rest.push_back(ask);
        } else if let Some(reply) = ask.reply {
            let _gone = reply.send(Err(Unmade::Overloaded));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Progress;

    #[test]
    fn who_asks_for_the_same_shares_a_renewal_and_who_asks_for_something_else_waits() {
        let mut answers = Vec::new();
        let mut ask = |run_id: &str, epoch: u64, done: Option<u64>| {
            let (reply, answer) = oneshot::channel();
            answers.push(answer);
            let progress = done.map(|done| Progress { done, total: 0, message: String::new() });
            let key = RunKey { namespace: "default".into(), run_id: run_id.into() };
            let renewal = Renewal { epoch: epoch.into(), agent_id: None, is_confined: false, progress };
            Ask { key, renewal, since: Some(Instant::now()), reply: Some(reply) }
        };
        let waiting = [
            ask("a", 1, Some(1)),
            ask("b", 1, None),
            ask("a", 2, None),
            ask("a", 1, Some(2)),
            ask("a", 1, None),
            ask("gone", 1, None),
        ];
        drop(answers.pop());
        let mut batch = Batch::default();
        for ask in waiting {
            batch.add(ask);
        }
        let renewed: Vec<_> =
            batch.renewals.iter().map(|(key, renewal)| (key.run_id.as_str(), renewal.epoch.get())).collect();
        assert_eq!(renewed, [("a", 1), ("b", 1)]);
        assert_eq!(batch.renewals[0].1.progress.as_ref().map(|progress| progress.done), Some(2), "what was said last");
        assert_eq!(batch.replies.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(batch.rest.iter().map(|ask| ask.renewal.epoch).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn whoever_guesses_at_the_epoch_of_a_run_takes_no_place_of_another_run() {
        let mut answers = Vec::new();
        let mut ask = |run_id: &str, epoch: u64| {
            let (reply, answer) = oneshot::channel();
            answers.push(answer);
            let key = RunKey { namespace: "default".into(), run_id: run_id.into() };
            let renewal = Renewal { epoch: epoch.into(), agent_id: None, is_confined: false, progress: None };
            Ask { key, renewal, since: Some(Instant::now()), reply: Some(reply) }
        };
        let mut batch = Batch::default();
        for epoch in 1..=1_000 {
            batch.add(ask("bait", epoch));
        }
        batch.add(ask("another", 1));
        let renewed: Vec<_> = batch.renewals.iter().map(|(key, _)| key.run_id.as_str()).collect();
        assert_eq!((renewed, batch.rest.len()), (vec!["bait", "another"], CONFLICTS_MAX));
        assert!(batch.rest.iter().all(|ask| ask.since.is_none()), "they do not wait for the store");
        let refused = answers.iter_mut().filter_map(|answer| answer.try_recv().ok());
        assert_eq!(refused.filter(|answer| matches!(answer, Err(Unmade::Overloaded))).count(), 999 - CONFLICTS_MAX);
    }
}
