//! The steady clock as the stores keep it, in the row of `uptime`. See [`domain::steady`](crate::domain::steady).

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::domain::Time;
use crate::domain::steady::STEP_MIN_MICROS;

/// What is kept of the steady clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct KeptSteady {
    /// The time until which it surely ran, by itself.
    pub(in crate::store) alive_at: Time,
    /// By how much it was ahead of the store's clock then, in microseconds.
    pub(in crate::store) ahead: i64,
    /// The time from which on the ledger has had it.
    pub(in crate::store) since: Time,
}

impl KeptSteady {
    /// The steady clock of a server that finds nobody else serving, when the store's clock shows this time. It is never before
    /// where it was: a clock that was set back while nobody served tells nothing of the time that passed.
    pub(in crate::store) fn resumed(&self, clock: Time) -> Time {
        clock.plus_micros(self.ahead).max(self.alive_at)
    }
}

impl KeptSteady {
    /// The time for which nobody served until this one, as far as the clock says; none where nobody ever did.
    pub(in crate::store) fn unattended(&self, clock: Time) -> Duration {
        let never = self.alive_at <= Time::from_micros(0);
        let micros = if never { 0 } else { self.resumed(clock).since(self.alive_at) };
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }
}

/// Whether the clocks differ by so much more than before, in microseconds, that one was set.
pub(in crate::store) fn is_step(micros: i64) -> bool {
    micros.saturating_abs() >= STEP_MIN_MICROS
}

/// By how much the steady clock is ahead, as the row of `uptime` says it once a step of the store's clock was noticed: never 0.
/// So 0 says that no step ever was, and that the times of a shard's events never fall.
pub(in crate::store) fn after_a_step(ahead: i64) -> i64 {
    if ahead == 0 { 1 } else { ahead }
}

/// Notices that the clock of a machine was set, by the time that passes there.
#[derive(Debug, Default)]
pub(in crate::store) struct Machine {
    ahead: Option<i64>,
}

impl Machine {
    /// By how much the clock was set since the last look that noticed it, or since the first look; none where it was not.
    pub(in crate::store) fn look(&mut self, clock: Time, elapsed: Duration) -> Option<i64> {
        let ahead = clock.micros() - i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX);
        let by = ahead - *self.ahead.get_or_insert(ahead);
        is_step(by).then(|| {
            self.ahead = Some(ahead);
            by
        })
    }
}

/// A clock that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// The clock: `store` or `server`.
    pub clock: &'static str,
    /// By how much it was set, forward (positive) or back, in microseconds.
    pub by_micros: i64,
    /// The time that has passed for this process since it noticed.
    pub ago: Duration,
}

/// What a server knows of the clocks that it goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// The newest steps that it has noticed, the last one first.
    pub steps: Vec<ClockStep>,
    /// By how much the clock of the server's machine is ahead of the store's, in microseconds; none where they are one.
    pub server_ahead_micros: Option<i64>,
}

/// Steps that are remembered, the newest ones.
const STEPS_MAX: usize = 8;

/// The steps of clocks that this process has noticed.
#[derive(Debug, Default)]
pub(in crate::store) struct Steps(Mutex<VecDeque<ClockStep>>);

impl Steps {
    /// Says once that a clock was set, forward (positive) or back, at a moment of this process.
    pub(in crate::store) fn tell(&self, clock: &'static str, by_micros: i64, moment: Duration) {
        crate::telemetry::record::clock_step(clock, by_micros > 0);
        #[expect(clippy::cast_precision_loss, reason = "seconds, for people")]
        let by_s = by_micros as f64 / 1e6;
        tracing::warn!(clock, by_s, "the clock was set: leases and deadlines go on by the time that passes");
        let mut steps = self.0.lock();
        steps.truncate(STEPS_MAX - 1);
        steps.push_front(ClockStep { clock, by_micros, ago: moment });
    }

    /// The newest steps, the last one first, at a moment of this process.
    pub(in crate::store) fn until(&self, moment: Duration) -> Vec<ClockStep> {
        self.0.lock().iter().map(|step| ClockStep { ago: moment.saturating_sub(step.ago), ..*step }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_a_machines_clock_is_noticed_once_and_small_ones_when_they_add_up() {
        let (mut machine, at) = (Machine::default(), |clock_ms: i64, ms| (Time::from_micros(clock_ms * 1_000), ms));
        let looks =
            [at(0, 0), at(100, 100), at(5_200, 200), at(5_300, 300), at(5_000, 400), at(4_800, 500), at(4_900, 600)];
        let noticed = looks.map(|(clock, ms)| machine.look(clock, Duration::from_millis(ms)).map(|by| by / 1_000));
        assert_eq!(noticed, [None, None, Some(5_000), None, None, Some(-700), None]);
    }

    #[test]
    fn no_start_sets_the_steady_clock_back() {
        let time = Time::from_micros;
        let kept = KeptSteady { alive_at: time(1_000), ahead: 100, since: time(0) };
        assert_eq!(kept.resumed(time(5_000)), time(5_100), "the time away has passed");
        assert_eq!(kept.resumed(time(400)), time(1_000), "the clock was set back meanwhile");
    }
}
