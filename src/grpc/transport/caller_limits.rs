//! The limits of each caller's calls that an operator sets: how many come in a second, and how many are open at once.
//! Both hold for each connection and for each agent that calls name, and are told by a call's headers.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;

use crate::fairness::{CallerKey, Party};

/// Agents whose rate is known at once. Above, a call that names another one counts for its connection only.
const PARTIES_MAX: usize = 64 * 1024;

/// The time that a caller waits who has too many calls open: nobody knows when one of them ends.
const OPEN_RETRY: Duration = Duration::from_secs(1);

/// The limits, as the operator set them; none where all of the server may be one caller's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallerLimits {
    /// Calls, watches and waits that begin in a second; as many may come at once.
    pub calls_per_second: Option<NonZeroU32>,
    /// Calls, watches and waits that are open at once.
    pub open_calls: Option<NonZeroU32>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct CallersLimited<C: Clock = DefaultClock> {
    limits: CallerLimits,
    rates: Option<Rates<C>>,
    open_max: Option<usize>,
    open: Arc<Mutex<HashMap<Party, usize>>>,
    clock: C,
}

type Rates<C> = RateLimiter<
    Party,
    governor::state::keyed::DefaultKeyedStateStore<Party>,
    C,
    governor::middleware::NoOpMiddleware<<C as Clock>::Instant>,
>;

/// A call that is more than its caller may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany {
    /// The limit, by the name that callers are told.
    pub(super) limit: &'static str,
    /// The time after which the call would be let in.
    pub(super) wait: Duration,
}

impl<C: Clock + Clone> CallersLimited<C> {
    pub(super) fn new(limits: CallerLimits, clock: C) -> Self {
        let rates = limits
            .calls_per_second
            .map(|calls| RateLimiter::dashmap_with_clock(Quota::per_second(calls), clock.clone()));
        let open_max = limits.open_calls.map(|calls| usize::try_from(calls.get()).unwrap_or(usize::MAX));
        Self { limits, rates, open_max, open: Arc::default(), clock }
    }

    /// Whether these are the limits.
    pub(super) fn are(&self, limits: CallerLimits) -> bool {
        self.limits == limits
    }

    /// Whether the operator set no limit.
    pub(super) fn limits_none(&self) -> bool {
        self.rates.is_none() && self.open_max.is_none()
    }

    /// Lets a call in, or tells what it is too many of. The call is open until the value is dropped.
    pub(super) fn admit(&self, caller: CallerKey) -> Result<Option<OpenCall>, TooMany> {
        if let Some(rates) = &self.rates {
            for party in caller.parties() {
                // The callers of before are forgotten by [`tidy`](Self::tidy), and not here, where each call would pay.
                if matches!(party, Party::Agent(_)) && rates.len() >= PARTIES_MAX {
                    continue;
                }
                rates.check_key(&party).map_err(|not_until| {
                    let wait = not_until.wait_time_from(self.clock.now());
                    TooMany { limit: "calls_per_second", wait }
                })?;
            }
        }
        let Some(open_max) = self.open_max else { return Ok(None) };
        let mut open = self.open.lock();
        if caller.parties().any(|party| open.get(&party).is_some_and(|open| *open >= open_max)) {
            return Err(TooMany { limit: "open_calls", wait: OPEN_RETRY });
        }
        for party in caller.parties() {
            *open.entry(party).or_default() += 1;
        }
        drop(open);
        Ok(Some(OpenCall { open: self.open.clone(), caller }))
    }

    /// Forgets callers whose rate is as good as new.
    pub(super) fn tidy(&self) {
        if let Some(rates) = &self.rates {
            rates.retain_recent();
            rates.shrink_to_fit();
        }
    }
}

/// A call that counts as open, until the value is dropped.
#[derive(Debug)]
pub(super) struct OpenCall {
    open: Arc<Mutex<HashMap<Party, usize>>>,
    caller: CallerKey,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        for party in self.caller.parties() {
            if let Some(calls) = open.get_mut(&party) {
                *calls -= 1;
                if *calls == 0 {
                    open.remove(&party);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;

    use super::*;

    fn limited(calls_per_second: u32, open_calls: u32) -> (CallersLimited<FakeRelativeClock>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        let limits = CallerLimits {
            calls_per_second: NonZeroU32::new(calls_per_second),
            open_calls: NonZeroU32::new(open_calls),
        };
        (CallersLimited::new(limits, clock.clone()), clock)
    }

    #[test]
    fn a_caller_that_calls_too_often_is_told_when_to_come_back_and_others_are_not_held_up() {
        let (limits, clock) = limited(10, 0);
        let greedy = CallerKey::new(1, Some(b"agent"));
        assert_eq!((0..20).filter(|_| limits.admit(greedy).is_ok()).count(), 10);
        let TooMany { limit, wait } = limits.admit(greedy).expect_err("too many");
        assert_eq!((limit, wait), ("calls_per_second", Duration::from_millis(100)));
        assert!(limits.admit(CallerKey::new(2, Some(b"agent"))).is_err(), "the agent on another connection");
        assert!(limits.admit(CallerKey::new(1, Some(b"another"))).is_err(), "the connection by another name");
        assert!(limits.admit(CallerKey::new(2, Some(b"another"))).is_ok());
        clock.advance(wait);
        assert!(limits.admit(greedy).is_ok());
    }

    #[test]
    fn a_caller_has_so_many_calls_open_and_one_more_when_one_has_ended() {
        let (limits, _) = limited(0, 2);
        let caller = CallerKey::new(1, None);
        let first = limits.admit(caller).expect("the first");
        let _second = limits.admit(caller).expect("the second");
        assert_eq!(limits.admit(caller).expect_err("too many").limit, "open_calls");
        assert!(limits.admit(CallerKey::new(2, None)).is_ok());
        drop(first);
        assert!(limits.admit(caller).is_ok());
    }

    #[test]
    fn callers_who_have_gone_are_forgotten() {
        let (limits, clock) = limited(10, 2);
        for number in 0..1_000_u64 {
            limits.admit(CallerKey::new(number, Some(&number.to_be_bytes()))).expect("the first");
        }
        clock.advance(Duration::from_secs(2));
        limits.tidy();
        assert_eq!(limits.rates.as_ref().map(RateLimiter::len), Some(0));
        assert!(limits.open.lock().is_empty());
    }
}
