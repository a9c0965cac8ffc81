//! The live key set of one issuer: read again and again by one task, and waited for by the tokens whose key is not known.
//!
//! Callers never read the source. They ask for a look, and [`Source::follow`] makes it, at most once in a while: so a
//! flood of invented key ids costs the source one request in 30 s, and a caller whose key is known never waits.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt as _;
use thiserror::Error;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::discovery::{DiscoveryFailed, discover};
use super::fetch::{FetchFailed, fetch};
use super::{Algorithm, BadFile, BadKeySet, Key, KeySearch, KeySet, KeySource, small_file};
use crate::telemetry::{chain, record};

/// The longest time that a caller waits for a key.
const KEY_WAIT_MAX: Duration = Duration::from_secs(5);
/// The longest time that one look takes.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// The time for which a set is used after the source was last read.
const KEPT_FOR: Duration = Duration::from_hours(24);
/// The first and the longest time between a look that failed and the next.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The most callers that wait for the keys of one issuer.
const WAITING_MAX: usize = 1_024;

/// The keys of one issuer, kept fresh.
#[derive(Debug)]
pub struct Source {
    issuer: Arc<str>,
    from: KeySource,
    pace: Pace,
    current: ArcSwapOption<Current>,
    begun: Instant,
    progress: watch::Sender<Progress>,
    asked: Notify,
    waiting: Semaphore,
    jitter: RandomState,
}

/// The times between two looks.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// While nobody asks.
    refresh: Duration,
    /// When somebody asks.
    asked_min: Duration,
}

#[derive(Clone, Debug)]
struct Current {
    keys: Arc<KeySet>,
    /// It grows with each change of the keys.
    generation: u64,
    read_at: Instant,
}

/// The progress of the task that looks.
#[derive(Clone, Copy, Debug)]
struct Progress {
    looks: u64,
    /// The beginning of the last look.
    began: Instant,
    /// The time before which no look begins.
    soonest: Instant,
    failing: bool,
}

/// The reason for which there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The issuer has no such key, as far as it was asked lately.
    Unknown,
    /// The key of this id is for another algorithm.
    OtherAlgorithm,
    /// No id was told, and several keys have the algorithm.
    Ambiguous,
    /// The keys could not be read.
    Unavailable,
    /// Too many callers wait already.
    Busy,
}

/// The reason for which a look brought no set.
#[derive(Debug, Error)]
enum LookFailed {
    #[error(transparent)]
    File(#[from] BadFile),
    #[error(transparent)]
    Fetch(#[from] FetchFailed),
    #[error(transparent)]
    Discovery(#[from] DiscoveryFailed),
    #[error(transparent)]
    KeySet(#[from] BadKeySet),
    #[error("no answer within {} s", LOOK_MAX.as_secs())]
    TimedOut,
    #[error("the read was given up")]
    GivenUp,
}

impl Source {
    /// The keys of an issuer, of which none is known until [`Source::follow`] runs.
    #[must_use]
    pub fn new(issuer: Arc<str>, from: KeySource) -> Self {
        let pace = match &from {
            KeySource::File(_) => Pace { refresh: Duration::from_secs(10), asked_min: Duration::from_secs(1) },
            KeySource::Url { .. } | KeySource::Discovery { .. } => {
                Pace { refresh: Duration::from_mins(5), asked_min: Duration::from_secs(30) }
            }
        };
        let progress = Progress { looks: 0, began: Instant::now(), soonest: Instant::now(), failing: true };
        Self {
            issuer,
            from,
            pace,
            current: ArcSwapOption::empty(),
            begun: Instant::now(),
            progress: watch::Sender::new(progress),
            asked: Notify::new(),
            waiting: Semaphore::new(WAITING_MAX),
            jitter: RandomState::new(),
        }
    }

    /// The generation of the keys, which a key that was found before must share to be used still. None where there are
    /// no keys.
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        self.current.load().as_ref().filter(|current| current.is_kept()).map(|current| current.generation)
    }

    /// Whether keys are known, and young enough to be kept.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.current.load().as_ref().is_some_and(|current| current.is_kept())
    }

    /// The time since the keys were last read, also where they are too old to be kept; or where they never were, since
    /// somebody wants them.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.current.load().as_ref().map_or(self.begun, |current| current.read_at).elapsed()
    }

    /// Waits until the source was looked at so many times, whatever came of it.
    pub async fn looked(&self, times: u64) {
        let mut progress = self.progress.subscribe();
        let _looked = progress.wait_for(|progress| progress.looks >= times).await;
    }

    /// The key of an id and an algorithm, and its generation. Waits, for 5 s at most, where the key is not known and
    /// the source may be asked.
    ///
    /// # Errors
    ///
    /// There is no such key, or the source cannot tell.
    pub async fn key(&self, id: Option<&str>, algorithm: Algorithm) -> Result<(Arc<Key>, u64), Missing> {
        if let Some(known) = self.find(id, algorithm) {
            return known;
        }
        let asked_at = Instant::now();
        let deadline = asked_at + KEY_WAIT_MAX;
        let mut progress = self.progress.subscribe();
        let mut place = None;
        loop {
            let Progress { began, soonest, failing, .. } = *progress.borrow_and_update();
            // The set is searched after the progress was read, so that no look between the two is missed.
            if let Some(known) = self.find(id, algorithm) {
                return known;
            }
            let missing = if failing { Missing::Unavailable } else { Missing::Unknown };
            let is_told = began > asked_at && !failing;
            if is_told || soonest >= deadline {
                return Err(missing);
            }
            if place.is_none() {
                place = Some(self.waiting.try_acquire().map_err(|_| Missing::Busy)?);
            }
            self.asked.notify_one();
            if !matches!(timeout_at(deadline, progress.changed()).await, Ok(Ok(()))) {
                return Err(Missing::Unavailable);
            }
        }
    }

    /// What is known without the source: a key, or that there can be none by this name. None where it must be asked.
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<Result<(Arc<Key>, u64), Missing>> {
        let current = self.current.load();
        let current = current.as_ref().filter(|current| current.is_kept())?;
        match current.keys.find(id, algorithm) {
            KeySearch::Key(key) => Some(Ok((key, current.generation))),
            KeySearch::OtherAlgorithm => Some(Err(Missing::OtherAlgorithm)),
            KeySearch::Ambiguous => Some(Err(Missing::Ambiguous)),
            KeySearch::Unknown => None,
        }
    }

    /// Reads the source again and again, for ever.
    pub async fn follow(&self) {
        let mut back_off = BACK_OFF.0;
        let mut failing = false;
        loop {
            let began = Instant::now();
            let looked = match timeout(LOOK_MAX, self.look()).await {
                Ok(looked) => looked,
                Err(_) => Err(LookFailed::TimedOut),
            };
            let next = if self.take(looked, &mut failing) {
                back_off = BACK_OFF.0;
                began + self.jittered(self.pace.refresh)
            } else {
                let next = Instant::now() + self.jittered(back_off);
                back_off = BACK_OFF.1.min(back_off * 2);
                next
            };
            let soonest = next.min(began + self.pace.asked_min).max(Instant::now());
            // Whoever asked before this look ended is answered by it, or asks again.
            let _asked = self.asked.notified().now_or_never();
            self.progress.send_modify(|progress| {
                *progress = Progress { looks: progress.looks + 1, began, soonest, failing };
            });
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.asked.notified() => sleep_until(soonest).await,
            }
        }
    }

    /// Reads the source once.
    async fn look(&self) -> Result<Vec<u8>, LookFailed> {
        Ok(match &self.from {
            KeySource::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || small_file::read(&path)).await;
                read.map_err(|_| LookFailed::GivenUp)??
            }
            KeySource::Url { url, trust } => fetch(url, trust).await?,
            KeySource::Discovery { issuer, trust } => {
                fetch(&discover(&self.issuer, issuer, trust).await?, trust).await?
            }
        })
    }

    /// Takes over what a look brought. A set that cannot be used changes nothing. Says whether the look succeeded; its
    /// end and its beginning are logged once.
    fn take(&self, looked: Result<Vec<u8>, LookFailed>, failing: &mut bool) -> bool {
        let taken = looked.and_then(|document| Ok(self.replace(&document)?));
        record::reload("jwks", taken.is_ok());
        let before = std::mem::replace(failing, taken.is_err());
        let issuer = &*self.issuer;
        match taken {
            Ok(()) if before => tracing::info!(issuer, "the issuer's keys can be read again"),
            Ok(()) => {}
            Err(failure) if !before => {
                let kept = self.has_keys();
                tracing::warn!(issuer, kept, error = chain(&failure), "the issuer's keys cannot be read");
            }
            Err(_) => {
                let current = self.current.load();
                if current.as_ref().is_some_and(|current| !current.is_kept()) {
                    self.current.store(None);
                    tracing::error!(issuer, "the issuer's keys were not read for 24 h: its tokens are refused");
                }
            }
        }
        !*failing
    }

    fn replace(&self, document: &[u8]) -> Result<(), BadKeySet> {
        let (read_at, before) = (Instant::now(), self.current.load());
        let next = match before.as_ref() {
            Some(current) if current.keys.is_from(document) => Current { read_at, ..Current::clone(current) },
            before => {
                let keys = KeySet::parse(document)?;
                let (used, skipped) = (keys.keys().len(), keys.skipped().len());
                let first_skipped = keys.skipped().first().map(tracing::field::display);
                tracing::info!(issuer = &*self.issuer, used, skipped, first_skipped, "the issuer's keys were read");
                // A generation must never come again: also not after the set was dropped.
                let generation = self.progress.borrow().looks + 1;
                debug_assert!(before.is_none_or(|before| before.generation < generation), "looks only grow");
                Current { keys: Arc::new(keys), generation, read_at }
            }
        };
        self.current.store(Some(Arc::new(next)));
        Ok(())
    }

    /// The time, lengthened or shortened by up to 10 %, so that replicas do not ask together.
    fn jittered(&self, time: Duration) -> Duration {
        let looks = self.progress.borrow().looks;
        let share = u32::try_from(self.jitter.hash_one(looks) % 201).expect("200 is small");
        time * (900 + share) / 1_000
    }
}

impl Current {
    fn is_kept(&self) -> bool {
        self.read_at.elapsed() <= KEPT_FOR
    }
}
