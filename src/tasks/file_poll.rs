//! The looks at files that may change: in an interval, and at once when the operator asks.
//!
//! They are polled. A watch on a file of a Kubernetes secret sees nothing, because a link far above it is replaced; the
//! kubelet brings a change after up to a minute anyway.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// See the module. Each clone sees every ask.
#[derive(Clone, Debug)]
pub struct Looks {
    every: Duration,
    asked: watch::Receiver<u64>,
}

/// Asks for looks.
#[derive(Debug)]
pub struct Ask(watch::Sender<u64>);

impl Looks {
    /// Looks in this interval.
    #[must_use]
    pub fn every(every: Duration) -> (Self, Ask) {
        let (ask, asked) = watch::channel(0);
        (Self { every, asked }, Ask(ask))
    }

    /// Waits until the next look is due.
    pub async fn next(&mut self) {
        let closed_too = async {
            if self.asked.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let _asked_or_due = timeout(self.every, closed_too).await;
    }
}

impl Ask {
    /// Has everybody look now.
    pub fn now(&self) {
        self.0.send_modify(|asks| *asks += 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_is_due_after_the_interval_or_when_it_is_asked_for() {
        let (mut looks, ask) = Looks::every(Duration::from_secs(10));
        let mut others = looks.clone();
        let began = Instant::now();
        looks.next().await;
        assert_eq!(began.elapsed(), Duration::from_secs(10));
        ask.now();
        assert!(looks.next().now_or_never().is_some() && others.next().now_or_never().is_some());
        assert!(looks.next().now_or_never().is_none(), "one ask is one look");
        drop(ask);
        looks.next().await;
        assert_eq!(began.elapsed(), Duration::from_secs(20));
    }
}
