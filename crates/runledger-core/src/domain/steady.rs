//! The two clocks of a ledger, and which of them decides what.
//!
//! - The **store's clock** says what time it is: the machine's on SQLite, the database's on Postgres. It is set now and
//!   then, forward and back. Each event bears its time, and so does whatever people read: it never falls within a run, and
//!   the events of one run do not keep those of others from bearing the time that it is.
//! - The **steady clock** says how much time has passed. Nobody sets it: where the store's clock is set, the two differ by
//!   as much from then on. It alone decides whether something is over: leases, the deadlines of runs, retention, and how
//!   long claims' requests are remembered. Rows that only the authority looks at (`leases`, `active.due_at`,
//!   `claims`, `max_running`, `uptime`) bear its time.
//!
//! As long as the store's clock is not set, both are the same. An event notes by how much the steady clock was ahead of the
//! event's own time, where that is worth a note: so whoever reads the log knows how much time passed between two events,
//! whatever the store's clock did, and the deadlines of a run are a fold of its events as everything else is.
//!
//! Invariants of the times that events bear:
//!
//! - No event of a run is earlier than the run's `updated_at` before it.
//! - As long as the store's clock is not set, no event is earlier than the last event of its shard, and each event is
//!   later than every event of any shard that was acknowledged before the event's call was sent.

use super::Time;

/// The difference between the clocks from which on it counts, in microseconds: less than people notice, and more than the
/// clocks of two machines and the estimate of one by the other differ.
pub const STEP_MIN_MICROS: i64 = 500_000;

/// The time by which an event of another run may be ahead of the store's clock and is still the present, in microseconds:
/// replicas estimate the clock. An event further ahead was made while the clock was wrong, and lifts no time.
pub const PRESENT_MICROS: i64 = 1_000_000;

/// The time by which the steady clock of a server that was killed may be behind the newest events when it goes on, in
/// microseconds: stamps of it come with the commits of an embedded store, and once a second on Postgres.
const STAMPED_WITHIN_MICROS: i64 = 3_000_000;

/// The steady clock, as a decision sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steady {
    /// The steady clock now.
    pub now: Time,
    /// By how much it is ahead of the store's clock, in microseconds.
    pub ahead: i64,
    /// The time from which on the ledger has had the clock: a later event without a note is as it says.
    pub since: Time,
}

impl Steady {
    /// A steady clock that has always shown what the store's clock shows.
    #[must_use]
    pub fn always(now: Time) -> Self {
        Self { now, ahead: 0, since: now }
    }

    /// A time of this clock as people read it now.
    #[must_use]
    pub fn shown(self, steady: Time) -> Time {
        if self.ahead.abs() < STEP_MIN_MICROS { steady } else { steady.plus_micros(-self.ahead) }
    }

    /// The same, where the store's clock shows this time.
    #[must_use]
    pub fn beside(self, clock: Time) -> Self {
        Self { ahead: self.now.since(clock), ..self }
    }

    /// By how much this clock is ahead of an event's time, as the event notes it: to the microsecond where the clocks differ,
    /// so that events that come after one another are so by their notes.
    pub(super) fn ahead_of(self, at: Time) -> i64 {
        let ahead = self.now.since(at);
        if ahead.abs().max(self.ahead.abs()) < STEP_MIN_MICROS { 0 } else { ahead }
    }

    /// The time of an event by this clock, which notes by how much it was ahead. One without a note that has not happened yet
    /// is older than the ledger's steady clock, unless this clock itself went on from a stamp of shortly before.
    #[must_use]
    pub fn of_event(self, at: Time, noted: i64) -> Time {
        match at.since(self.now) {
            early if noted != 0 || early <= PRESENT_MICROS => at.plus_micros(noted),
            early if early <= STAMPED_WITHIN_MICROS => self.now,
            _ => self.since,
        }
    }

    /// The time of this clock until which what happened with an event is kept: until the time has passed, and the store's
    /// clock says so, too. What goes then is gone for good, and a server that was started while the clock was ahead takes
    /// that for time that passed. Of an event that is ahead of it, the store's clock tells nothing.
    #[must_use]
    pub fn kept_until(self, (at, noted): (Time, i64), keep_ms: u64) -> Time {
        let passed = self.of_event(at, noted).plus_ms(keep_ms);
        let clock = self.now.plus_micros(-self.ahead);
        if at > clock { passed } else { passed.max(self.now.plus_micros(at.plus_ms(keep_ms).since(clock))) }
    }

    /// By how much this clock was ahead of the times of a run with this newest event and note. A run without a note whose newest event has not happened yet is
    /// older than the ledger's steady clock, and was written while the store's clock was ahead: it is taken to have been
    /// written when the ledger got the steady clock.
    pub(super) fn ahead_of_run(self, updated_at: Time, noted: i64) -> i64 {
        self.of_event(updated_at, noted).since(updated_at)
    }
}

/// The store's clock, as events may bear it that come after others: not before an event of the present, and later by a
/// microsecond than one of another shard.
#[must_use]
pub fn after_all(clock: Time, last: Option<Time>, elsewhere: Option<Time>) -> Time {
    let present = |at: &Time| at.since(clock) <= PRESENT_MICROS;
    let last = last.filter(present);
    let elsewhere = elsewhere.filter(present).map(|at| at.plus_micros(1));
    [last, elsewhere].into_iter().flatten().fold(clock, Time::max)
}

/// The change of a run's deadlines, in microseconds, where an event notes another difference of the clocks than the one
/// before, both with their times: so they come when their time has passed by the steady clock. No event is before the one that it follows: where the
/// notes say so, the older one is wrong.
pub(super) fn shift((before, noted_before): (Time, i64), (at, noted): (Time, i64)) -> i64 {
    let at_most = at.since(before) + noted;
    noted_before.min(at_most) - noted
}
