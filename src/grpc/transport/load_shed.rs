//! Load shedding: as many calls are admitted as are answered in 150 ms, at the rate at which calls are being answered.
//!
//! More calls are refused at once, by their headers, before their message is received or decoded: a call that waits
//! longer than its caller does is work for nobody, and under overload all would be such calls. Each connection has its
//! share, so that none is refused because of another one's calls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderMap;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::wire::{problem, uncounted};

/// Time that calls should take at most, from their arrival to their answer.
const WAIT_MAX: Duration = Duration::from_millis(150);

/// Interval between two looks at the rate.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Looks whose mean is the rate, or fewer where calls began to wait later: commits answer many calls at once, and then
/// none for a while.
const LOOKS: usize = 10;

/// Calls that are admitted at any rate: a store that stands still for a moment is waited for.
const CALLS_MIN: usize = 512;

/// Calls that are admitted before a rate is known: a crowd that comes at once is no overload yet. A shard's queue takes
/// a thousand more, for connections that have less than their share.
const CALLS_UNKNOWN: usize = 3072;

/// Calls that each connection may have, however many connections there are.
const SHARE_MIN: usize = 8;

/// The longest wait that a refused caller is told.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub(super) struct LoadShed {
    /// Calls that were admitted and not answered.
    calls: AtomicUsize,
    /// Connections with such calls.
    busy: AtomicUsize,
    answered: AtomicU64,
    refused: AtomicU64,
    calls_max: AtomicUsize,
    refusals: Mutex<[Arc<HeaderMap>; SPREAD.len()]>,
}

impl Default for LoadShed {
    fn default() -> Self {
        Self {
            calls: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            calls_max: AtomicUsize::new(CALLS_UNKNOWN),
            refusals: Mutex::new(SPREAD.map(|_| refusal(Duration::ZERO))),
        }
    }
}

impl LoadShed {
    /// Whether a call is admitted. `own`: other calls of its connection.
    pub(super) fn admit(&self, own: usize) -> bool {
        let calls_max = self.calls_max.load(Ordering::Relaxed);
        let share = (calls_max / self.busy.load(Ordering::Relaxed).max(1)).max(SHARE_MIN);
        let admitted = own < share || self.calls.load(Ordering::Relaxed) < calls_max;
        if !admitted {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }

    /// Counts a call. `own`: other calls of its connection.
    pub(super) fn add(&self, own: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if own == 0 {
            self.busy.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A call counts no more; `left` others of its connection do.
    pub(super) fn remove(&self, left: usize) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
        if left == 0 {
            self.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts a call whose answer is no refusal: refusals cost less, and say nothing about the rate of work.
    pub(super) fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls that are in execution or wait for it.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Calls that were refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The headers of a refusal, made once for many.
    pub(super) fn refusal(&self) -> Arc<HeaderMap> {
        let nth = usize::try_from(self.refused() % SPREAD.len() as u64).expect("less than a length");
        self.refusals.lock()[nth].clone()
    }

    /// Follows the rate at which calls are answered. Never ends by itself.
    pub(super) async fn follow(&self) {
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rates = VecDeque::from([0.0; LOOKS]);
        let (mut before, mut then) = (0, Instant::now());
        let (mut refused_before, mut log) = (0, Log::default());
        loop {
            looks.tick().await;
            // The time of the look and not that at which it was due: where this process is late, the latter is earlier.
            let now = Instant::now();
            let answered = self.answered.load(Ordering::Relaxed);
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            let rate = (answered - before) as f64 / (now - then).as_secs_f64().max(0.001);
            (before, then) = (answered, now);
            let refused = self.refused();
            log.look(refused - refused_before);
            let is_calm = refused == refused_before && self.calls() <= CALLS_MIN;
            refused_before = refused;
            if is_calm {
                rates.clear();
            }
            rates.truncate(LOOKS - 1);
            rates.push_front(rate);
            #[expect(clippy::cast_precision_loss, reason = "a few")]
            let count = rates.len() as f64;
            self.look(rates.iter().sum::<f64>() / count, is_calm);
        }
    }

    /// Sets the bound of calls by their rate per second. Calm: no call was refused, and few calls are open.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
    fn look(&self, rate: f64, is_calm: bool) {
        if is_calm {
            return self.calls_max.store(CALLS_UNKNOWN, Ordering::Relaxed);
        }
        let calls = self.calls();
        let calls_max = ((rate * WAIT_MAX.as_secs_f64()) as usize).max(CALLS_MIN);
        self.calls_max.store(calls_max, Ordering::Relaxed);
        let wait_ms = calls as f64 / rate.max(1.0) * 1_000.0;
        let spread = SPREAD.map(|part| refusal(Duration::from_millis((wait_ms * part) as u64).min(RETRY_MAX)));
        *self.refusals.lock() = spread;
    }
}

/// Logs the beginning and the end of each time in which calls are refused.
#[derive(Debug, Default)]
struct Log(Option<Overload>);

/// A time in which calls are refused.
#[derive(Debug)]
struct Overload {
    since: Instant,
    last: Instant,
    refused: u64,
}

/// Time without a refusal after which an overload is over: an overload that comes and goes is one.
const CALM: Duration = Duration::from_secs(10);

impl Log {
    /// Takes note of the number of calls that were refused since the last look.
    fn look(&mut self, refused: u64) {
        let now = Instant::now();
        match &mut self.0 {
            None if refused > 0 => {
                tracing::warn!("calls are refused as OVERLOADED: more come than can be answered soon");
                self.0 = Some(Overload { since: now, last: now, refused });
            }
            Some(overload) if refused > 0 => {
                overload.last = now;
                overload.refused += refused;
            }
            Some(Overload { since, last, refused }) if now - *last >= CALM => {
                tracing::info!(refused, seconds = (*last - *since).as_secs(), "no calls are refused any more");
                self.0 = None;
            }
            None | Some(_) => {}
        }
    }
}

/// The factors of a refused caller's wait, in turn: callers that are refused together come back apart.
const SPREAD: [f64; 5] = [0.8, 0.9, 1.0, 1.1, 1.2];

fn refusal(retry_after: Duration) -> Arc<HeaderMap> {
    Arc::new(uncounted(problem::overloaded_for(retry_after)).into_http::<()>().into_parts().0.headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls that one connection is admitted with.
    fn admitted(load_shed: &LoadShed) -> usize {
        let mut own = 0;
        while load_shed.admit(own) {
            load_shed.add(own);
            own += 1;
        }
        own
    }

    #[test]
    fn as_many_calls_are_let_in_as_are_answered_in_150_ms() {
        let load_shed = LoadShed::default();
        assert_eq!(admitted(&load_shed), CALLS_UNKNOWN, "no rate is known");
        load_shed.look(10_000.0, false);
        assert_eq!(load_shed.calls_max.load(Ordering::Relaxed), 1_500);
        load_shed.look(100.0, false);
        assert_eq!(load_shed.calls_max.load(Ordering::Relaxed), CALLS_MIN, "a store that stands still");
        load_shed.look(100.0, true);
        assert_eq!(load_shed.calls_max.load(Ordering::Relaxed), CALLS_UNKNOWN, "nobody waits");
    }

    #[test]
    fn a_connection_is_not_refused_for_the_calls_of_another_one() {
        let load_shed = LoadShed::default();
        let flood = admitted(&load_shed);
        load_shed.look(6_667.0, false);
        assert!(!load_shed.admit(flood), "the flood is refused");
        load_shed.add(0);
        assert!(
            load_shed.admit(1) && load_shed.admit(499) && !load_shed.admit(500),
            "half of what is let in is the other's"
        );
    }
}
