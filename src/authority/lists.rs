//! Lists and counts of runs.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use tokio::task::yield_now;

use super::{ANSWER_BYTES_MAX, Authority, Call, unlisted};
use crate::domain::{Filter, LabelValue, Namespace, Status as RunStatus};
use crate::share::{self, CallerKey, Turn};
use crate::store::PAGE_BYTES_MAX;
use crate::store::query::{COUNT_RUNS_MAX, Order, Place, READY_RUNS_MAX, RunCounts, RunPage, RunQuery};
use crate::wire::page_token::PAGE_TOKEN_BYTES_MAX;
use crate::wire::problem::{self, Problem};
use crate::wire::{page_token, query};
use runledger_proto::v1;

/// Time that a call waits for its turn. A call that gets no turn by then is refused as too much.
const TURN_WAIT_MAX: Duration = Duration::from_secs(2);

impl Authority {
    /// Answers a `ListRuns`.
    ///
    /// # Errors
    ///
    /// The runs cannot be read, or the page token is not one of this filter's.
    pub async fn list_runs(&self, call: Call<v1::ListRunsRequest>) -> Result<v1::ListRunsResponse, Problem> {
        let Call { caller, key, message: request, .. } = call;
        let (ledger, namespace) = (self.store.ledger().id, &caller.namespace);
        let token = request.page_token.clone();
        let query::RunList { filter, page_size, full } = query::list_runs(request).map_err(problem::invalid)?;
        let after = match token.as_str() {
            "" => None,
            token => Some(page_token::place(token, ledger, namespace, &filter).map_err(problem::page_token_invalid)?),
        };
        let asked = RunQuery {
            namespace: namespace.clone(),
            filter,
            order: Order::NewestFirst,
            after,
            limit: page_size,
            bytes_max: PAGE_BYTES_MAX,
            metadata: full,
        };
        let _turn = self.turns.of_walk(key).await?;
        let page = self.store.list(&asked).await.map_err(|error| unlisted("ListRuns", namespace, &error))?;
        let (runs, next) = fitting(page, ANSWER_BYTES_MAX.saturating_sub(PAGE_TOKEN_BYTES_MAX + 8)).await;
        let next_page_token =
            next.map(|place| page_token::after_place(&place, ledger, namespace, &asked.filter)).unwrap_or_default();
        Ok(v1::ListRunsResponse { runs, next_page_token })
    }

    /// Answers a `CountRuns`: a count for each status that the filter lets through, also where no run has it.
    ///
    /// # Errors
    ///
    /// The runs cannot be read.
    pub async fn count_runs(&self, call: Call<v1::CountRunsRequest>) -> Result<v1::CountRunsResponse, Problem> {
        let Call { caller, key, message: request, .. } = call;
        let filter = query::count_runs(request).map_err(problem::invalid)?;
        let namespace = &caller.namespace;
        let _turn = self.turns.of_walk(key).await?;
        let counted = self
            .store
            .count(namespace, &filter, None)
            .await
            .map_err(|error| unlisted("CountRuns", namespace, &error))?;
        let let_through = |status: &RunStatus| filter.statuses.is_empty() || filter.statuses.contains(status);
        let counts = RunStatus::ALL.into_iter().filter(let_through).map(|status| v1::StatusCount {
            status: v1::RunStatus::from(status).into(),
            count: counted.counts.get(&status).copied().unwrap_or(0),
        });
        Ok(v1::CountRunsResponse { counts: counts.collect(), truncated: counted.truncated })
    }

    /// The number of runs that wait for a claim, have a value of a label, and come before a place.
    pub(super) async fn count_waiting(
        &self,
        caller: CallerKey,
        namespace: &Namespace,
        value: &LabelValue,
        before: &Place,
    ) -> Result<RunCounts, Problem> {
        let filter = Filter {
            statuses: [RunStatus::Pending].into(),
            labels: [(value.label.clone(), value.value.clone())].into(),
            ..Filter::default()
        };
        let unlisted = |error| unlisted("GetRun", namespace, &error);
        let _turn = self.turns.of_walk(caller).await?;
        let mut counted = self.store.count(namespace, &filter, Some(before)).await.map_err(unlisted)?;
        let (mut after, mut looked_at) = (None, 0);
        loop {
            let page = self.store.ready(namespace, after.as_ref(), READY_RUNS_MAX).await.map_err(unlisted)?;
            looked_at += page.runs.len();
            let ready = page.runs.iter().take_while(|run| Place::of(run) < *before);
            let ready = ready.filter(|run| run.labels.get(&value.label) == Some(&value.value)).count();
            *counted.counts.entry(RunStatus::Running).or_default() += ready as u64;
            after = page.next.filter(|next| next < before);
            if after.is_none() {
                return Ok(counted);
            }
            if looked_at >= COUNT_RUNS_MAX {
                counted.truncated = true;
                return Ok(counted);
            }
        }
    }
}

/// The turns of large reads: two walks along the store's indexes at a time, which are lists, counts and searches for a
/// place in a queue, and two pages of events, so that connections are left for all other calls. A caller has one of the
/// two, so that a short list need not wait for the long ones of another caller.
#[derive(Debug)]
pub struct Turns {
    walks: Arc<share::Turns>,
    events: Arc<share::Turns>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { walks: share::Turns::new(2), events: share::Turns::new(2) }
    }
}

impl Turns {
    /// Waits for the turn of a walk.
    async fn of_walk(&self, caller: CallerKey) -> Result<Turn, Problem> {
        self.walks.turn(caller, TURN_WAIT_MAX).await.map_err(problem::overloaded_for)
    }

    /// Waits for the turn of a page of events.
    pub(super) async fn of_events(&self, caller: CallerKey) -> Result<Turn, Problem> {
        self.events.turn(caller, TURN_WAIT_MAX).await.map_err(problem::overloaded_for)
    }
}

/// Yields the processor between the parts of a large answer: an answer that is made in one go takes as long as tens of
/// calls.
#[derive(Debug, Default)]
pub(super) struct YieldEvery {
    bytes: usize,
}

/// Bytes of an answer that are made in one go.
const YIELD_BYTES: usize = 64 * 1024;

impl YieldEvery {
    /// Counts bytes that were made, and yields where it is time.
    pub(super) async fn made(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes > YIELD_BYTES {
            self.bytes = 0;
            yield_now().await;
        }
    }
}

/// The runs of a page that fit into an answer, one at least, and the place to go on from.
async fn fitting(page: RunPage, bytes_max: usize) -> (Vec<v1::Run>, Option<Place>) {
    let (mut bytes, mut yielding) = (0, YieldEvery::default());
    let mut runs: Vec<v1::Run> = Vec::with_capacity(page.runs.len());
    for (index, run) in page.runs.iter().enumerate() {
        let shown: v1::Run = run.into();
        let encoded = shown.encoded_len();
        yielding.made(encoded).await;
        // The field's number and the length stand in front of each run.
        bytes += 1 + prost::length_delimiter_len(encoded) + encoded;
        if bytes > bytes_max && index > 0 {
            return (runs, Some(Place::of(&page.runs[index - 1])));
        }
        runs.push(shown);
    }
    (runs, page.next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Metadata, Run, Time};

    fn run(micros: i64) -> Run {
        let at = Time::from_micros(micros);
        Run {
            task_thread_id: "task".into(),
            run_id: format!("run-{micros}").into(),
            namespace: "default".into(),
            status: RunStatus::Running,
            revision: 1.into(),
            started_at: at,
            updated_at: at,
            running_at: Some(at),
            completed_at: None,
            agent_id: None,
            links: crate::domain::Links::default(),
            ending: crate::domain::Ending::default(),
            supervision: crate::domain::Supervision::default(),
            labels: [("k".into(), "v".repeat(200))].into(),
            metadata: Metadata::default(),
        }
    }

    #[tokio::test]
    async fn a_page_that_does_not_fit_ends_early_and_goes_on_behind_its_last_run() {
        let end = Place::of(&run(100));
        let page = || RunPage { runs: (0..9).map(run).collect(), next: Some(end.clone()) };
        let whole = v1::ListRunsResponse {
            runs: page().runs.iter().map(v1::Run::from).collect(),
            next_page_token: String::new(),
        };
        for bytes_max in 0..=whole.encoded_len() {
            let (runs, next) = fitting(page(), bytes_max).await;
            let shown = v1::ListRunsResponse { runs, next_page_token: String::new() };
            assert!(shown.runs.len() == 1 || shown.encoded_len() <= bytes_max);
            let last = shown.runs.len() - 1;
            let expected = if last == 8 { end.clone() } else { Place::of(&page().runs[last]) };
            assert_eq!(next, Some(expected), "{bytes_max}");
        }
        assert_eq!(fitting(page(), whole.encoded_len()).await.0.len(), 9);
        assert_eq!(fitting(RunPage::default(), 0).await, (Vec::new(), None));
    }
}
