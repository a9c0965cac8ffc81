//! The trust in a client that is connected. It ends when the client's chain verifies no more.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

use super::files::Digest;
use super::offer::{Offer, validity};
use crate::clock::Clock;
use crate::domain::Time;
use crate::telemetry::chain;

/// The longest time between two looks at the clock: timers do not know of a clock that was set, nor of a time of sleep.
const LOOK_INTERVAL: Duration = Duration::from_mins(1);

/// See the module.
pub struct Guard {
    chain: Vec<CertificateDer<'static>>,
    /// The times from which one of the chain's certificates holds no more, in order. A chain may have certificates that
    /// nothing rests on, so that their end need not be the chain's.
    ends: Vec<Time>,
    verified_at: Time,
    verified_by: Option<Digest>,
    offer: watch::Receiver<Arc<Offer>>,
    turns: Arc<Semaphore>,
    clock: Arc<dyn Clock>,
}

impl Guard {
    /// The guard of a chain that an offer has verified after this time. `offer` is not newer than that offer.
    pub(super) fn new(
        chain: Vec<CertificateDer<'static>>,
        verified_at: Time,
        verified_by: &Offer,
        offer: watch::Receiver<Arc<Offer>>,
        turns: Arc<Semaphore>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        // A certificate holds through the second of its end.
        let mut ends: Vec<_> = chain.iter().map(|it| validity(it).1.plus_ms(1_000)).collect();
        ends.sort_unstable();
        let verified_by = verified_by.trust.as_ref().map(|trust| trust.digest);
        Self { chain, ends, verified_at, verified_by, offer, turns, clock }
    }

    /// Ends once the chain does not verify any more, and says why.
    pub async fn until_withdrawn(mut self) -> String {
        loop {
            let look = sleep(self.wait());
            tokio::select! {
                // Without a sender, the offer stays.
                Ok(()) = self.offer.changed() => {}
                () = look => {}
            }
            let offer = self.offer.borrow_and_update().clone();
            let Some(trust) = &offer.trust else { continue };
            let now = self.clock.now();
            let has_ended = self.ends.iter().any(|end| *end > self.verified_at && *end <= now);
            if self.verified_by == Some(trust.digest) && !has_ended {
                continue;
            }
            // Thousands of chains may be due together, and calls are not to wait for all of them.
            let _turn = self.turns.acquire().await.expect("never closed");
            if let Err(error) = trust.verify(&self.chain) {
                return chain(&error);
            }
            (self.verified_at, self.verified_by) = (now, Some(trust.digest));
        }
    }

    /// The time to the next look.
    fn wait(&self) -> Duration {
        let now = self.clock.now();
        let next = self.ends.iter().find(|end| **end > now);
        next.map_or(LOOK_INTERVAL, |end| {
            let micros = u64::try_from(end.micros() - now.micros()).unwrap_or(0);
            Duration::from_micros(micros).min(LOOK_INTERVAL)
        })
    }
}
