//! The guard against streams that stall. An answer that its peer does not take holds memory, and hyper waits for the
//! peer without a bound: so each stream's task is looked at whenever it waits.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

/// Time that a stream may have something to send that its peer does not take.
const PROGRESS_WAIT_MAX: Duration = Duration::from_mins(1);

/// The progress of one stream. The stream's body reports it; the stream's task reads it.
#[derive(Debug, Default)]
pub(super) struct Sending {
    parts: AtomicU64,
    /// Whether the body has handed a part over and was not asked for another one since.
    waits_for_peer: AtomicBool,
}

impl Sending {
    /// Takes note that the body is asked for a part: the parts before were taken.
    pub(super) fn asked(&self) {
        self.waits_for_peer.store(false, Ordering::Relaxed);
    }

    /// Takes note that the body has handed over a part.
    pub(super) fn handed_over(&self) {
        self.parts.fetch_add(1, Ordering::Relaxed);
        self.waits_for_peer.store(true, Ordering::Relaxed);
    }

    /// The number of the part that waits for the peer to take it.
    fn waiting(&self) -> Option<u64> {
        self.waits_for_peer.load(Ordering::Relaxed).then(|| self.parts.load(Ordering::Relaxed))
    }
}

/// Runs a connection's streams. hyper makes a call's task right after it has begun the call, so that the value that was
/// left here last belongs to the stream.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamTasks(Arc<Mutex<Option<Arc<Sending>>>>);

impl StreamTasks {
    /// Begins a stream.
    pub(super) fn begin(&self) -> Arc<Sending> {
        let sending = Arc::new(Sending::default());
        *self.0.lock() = Some(sending.clone());
        sending
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamTasks {
    fn execute(&self, task: F) {
        let sending = self.0.lock().take();
        let watched = StallGuard { task, sending: sending.unwrap_or_default(), stalled: None };
        TokioExecutor::new().execute(watched);
    }
}

pin_project! {
    #[project = Projected]
    /// A stream's task, which ends when its peer takes nothing for too long. hyper then resets the stream.
    struct StallGuard<F> {
        #[pin]
        task: F,
        sending: Arc<Sending>,
        // The part that waits, and the end of its wait.
        stalled: Option<(u64, Pin<Box<Sleep>>)>,
    }
}

impl<F: Future<Output = ()>> Future for StallGuard<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Projected { task, sending, stalled } = self.project();
        if task.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(part) = sending.waiting() else {
            *stalled = None;
            return Poll::Pending;
        };
        if stalled.as_ref().is_none_or(|(waiting, _)| *waiting != part) {
            *stalled = Some((part, Box::pin(sleep(PROGRESS_WAIT_MAX))));
        }
        let (_, until) = stalled.as_mut().expect("it was set above");
        ready!(until.as_mut().poll(cx));
        tracing::debug!("a stream is reset: its peer does not take it");
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};

    use tokio::time::{Instant, timeout};

    use super::*;

    fn watched<F: Future<Output = ()>>(task: F) -> (Arc<Sending>, StallGuard<F>) {
        let sending = Arc::new(Sending::default());
        (sending.clone(), StallGuard { task, sending, stalled: None })
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_whose_peer_takes_nothing_ends_after_a_minute() {
        let begun = Instant::now();
        let (sending, task) = watched(pending());
        sending.handed_over();
        task.await;
        assert_eq!(begun.elapsed(), PROGRESS_WAIT_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_gets_on_or_has_nothing_to_send_stays() {
        let day = Duration::from_hours(24);
        let (_idle, task) = watched(pending());
        assert!(timeout(day, task).await.is_err(), "nothing is to be sent");
        let slow = Arc::new(Sending::default());
        let mut ticks = tokio::time::interval(PROGRESS_WAIT_MAX / 2);
        let task = poll_fn({
            let slow = slow.clone();
            move |cx| {
                while ticks.poll_tick(cx).is_ready() {
                    slow.asked();
                    slow.handed_over();
                }
                Poll::Pending
            }
        });
        let task = StallGuard { task, sending: slow, stalled: None };
        assert!(timeout(day, task).await.is_err(), "each part is taken in time");
    }
}
