//! The clock by which credentials end: tokens, signed tokens, clients' certificates and revocation lists.
//!
//! A credential says its end as a time, and so the machine's clock decides; but that clock is set now and then, and a
//! credential that has ended must not come back by it. So this clock shows the machine's time at the start of the process
//! and goes on by the time that passes: it never falls, and a machine's clock that is ahead for a moment refuses nobody.
//!
//! A clock that was set forward is followed, by the least that it was ahead meanwhile, once it is believed: the machine may
//! have begun with a clock that was behind, or its time may have stood still with the machine. What another machine's clock
//! shows as well is believed after a minute: the two may be on one machine, whose clock is ahead until somebody sets it.
//! Where there is no other, so is a step soon after the start, for so machines begin whose time is not set yet; every other one
//! has to stand for an hour.

use std::time::Duration;

use parking_lot::Mutex;

use super::Clock;
use crate::domain::Time;

/// The time for which the machine's clock must have been ahead before it is followed.
const BELIEVED_AFTER: Duration = Duration::from_hours(1);

/// The same where another clock shows it as well, or where there is none, and it was set [early](EARLY).
const BELIEVED_SOON_AFTER: Duration = Duration::from_mins(1);

/// The time from the start in which machines set a clock that was behind.
const EARLY: Duration = Duration::from_mins(10);

/// The time after which the log is told that the machine's clock is ahead.
const TOLD_AFTER: Duration = Duration::from_secs(3);

/// The lead over what is shown from which on a clock is ahead, in microseconds. A right clock may seem to be ahead by less,
/// since the process may have to wait between the two readings of a look.
const AHEAD_MICROS: i64 = 1_000_000;

/// The time behind what is shown from which on the log is told of it, in microseconds: the leeway that credentials have.
const BEHIND_MICROS: i64 = 30_000_000;

/// See the module.
#[derive(Debug)]
pub struct CredentialClock<C> {
    machine: C,
    begun: Duration,
    leads: Mutex<Leads>,
}

/// What the looks have found. A lead is by how much a time is ahead of what has passed since some moment, in microseconds.
#[derive(Debug)]
struct Leads {
    /// The lead of the time that is shown. It only grows.
    shown: i64,
    /// The machine's clock is ahead of what is shown.
    alone: Option<Ahead>,
    /// And so is another clock.
    agreed: Option<Ahead>,
    /// Whether the log was told that the machine's clock is ahead,
    is_told_ahead: bool,
    /// or behind.
    is_told_behind: bool,
}

/// A clock that is ahead of what is shown.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    since: Duration,
    /// The least lead that it had meanwhile.
    least: i64,
}

impl Ahead {
    /// What holds after one more look, at a clock with this lead.
    fn after(before: Option<Self>, lead: i64, shown: i64, moment: Duration) -> Option<Self> {
        let Self { since, least } = before.unwrap_or(Self { since: moment, least: lead });
        (lead.saturating_sub(shown) >= AHEAD_MICROS).then(|| Self { since, least: least.min(lead) })
    }

    fn stood(&self, moment: Duration) -> Duration {
        moment.saturating_sub(self.since)
    }
}

impl<C: Clock> CredentialClock<C> {
    /// The time between two looks.
    pub const LOOK_EVERY: Duration = Duration::from_secs(1);

    /// A clock that begins with the machine's now.
    pub fn beside(machine: C) -> Self {
        let begun = machine.elapsed();
        let shown = lead(machine.now(), begun);
        let leads = Leads { shown, alone: None, agreed: None, is_told_ahead: false, is_told_behind: false };
        Self { machine, begun, leads: Mutex::new(leads) }
    }

    /// Looks at the machine's clock, and at what another machine's shows, where there is one. Nothing else makes the time that
    /// is shown follow: it is to be called every [`LOOK_EVERY`](Self::LOOK_EVERY), for what stands between two looks is
    /// taken to have stood.
    pub fn look(&self, other: Option<Time>) {
        let moment = self.machine.elapsed();
        let machine = lead(self.machine.now(), moment);
        let is_early = |since: Duration| other.is_none() && since.saturating_sub(self.begun) <= EARLY;
        let mut leads = self.leads.lock();
        leads.tell_behind(machine);
        let shown = leads.shown;
        leads.alone = Ahead::after(leads.alone, machine, shown, moment);
        let both = other.map(|other| lead(other, moment).min(machine));
        leads.agreed = both.and_then(|both| Ahead::after(leads.agreed, both, shown, moment));
        let Some(alone) = leads.alone else {
            leads.is_told_ahead &= machine.saturating_sub(shown) >= AHEAD_MICROS / 2;
            return;
        };
        let alone_after = if is_early(alone.since) { BELIEVED_SOON_AFTER } else { BELIEVED_AFTER };
        if let Some(agreed) = leads.agreed.filter(|agreed| agreed.stood(moment) >= BELIEVED_SOON_AFTER) {
            leads.follow(agreed, "the database's clock shows it as well");
        } else if alone.stood(moment) >= alone_after {
            leads.follow(alone, "it has stood so for long enough");
        } else if !leads.is_agreed(alone) && alone.stood(moment) >= TOLD_AFTER {
            leads.tell_ahead(alone, alone_after);
        }
    }
}

/// By how much a time is ahead of what has passed, in microseconds.
fn lead(time: Time, elapsed: Duration) -> i64 {
    time.micros().saturating_sub(micros(elapsed))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl Leads {
    /// Says once that credentials end before the machine's time comes to it: where they began by a clock that was ahead, good
    /// ones are refused.
    fn tell_behind(&mut self, machine: i64) {
        let behind = self.shown.saturating_sub(machine);
        if behind >= BEHIND_MICROS && !self.is_told_behind {
            tracing::warn!(
                by_s = behind / 1_000_000,
                "the machine's clock is behind the time by which credentials end: if it is right now, restart this server"
            );
        }
        self.is_told_behind = behind >= BEHIND_MICROS;
    }

    /// Whether the other clock is about as far ahead, and so the machine's is believed soon.
    fn is_agreed(&self, alone: Ahead) -> bool {
        self.agreed.is_some_and(|agreed| alone.least.saturating_sub(agreed.least) < AHEAD_MICROS)
    }

    /// Says once that credentials do not end yet by a clock that was set forward: where it was behind before, those that have
    /// ended are let in.
    fn tell_ahead(&mut self, ahead: Ahead, believed_after: Duration) {
        if !self.is_told_ahead {
            tracing::warn!(
                by_s = ahead.least.saturating_sub(self.shown) / 1_000_000,
                after_s = believed_after.as_secs(),
                "the machine's clock was set forward: credentials end by it once it has stood so for long enough; if it is \
                 right, a restart of this server lets it count now"
            );
            self.is_told_ahead = true;
        }
    }

    /// Shows what a clock has shown at the least.
    fn follow(&mut self, Ahead { least, .. }: Ahead, why: &'static str) {
        let by_s = least.saturating_sub(self.shown) / 1_000_000;
        (self.shown, self.alone, self.agreed, self.is_told_ahead) = (least, None, None, false);
        tracing::warn!(by_s, why, "the machine's clock was set forward: credentials end by it now");
    }
}

impl<C: Clock> Clock for CredentialClock<C> {
    fn now(&self) -> Time {
        let elapsed = micros(self.machine.elapsed());
        Time::from_micros(self.leads.lock().shown.saturating_add(elapsed))
    }

    fn latest(&self) -> Time {
        self.now().max(self.machine.now())
    }

    fn elapsed(&self) -> Duration {
        self.machine.elapsed()
    }
}

#[cfg(test)]
mod tests;
