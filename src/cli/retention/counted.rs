//! How many runs are due by a retention, as a server's lists say: it is asked for no more pages than are worth it.

use std::time::Duration;

use tokio::time::Instant;

use crate::cli::time::time;
use crate::clock::{Clock as _, SystemClock};
use crate::wire::scalars;
use runledger_client::{Client, Failure};
use runledger_proto::v1;

/// The most that a page holds.
const PAGE_MAX: i32 = 1_000;

/// Pages that are read for each time that runs are kept.
const PAGES_MAX: usize = 20;

/// The runs that are due, and their events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct Counted {
    pub(in crate::cli) runs: u64,
    pub(in crate::cli) events: u64,
    /// There are more: not all were looked at.
    pub(in crate::cli) more: bool,
}

impl Counted {
    /// The number of runs, as a sentence has it.
    pub(in crate::cli) fn said(self) -> String {
        let Self { runs, more, .. } = self;
        let at_least = if more { "at least " } else { "" };
        if runs == 1 { format!("{at_least}1 run is") } else { format!("{at_least}{runs} runs are") }
    }

    pub(in crate::cli) fn and(self, other: Self) -> Self {
        let (runs, events) = (self.runs + other.runs, self.events + other.events);
        Self { runs, events, more: self.more || other.more }
    }
}

/// The runs of the client's namespace that ended in one of these ways, and whose last event is older than a time.
pub(in crate::cli) async fn due(
    client: &mut Client,
    wait: Duration,
    (statuses, keep): (&[v1::RunStatus], Duration),
) -> Result<Counted, Failure> {
    let micros = i64::try_from(keep.as_micros()).unwrap_or(i64::MAX);
    let until = SystemClock.now().plus_micros(micros.saturating_neg());
    // Whose last event is so old was created before it. Lists have the newest first.
    let filter = v1::RunFilter {
        statuses: statuses.iter().map(|status| (*status).into()).collect(),
        archived: v1::ArchivedFilter::Included.into(),
        started_before: Some(scalars::timestamp(until)),
        ..v1::RunFilter::default()
    };
    let view = v1::RunView::Basic.into();
    let mut request =
        v1::ListRunsRequest { filter: Some(filter), page_size: PAGE_MAX, page_token: String::new(), view };
    let mut counted = Counted::default();
    for _page in 0..PAGES_MAX {
        let page = client.ask(&request, Instant::now() + wait).await?;
        for run in &page.runs {
            if time(run.updated_at.as_ref()).is_some_and(|at| at <= until) {
                counted.runs += 1;
                counted.events += run.revision;
            }
        }
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            return Ok(counted);
        }
    }
    Ok(Counted { more: true, ..counted })
}
