//! This replica's uptime by the database's clock, which is estimated from answers and from this process's own clock.
//!
//! A statement that needs the uptime takes it along, as of the moment before it is sent. A statement that was held up
//! on its way finds by its `expected` that the uptime is no longer so, and then finds no lease over.

pub(super) mod statements;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::rows::{At, bigint};
use crate::domain::Time;
use crate::store::StoreError;
use crate::store::uptime::{Ended, GAP, Uptime};

/// An answer that came within this time tells the clock anew.
const QUICK_MAX: Duration = Duration::from_millis(20);

/// The uptime and the estimate of the clock.
pub(super) struct ReplicaUptime {
    /// See [`OpenOptions::monotonic`](crate::store::OpenOptions::monotonic).
    monotonic: fn() -> Instant,
    inner: Mutex<Inner>,
}

struct Inner {
    /// A moment by the database's clock, and by this process's.
    told: (Time, Instant),
    uptime: Uptime,
}

/// The uptime that goes with a statement.
#[derive(Debug)]
pub(super) struct Sent {
    /// The database's clock.
    pub(super) expected: At,
    /// The time since when this replica has been up.
    pub(super) begun: At,
    /// The interruptions, shortest first: below which ttl in milliseconds each counts,
    pub(super) below: Vec<i64>,
    /// and when it ended.
    pub(super) ends: Vec<At>,
}

impl ReplicaUptime {
    /// The uptime of a replica that starts when the database's clock shows this time.
    pub(super) fn new(now: Time, monotonic: fn() -> Instant) -> Self {
        Self { monotonic, inner: Mutex::new(Inner { told: (now, monotonic()), uptime: Uptime::new(now, GAP) }) }
    }

    pub(super) fn tick(&self) {
        let mut inner = self.held();
        let now = inner.at((self.monotonic)());
        inner.uptime.tick(now);
    }

    pub(super) fn waited(&self, queued: Duration) {
        let mut inner = self.held();
        let now = inner.at((self.monotonic)());
        inner.uptime.waited(micros(queued), now);
    }

    pub(super) fn sent(&self) -> Sent {
        let seen = {
            let inner = self.held();
            inner.uptime.seen(inner.at((self.monotonic)()))
        };
        let (below, ends) = seen.interruptions().map(|(below_ms, end)| (bigint(below_ms), At(end))).unzip();
        Sent { expected: At(seen.now), begun: At(seen.begun), below, ends }
    }

    /// Makes a renewal or a stamp, whose answer may tell the database's clock.
    pub(super) async fn making<T>(
        &self,
        made: impl Future<Output = Result<T, StoreError>>,
        told: impl FnOnce(&T) -> Option<Time>,
    ) -> Result<T, StoreError> {
        let sent = (self.monotonic)();
        let number = {
            let mut inner = self.held();
            let now = inner.at(sent);
            inner.uptime.asked(now)
        };
        let mut asked = Asked { replica: self, number, ended: Ended::Unknown };
        let made = made.await;
        if let Some(now) = made.as_ref().ok().and_then(told) {
            self.held().tell(now, sent, (self.monotonic)());
        }
        asked.ended = Ended::of(&made);
        made
    }

    /// No panic leaves a half-made change under this mutex, so a poisoned one can be used.
    fn held(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The database's clock at a moment of this process's.
    fn at(&self, moment: Instant) -> Time {
        let (told, at) = self.told;
        let since = micros(moment.saturating_duration_since(at)) - micros(at.saturating_duration_since(moment));
        Time::from_micros(told.micros().saturating_add(since))
    }

    /// Notes that the database's clock showed this time between two moments. Where the estimate rules that out, one
    /// of the clocks was set, or this machine slept.
    fn tell(&mut self, now: Time, sent: Instant, received: Instant) {
        let (earliest, latest) = (self.at(sent), self.at(received));
        let off = now.micros() - now.clamp(earliest, latest).micros();
        let (told, at) = self.told;
        self.told = (Time::from_micros(told.micros().saturating_add(off)), at);
        let took = received.saturating_duration_since(sent);
        if took <= QUICK_MAX {
            self.told = (now, sent + took / 2);
        }
        let here = self.at(received);
        self.uptime.clock_was_set(off, here);
    }
}

/// A renewal or a stamp that is on its way. Notes its end when it is dropped, even by a caller that does not wait for
/// it.
struct Asked<'a> {
    replica: &'a ReplicaUptime,
    number: u64,
    ended: Ended,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut inner = self.replica.held();
        let now = inner.at((self.replica.monotonic)());
        inner.uptime.answered(self.number, now, self.ended);
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
