//! The uptime of an embedded store: one process has the data, so it knows all interruptions itself, and nothing is
//! written down. A restart, however short, gives each lease one whole ttl. Nobody reads the table `uptime`: it is
//! written only to try whether the store writes again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::domain::Time;
use crate::store::StoreError;
use crate::store::uptime::{Ended, LONGEST, Seen, Uptime};

/// The store's clock, and the uptime by it.
pub(super) struct UptimeClock {
    clock: Arc<dyn Clock>,
    uptime: Mutex<Uptime>,
}

impl UptimeClock {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let uptime = Mutex::new(Uptime::new(clock.now(), LONGEST));
        Self { clock, uptime }
    }

    pub(super) fn tick(&self) {
        let mut uptime = self.held();
        uptime.tick(self.clock.now());
    }

    pub(super) fn waited(&self, queued: Duration) {
        let mut uptime = self.held();
        uptime.waited(i64::try_from(queued.as_micros()).unwrap_or(LONGEST), self.clock.now());
    }

    pub(super) fn seen(&self) -> Seen {
        let uptime = self.held();
        uptime.seen(self.clock.now())
    }

    pub(super) fn is_failing(&self) -> bool {
        self.held().is_failing()
    }

    /// Makes a renewal, or tries whether one could be made.
    pub(super) async fn making<T>(
        &self,
        renewal: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let number = {
            let mut uptime = self.held();
            uptime.asked(self.clock.now())
        };
        let mut asked = Asked { clock: self, number, ended: Ended::Unknown };
        let made = renewal.await;
        asked.ended = Ended::of(&made);
        made
    }

    /// The clock is read while this is held, so that no time is before one that was told earlier.
    fn held(&self) -> MutexGuard<'_, Uptime> {
        self.uptime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for UptimeClock {
    fn now(&self) -> Time {
        self.clock.now()
    }
}

/// A renewal or a stamp on its way. Notes its end when it is dropped, even by a caller that does not wait for it.
struct Asked<'a> {
    clock: &'a UptimeClock,
    number: u64,
    ended: Ended,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut uptime = self.clock.held();
        uptime.answered(self.number, self.clock.clock.now(), self.ended);
    }
}
