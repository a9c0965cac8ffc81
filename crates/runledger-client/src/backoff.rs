//! Exponential back-off between attempts.

use std::time::Duration;

/// The wait before the next attempt.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    pub(crate) const MAX: Duration = Duration::from_secs(5);

    pub(crate) fn next_wait(&mut self) -> Duration {
        let wait = Self::FIRST.saturating_mul(1 << self.attempts.min(10)).min(Self::MAX);
        self.attempts += 1;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_between_attempts_grow_and_stay_bounded() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..100).map(|_| backoff.next_wait()).collect();
        assert_eq!(waits[..3], [100, 200, 400].map(Duration::from_millis));
        assert!(waits.is_sorted() && waits[99] == Backoff::MAX);
    }
}
