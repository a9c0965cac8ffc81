//! The steady clock and the uptime of an embedded store: one process has the data, so it knows all interruptions itself. A
//! restart, however short, gives each lease one whole ttl. Of the steady clock the row of `uptime` keeps what a restart needs.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::Transaction;

use super::rows::execute;
use crate::clock::Clock;
use crate::domain::{Steady, Time};
use crate::store::StoreError;
use crate::store::steady::{Clocks, KeptSteady, Steps, after_a_step, is_step};
use crate::store::uptime::{Ended, LONGEST, Seen, Uptime};

/// The store's clock, the steady clock, and the uptime by it.
pub(super) struct UptimeClock {
    clock: Arc<dyn Clock>,
    /// The steady clock at a moment of the time that has passed.
    begun: (Time, Duration),
    since: Time,
    unattended: Duration,
    steps: Steps,
    inner: Mutex<Inner>,
}

struct Inner {
    uptime: Uptime,
    /// By how much the steady clock is ahead of the store's, as it was noticed last.
    ahead: i64,
    /// Whether that stands in the row.
    is_kept: bool,
    /// The steady clock in the row.
    stamped: Time,
}

/// What was written into the row of `uptime`: the steady clock, and by how much it is ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp(Time, i64);

/// The age of a stamp from which on a commit renews it, in microseconds.
const STALE_MICROS: i64 = 500_000;

impl UptimeClock {
    /// The clocks of a store that is opened now.
    pub(super) fn new(clock: Arc<dyn Clock>, kept: KeptSteady) -> Self {
        let (now, elapsed) = (clock.now(), clock.elapsed());
        let (steady, steps) = (kept.resumed(now), Steps::default());
        let mut ahead = kept.ahead;
        let by = steady.since(now) - ahead;
        if is_step(by) {
            steps.tell("store", -by, elapsed);
            ahead = after_a_step(ahead + by);
        }
        let inner = Inner { uptime: Uptime::new(steady, LONGEST), ahead, is_kept: false, stamped: kept.alive_at };
        let (since, unattended) = (kept.since, kept.unattended(now));
        Self { clock, begun: (steady, elapsed), since, unattended, steps, inner: Mutex::new(inner) }
    }

    /// See [`Upkeep::clocks`](crate::store::Upkeep::clocks).
    pub(super) fn clocks(&self) -> Clocks {
        Clocks { steps: self.steps.until(self.clock.elapsed()), server_ahead_micros: None }
    }

    /// See [`Purges::unattended`](crate::store::Purges::unattended).
    pub(super) fn unattended(&self) -> Duration {
        self.unattended
    }

    /// The time that it is, which people read.
    pub(super) fn clock(&self) -> Time {
        self.clock.now()
    }

    /// The steady clock, which decides what is over.
    pub(super) fn steady(&self) -> Steady {
        let now = self.now();
        Steady { now, ahead: 0, since: self.since }.beside(self.clock())
    }

    /// A time of the steady clock, as people read it now.
    pub(super) fn shown(&self, steady: Time) -> Time {
        self.steady().shown(steady)
    }

    fn now(&self) -> Time {
        let (steady, at) = self.begun;
        steady.plus_micros(micros(self.clock.elapsed().saturating_sub(at)))
    }

    pub(super) fn tick(&self) {
        let mut inner = self.held();
        let now = self.now();
        inner.uptime.tick(now);
        let ahead = now.since(self.clock.now());
        if is_step(ahead - inner.ahead) {
            self.steps.tell("store", inner.ahead - ahead, self.clock.elapsed());
            (inner.ahead, inner.is_kept) = (after_a_step(ahead), false);
        }
    }

    pub(super) fn waited(&self, queued: Duration) {
        let mut inner = self.held();
        let now = self.now();
        inner.uptime.waited(micros(queued), now);
    }

    pub(super) fn seen(&self) -> Seen {
        let inner = self.held();
        inner.uptime.seen(self.now())
    }

    pub(super) fn is_failing(&self) -> bool {
        self.held().uptime.is_failing()
    }

    /// Whether the row does not say yet how the clocks differ.
    pub(super) fn is_unkept(&self) -> bool {
        !self.held().is_kept
    }

    /// Whether the row of `uptime` was written some time ago.
    pub(super) fn is_stale(&self) -> bool {
        let inner = self.held();
        self.now().since(inner.stamped) > STALE_MICROS
    }

    /// Writes into the row of `uptime` what a restart needs.
    pub(super) fn stamp(&self, transaction: &Transaction<'_>) -> Result<Stamp, StoreError> {
        let stamp = {
            let inner = self.held();
            Stamp(self.now(), inner.ahead)
        };
        let statement = "-- uptime.stamp\nupdate uptime set alive_at = ?1, steady_ahead = ?2";
        execute(transaction, statement, (stamp.0.micros(), stamp.1))?;
        Ok(stamp)
    }

    /// Notes that a stamp was committed.
    pub(super) fn kept(&self, Stamp(at, ahead): Stamp) {
        let mut inner = self.held();
        inner.is_kept = inner.ahead == ahead;
        inner.stamped = at;
    }

    /// Makes a renewal, or tries whether one could be made.
    pub(super) async fn making<T>(
        &self,
        renewal: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let number = {
            let mut inner = self.held();
            let now = self.now();
            inner.uptime.asked(now)
        };
        let mut asked = FileStamp { clock: self, number, ended: Ended::Unknown };
        let made = renewal.await;
        asked.ended = Ended::of(&made);
        made
    }

    /// The clock is read while this is held, so that no time is before one that was told earlier.
    fn held(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// A renewal or a stamp on its way. Notes its end when it is dropped, even by a caller that does not wait for it.
struct FileStamp<'a> {
    clock: &'a UptimeClock,
    number: u64,
    ended: Ended,
}

impl Drop for FileStamp<'_> {
    fn drop(&mut self) {
        let mut inner = self.clock.held();
        let now = self.clock.now();
        inner.uptime.answered(self.number, now, self.ended);
    }
}
