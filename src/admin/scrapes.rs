//! Scrapes, one at a time. The text of all metrics takes a worker that calls wait for: so after each there is a pause of
//! nine times as long, and however many ask, they take a tenth of one processor at most.

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::telemetry::meter::Exposition;

const PAUSES: u32 = 9;

/// See the module.
#[derive(Debug)]
pub(super) struct Scrapes {
    metrics: Exposition,
    /// The time at which the next text may be made.
    next: Mutex<Instant>,
}

impl Scrapes {
    pub(super) fn of(metrics: Exposition) -> Self {
        Self { metrics, next: Mutex::new(Instant::now()) }
    }

    /// The values of now, as text.
    pub(super) async fn text(&self) -> Result<String, impl std::error::Error + use<>> {
        let mut next = self.next.lock().await;
        sleep_until(*next).await;
        let begun = Instant::now();
        let text = self.metrics.text();
        *next = Instant::now() + begun.elapsed() * PAUSES;
        text
    }
}
