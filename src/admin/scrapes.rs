//! Scrapes: one text of all metrics for all who wait for one. A text takes a worker that calls wait for, so after each
//! there is a pause of nine times as long: however many ask, texts take a tenth of one processor at most. Who asks has a
//! text that was begun after that, and so waits for one pause and one text at most, whoever else asks.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::telemetry::meter::Exposition;

const PAUSES: u32 = 9;

/// See the module.
#[derive(Debug)]
pub(super) struct Scrapes {
    metrics: Exposition,
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    scrape: Option<Arc<Scrape>>,
    /// The time at which the next text may be made.
    next: Instant,
}

/// The values of one moment.
#[derive(Debug)]
pub(super) struct Scrape {
    begun: Instant,
    /// The values as text, or why they cannot be written.
    pub(super) text: Result<Bytes, String>,
}

impl Scrapes {
    pub(super) fn new(metrics: Exposition) -> Self {
        Self { metrics, last: Mutex::new(Last { scrape: None, next: Instant::now() }) }
    }

    /// The values of now or of a moment later.
    pub(super) async fn scrape(&self) -> Arc<Scrape> {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(scrape) = last.scrape.as_ref().filter(|scrape| scrape.begun >= asked) {
            return scrape.clone();
        }
        sleep_until(last.next).await;
        let begun = Instant::now();
        let text = self.metrics.text().map(Bytes::from).map_err(|error| error.to_string());
        let scrape = Arc::new(Scrape { begun, text });
        *last = Last { scrape: Some(scrape.clone()), next: Instant::now() + begun.elapsed() * PAUSES };
        scrape
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_have_one_text_and_who_asks_later_has_a_later_one() {
        let scrapes = Scrapes::new(Exposition::default());
        scrapes.last.lock().await.next = Instant::now() + Duration::from_secs(1);
        let first = join_all((0..20).map(|_| scrapes.scrape())).await;
        assert!(first.iter().all(|scrape| Arc::ptr_eq(scrape, &first[0])));
        tokio::time::advance(Duration::from_millis(1)).await;
        let later = scrapes.scrape().await;
        assert!(!Arc::ptr_eq(&later, &first[0]) && later.text.is_ok());
    }
}
