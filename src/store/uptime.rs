//! The time since when workers could report to the authority, as one process knows it.
//!
//! A living worker renews its lease every third of the ttl. Only an interruption about as long can hurt the lease, so
//! an interruption counts for every lease of whose ttl it is a quarter or more: none of these is over before one
//! whole ttl from the interruption's end. A shorter one counts only for leases with shorter ttls, so that small
//! interruptions, however steady, do not keep the leases of dead workers.
//!
//! Pure: the times are given, all of them the store's.

use std::collections::BTreeMap;

use super::StoreError;
use crate::domain::Time;

/// The shortest interruption that counts, in microseconds: a quarter of the smallest ttl.
const SHORTEST: i64 = 250_000;

/// The longest length that makes a difference: a quarter of the largest ttl.
pub(in crate::store) const LONGEST: i64 = 6 * 3_600 * 1_000_000;

/// An interruption of this length ends the process's uptime, and a new one begins.
pub(in crate::store) const GAP: i64 = 2_000_000;

/// A failure that begins so soon after another interruption continues it: a worker whose heartbeat failed tries again
/// after at most half of this, so it may have met both.
const PAUSE_MIN: i64 = 1_000_000;

/// The uptime of one process, and its interruptions.
#[derive(Debug)]
pub(in crate::store) struct Uptime {
    begun: Time,
    /// The time at which the process was last seen running.
    ticked: Time,
    /// Renewals and stamps that have no answer yet: the times of their beginnings, by their numbers.
    unanswered: BTreeMap<u64, Time>,
    next_number: u64,
    /// The time since when they have failed, until one succeeds.
    failing_since: Option<Time>,
    last: Option<Span>,
    /// The interruptions, longest first. Each later one ended later: an earlier one that is no longer than it makes
    /// no difference.
    interruptions: Vec<Interruption>,
}

/// The last interruption, however short.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: Time,
    end: Time,
    failed: bool,
}

/// A time in which renewals could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interruption {
    length: i64,
    end: Time,
}

/// The end of a renewal or a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Ended {
    /// The store did the write.
    Well,
    /// The store could not do the write.
    Failed,
    /// The end shows nothing about the store: nobody waits for it any more, or the call was refused for its input.
    Unknown,
}

impl Ended {
    /// The end that an answer shows.
    pub(in crate::store) fn of<T>(answer: &Result<T, StoreError>) -> Self {
        match answer {
            Ok(_) => Self::Well,
            // One run that cannot be renewed shows nothing about the others.
            Err(error) if error.may_be_of_one_run() => Self::Unknown,
            Err(_) => Self::Failed,
        }
    }
}

/// The uptime at one moment.
#[derive(Clone, Debug)]
pub(in crate::store) struct Seen {
    /// The moment.
    pub(in crate::store) now: Time,
    /// The time since when the process has been up without an interruption of [`GAP`].
    pub(in crate::store) begun: Time,
    interruptions: Vec<Interruption>,
}

impl Uptime {
    /// The uptime of a process that starts now. The start counts as the end of an interruption of this length.
    pub(in crate::store) fn new(now: Time, away: i64) -> Self {
        let interruptions = vec![Interruption { length: rounded(away), end: now }];
        Self {
            begun: now,
            ticked: now,
            unanswered: BTreeMap::new(),
            next_number: 0,
            failing_since: None,
            last: None,
            interruptions,
        }
    }

    /// Notes that the process runs. A tick that is late shows that the process did not run, or that the clock was set.
    pub(in crate::store) fn tick(&mut self, now: Time) {
        if now < self.ticked {
            self.clock_was_set(between(self.ticked, now), now);
        } else if between(self.ticked, now) >= SHORTEST {
            self.record(self.ticked, now, false);
        }
        self.ticked = now;
    }

    /// Notes that the store's clock was set by so many microseconds, and shows this time now. As much time may have
    /// passed unseen.
    pub(in crate::store) fn clock_was_set(&mut self, by: i64, now: Time) {
        self.ticked = later(self.ticked, by);
        if by < 0 {
            // Times before the change move with the clock, so that they stay in the past.
            let times = self.unanswered.values_mut().chain(&mut self.failing_since).chain([&mut self.begun]);
            let times = times.chain(self.last.iter_mut().flat_map(|last| [&mut last.start, &mut last.end]));
            for time in times.chain(self.interruptions.iter_mut().map(|interruption| &mut interruption.end)) {
                *time = later(*time, by);
            }
        }
        if by.saturating_abs() >= SHORTEST {
            self.record(later(now, by.saturating_abs().saturating_neg()), now, false);
        }
    }

    /// Notes that renewals waited so long before they went to the store, as every renewal of that time would have.
    /// The process was up: its leases with longer ttls are not hurt, however long its queue stays.
    pub(in crate::store) fn waited(&mut self, length: i64, now: Time) {
        if length >= SHORTEST {
            let begun = self.begun;
            self.record(later(now, length.saturating_neg()), now, false);
            self.begun = begun;
        }
    }

    /// Notes a renewal or a stamp that is on its way to the store. Answers its number.
    pub(in crate::store) fn asked(&mut self, now: Time) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.unanswered.insert(number, now);
        number
    }

    /// Notes the end of a call. A call that took long is an interruption, and so is the time from the first call that
    /// failed to the next that did not.
    pub(in crate::store) fn answered(&mut self, number: u64, now: Time, ended: Ended) {
        let Some(asked) = self.unanswered.remove(&number) else { return };
        match ended {
            Ended::Well => match self.failing_since.take() {
                Some(since) => self.record(since.min(asked), now, true),
                None if between(asked, now) >= SHORTEST => self.record(asked, now, false),
                None => {}
            },
            Ended::Failed => {
                let since = self.failing_since.map_or(asked, |since| since.min(asked));
                self.failing_since = Some(since);
            }
            Ended::Unknown => {}
        }
    }

    /// Whether a renewal or a stamp failed, and none has succeeded since.
    pub(in crate::store) fn is_failing(&self) -> bool {
        self.failing_since.is_some()
    }

    /// `failed`: calls failed at once, and were not only held up until the end.
    fn record(&mut self, start: Time, end: Time, failed: bool) {
        let before = self.last.filter(|last| (failed || last.failed) && between(last.end, start) < PAUSE_MIN);
        let start = before.map_or(start, |last| last.start.min(start));
        self.last = Some(Span { start, end, failed });
        let length = between(start, end);
        if length < SHORTEST {
            return;
        }
        if length >= GAP {
            self.begun = end;
        }
        let length = rounded(length);
        self.interruptions.retain(|earlier| earlier.length > length);
        self.interruptions.push(Interruption { length, end });
    }

    /// The uptime as of now: an interruption that has not ended counts as if it would never end.
    pub(in crate::store) fn seen(&self, now: Time) -> Seen {
        let mut interruptions = self.interruptions.clone();
        let oldest = self.unanswered.values().chain([&self.ticked]).min().copied().unwrap_or(now);
        let length = if self.is_failing() { LONGEST } else { rounded(between(oldest, now)) };
        if length >= SHORTEST {
            interruptions.retain(|ended| ended.length > length);
            interruptions.push(Interruption { length, end: Time::from_micros(i64::MAX) });
        }
        // A process without a tick for so long does not claim that it is up.
        let begun = if length >= GAP { now } else { self.begun };
        Seen { now, begun, interruptions }
    }
}

impl Seen {
    /// The end of the last interruption that counts for leases with a ttl; the moment itself while one lasts.
    pub(in crate::store) fn since(&self, ttl_ms: u64) -> Option<Time> {
        let mut counted = self.interruptions.iter().rev();
        let last = counted.find(|interruption| ttl_ms < counts_below_ms(interruption))?;
        Some(last.end.min(self.now))
    }

    /// Each interruption: below which ttl in milliseconds it counts, and its end. Shortest first.
    pub(in crate::store) fn interruptions(&self) -> impl Iterator<Item = (u64, Time)> {
        self.interruptions.iter().rev().map(|interruption| (counts_below_ms(interruption), interruption.end))
    }
}

fn counts_below_ms(interruption: &Interruption) -> u64 {
    u64::try_from(interruption.length / 250 + 1).unwrap_or(0)
}

/// A length rounded up to three binary digits: so few lengths are kept apart, four for each doubling.
fn rounded(length: i64) -> i64 {
    let length = length.clamp(0, LONGEST);
    let step = 1_i64 << (61_u32.saturating_sub(length.leading_zeros()));
    ((length + step - 1) / step * step).min(LONGEST)
}

/// The microseconds from one time to another.
fn between(from: Time, to: Time) -> i64 {
    to.micros() - from.micros()
}

fn later(time: Time, by: i64) -> Time {
    Time::from_micros(time.micros().saturating_add(by))
}

#[cfg(test)]
mod tests;
