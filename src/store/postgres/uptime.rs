//! This replica's uptime by the steady clock, and that clock, which goes by the time that passes for this process.
//!
//! The row of `uptime` says by how much the steady clock is ahead of the database's. Where that clock was set, the first
//! replica that notices says there by how much it is ahead from then on; the others hear of it with their stamps. A replica
//! that others are ahead of was not running meanwhile, and takes the steady clock from them.
//!
//! A statement that needs the uptime takes it along, as of the moment before it is sent. A statement that was held up
//! on its way finds by its `expected` that the uptime is no longer so, and then finds no lease over.
//!
//! The servers tell each other, by a stamp a second in that row, the time since which one of them ran without an
//! interruption of 2 s. So a restart is no outage where another server ran meanwhile; and here an interruption of 2 s
//! counts for leases of every ttl.

pub(super) mod statements;

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::rows::{At, bigint};
use crate::clock::{Clock as _, SystemClock};
use crate::domain::{Steady, Time};
use crate::store::steady::{Clocks, KeptSteady, Machine, Steps, after_a_step, is_step};
use crate::store::uptime::{Ended, GAP, Uptime};
use crate::store::{Elapsed, StoreError};

/// An answer that came within this time tells the clock anew.
const QUICK_MAX: Duration = Duration::from_millis(20);

/// A stamp of another replica that is so much ahead shows that this one was not running, in microseconds. Stamps come once a
/// second.
const AHEAD_OF_US_MICROS: i64 = 1_000_000;

/// A difference up to this, after another replica has noticed a step, is one of what the two noticed, in microseconds.
const NOTICED_APART_MICROS: i64 = 2_000_000;

/// The uptime and the estimate of the steady clock.
pub(super) struct ReplicaUptime {
    /// See [`OpenOptions::elapsed`](crate::store::OpenOptions::elapsed).
    elapsed: Elapsed,
    since: Time,
    unattended: Duration,
    steps: Steps,
    inner: Mutex<Inner>,
}

struct Inner {
    /// A moment by the steady clock, and by the time that has passed for this process.
    told: (Time, Duration),
    /// By how much it is ahead of the database's clock, as the row said last.
    ahead: i64,
    /// What the row is to say instead, as far as this replica has noticed.
    to_keep: Option<i64>,
    uptime: Uptime,
    /// This machine's own clock.
    machine: Machine,
}

/// What the database told of its clock, and of the steady one.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatabaseClocks {
    /// The database's clock.
    pub(super) clock: Time,
    /// By how much the steady clock is ahead of it, in microseconds, as was noticed last.
    pub(super) ahead: i64,
    /// The steady clock at the last stamp of any replica.
    pub(super) alive_at: Time,
}

/// What the database tells a replica that starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    told: DatabaseClocks,
    /// The time from which on the ledger has had the steady clock.
    since: Time,
    /// Others serve by a steady clock that the database's has left: it was set, and none of them has noted that yet.
    beside_others: bool,
}

impl Opening {
    /// How far the last stamp is behind, by the database's clock, in microseconds: nobody stamped meanwhile, or that clock was
    /// set.
    pub(super) fn behind(told: DatabaseClocks) -> i64 {
        told.clock.plus_micros(told.ahead).since(told.alive_at)
    }
}

/// The uptime that goes with a statement.
#[derive(Debug)]
pub(super) struct Sent {
    /// The steady clock.
    pub(super) expected: At,
    /// The time since when this replica has been up.
    pub(super) begun: At,
    /// The interruptions, shortest first: below which ttl in milliseconds each counts,
    pub(super) below: Vec<i64>,
    /// and when it ended.
    pub(super) ends: Vec<At>,
}

impl ReplicaUptime {
    /// The uptime of a replica that starts when the database tells this.
    pub(super) fn new(Opening { told, since, beside_others }: &Opening, elapsed: Elapsed) -> Self {
        let kept = KeptSteady { alive_at: told.alive_at, ahead: told.ahead, since: *since };
        let now = if *beside_others { told.alive_at } else { kept.resumed(told.clock) };
        let (ahead, uptime) = (told.ahead, Uptime::new(now, GAP));
        let inner = Inner { told: (now, (elapsed.0)()), ahead, to_keep: None, uptime, machine: Machine::default() };
        let unattended = if *beside_others { Duration::ZERO } else { kept.unattended(told.clock) };
        Self { elapsed, since: *since, unattended, steps: Steps::default(), inner: Mutex::new(inner) }
    }

    /// See [`Upkeep::clocks`](crate::store::Upkeep::clocks).
    pub(super) fn clocks(&self) -> Clocks {
        let steady = self.steady();
        let server_ahead_micros = SystemClock.now().since(steady.now.plus_micros(-steady.ahead));
        Clocks { steps: self.steps.until((self.elapsed.0)()), server_ahead_micros: Some(server_ahead_micros) }
    }

    /// See [`Purges::unattended`](crate::store::Purges::unattended).
    pub(super) fn unattended(&self) -> Duration {
        self.unattended
    }

    /// The steady clock.
    pub(super) fn steady(&self) -> Steady {
        let inner = self.held();
        Steady { now: inner.at((self.elapsed.0)()), ahead: inner.ahead, since: self.since }
    }

    pub(super) fn tick(&self) {
        let mut inner = self.held();
        let moment = (self.elapsed.0)();
        let now = inner.at(moment);
        inner.uptime.tick(now);
        // The database's clock decides; credentials go by this one.
        if let Some(by) = inner.machine.look(SystemClock.now(), SystemClock.elapsed()) {
            self.steps.tell("server", by, moment);
        }
    }

    pub(super) fn waited(&self, queued: Duration) {
        let mut inner = self.held();
        let now = inner.at((self.elapsed.0)());
        inner.uptime.waited(micros(queued), now);
    }

    pub(super) fn sent(&self) -> Sent {
        let seen = {
            let inner = self.held();
            inner.uptime.seen(inner.at((self.elapsed.0)()))
        };
        let (below, ends) = seen.interruptions().map(|(below_ms, end)| (bigint(below_ms), At(end))).unzip();
        Sent { expected: At(seen.now), begun: At(seen.begun), below, ends }
    }

    /// By how much the steady clock is ahead, as the row says it and as it is to say it; none where it says so.
    fn to_keep(&self) -> Option<(i64, i64)> {
        let mut inner = self.held();
        Some((inner.ahead, inner.to_keep.take()?))
    }

    /// Makes a renewal or a stamp, whose answer may tell the clocks.
    pub(super) async fn making<T>(
        &self,
        made: impl Future<Output = Result<T, StoreError>>,
        told: impl FnOnce(&T) -> Option<DatabaseClocks>,
    ) -> Result<T, StoreError> {
        let sent = (self.elapsed.0)();
        let number = {
            let mut inner = self.held();
            let now = inner.at(sent);
            inner.uptime.asked(now)
        };
        let mut asked = ReplicaStamp { replica: self, number, ended: Ended::Unknown };
        let made = made.await;
        if let Some(told) = made.as_ref().ok().and_then(told) {
            self.held().tell(told, sent, (self.elapsed.0)(), &self.steps);
        }
        asked.ended = Ended::of(&made);
        made
    }

    fn held(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Inner {
    /// The steady clock at a moment of this process.
    fn at(&self, moment: Duration) -> Time {
        let (told, at) = self.told;
        told.plus_micros(micros(moment.saturating_sub(at)) - micros(at.saturating_sub(moment)))
    }

    /// Notes that the database's clock showed a time between two moments. Where the estimate rules that out, that clock was
    /// set, or this process did not run.
    fn tell(&mut self, told: DatabaseClocks, sent: Duration, received: Duration, steps: &Steps) {
        let (earliest, latest) = (self.at(sent), self.at(received));
        let now = told.clock.plus_micros(told.ahead);
        let off = now.since(now.clamp(earliest, latest));
        let noticed_by_another = told.ahead - self.ahead;
        if is_step(noticed_by_another) {
            steps.tell("store", -noticed_by_another, received);
        }
        self.ahead = told.ahead;
        let is_ours = is_step(noticed_by_another) && off.abs() < NOTICED_APART_MICROS
            || told.alive_at.since(latest) > AHEAD_OF_US_MICROS;
        if is_step(off) && !is_ours {
            self.to_keep = Some(after_a_step(told.ahead - off));
            return;
        }
        let (steady, at) = self.told;
        self.told = (steady.plus_micros(off), at);
        let took = received.saturating_sub(sent);
        if took <= QUICK_MAX {
            self.told = (now, sent + took / 2);
        }
        let here = self.at(received);
        self.uptime.clock_was_set(off, here);
    }
}

/// A renewal or a stamp that is on its way. Notes its end when it is dropped, even by a caller that does not wait for
/// it.
struct ReplicaStamp<'a> {
    replica: &'a ReplicaUptime,
    number: u64,
    ended: Ended,
}

impl Drop for ReplicaStamp<'_> {
    fn drop(&mut self) {
        let mut inner = self.replica.held();
        let now = inner.at((self.replica.elapsed.0)());
        inner.uptime.answered(self.number, now, self.ended);
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
