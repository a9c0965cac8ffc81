//! How many signatures are verified at once. One costs more than a whole call, and anybody can send one that is wrong:
//! half of the processors verify at most, so that a flood of new tokens leaves the other half to callers that are known.

use tokio::sync::{Semaphore, SemaphorePermit};

use super::JwtRefused;

/// The most tokens that wait for their turn. At 75 µs each, the last waits for less than 0.1 s.
const WAITING_MAX: usize = 1_024;

#[derive(Debug)]
pub(super) struct Turns {
    verifying: Semaphore,
    places: Semaphore,
}

/// The right to verify one signature, until it is dropped.
pub(super) struct Turn<'a> {
    _verifying: SemaphorePermit<'a>,
    _place: SemaphorePermit<'a>,
}

impl Turns {
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let at_once = (processors / 2).max(1);
        Self { verifying: Semaphore::new(at_once), places: Semaphore::new(at_once + WAITING_MAX) }
    }

    /// Waits for a turn, in the order in which callers came; refuses where too many wait.
    pub(super) async fn take(&self) -> Result<Turn<'_>, JwtRefused> {
        let place = self.places.try_acquire().map_err(|_| JwtRefused::Busy)?;
        let verifying = self.verifying.acquire().await.map_err(|_| JwtRefused::Busy)?;
        Ok(Turn { _verifying: verifying, _place: place })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn few_verify_at_once_and_the_others_wait_or_are_refused() {
        let turns = Turns { verifying: Semaphore::new(1), places: Semaphore::new(2) };
        let first = turns.take().await.unwrap();
        let mut second = Box::pin(turns.take());
        assert!((&mut second).now_or_never().is_none(), "it waits");
        assert_eq!(turns.take().await.err(), Some(JwtRefused::Busy));
        drop(first);
        assert!(second.await.is_ok());
        assert!(turns.take().await.is_ok());
    }
}
