//! Lists and counts of runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::Message as _;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::{ANSWER_BYTES_MAX, Authority, Call, unlisted};
use crate::domain::{Filter, LabelValue, Namespace, Priority, Status as RunStatus};
use crate::engine::ANSWER_WAIT_MAX;
use crate::fairness::{self, CallerKey, spread};
use crate::store::StoreError;
use crate::store::attached::{self, Attached};
use crate::store::query::{
    ClaimPlace, CountBy, Order, Place, READY_RUNS_MAX, Reach, ReadyOf, RunCounts, RunPage, RunQuery,
};
use crate::wire::from_domain::{FromDomain as _, IntoMessage as _};
use crate::wire::page_token::PAGE_TOKEN_BYTES_MAX;
use crate::wire::problem::{self, Problem};
use crate::wire::{page_token, query};
use runledger_proto::v1;

/// Phases that a count names.
const PHASES_LISTED_MAX: usize = 1_000;

/// Priorities that a short count of a queue looks at, by four statements each.
const PRIORITIES_OF_A_SHORT_READ: u32 = 8;

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
        let (seals, namespace) = (&self.seals, &caller.namespace);
        let token = request.page_token.clone();
        let query::RunList { filter, page_size, full } = query::list_runs(request).map_err(problem::invalid)?;
        let after = match token.as_str() {
            "" => None,
            token => Some(page_token::place(token, seals, namespace, &filter).map_err(problem::page_token_invalid)?),
        };
        let read = |reach: Reach| {
            let query = RunQuery {
                namespace: namespace.clone(),
                filter: filter.clone(),
                order: Order::NewestFirst,
                after: after.clone(),
                limit: page_size,
                bytes_max: reach.page_bytes_max(),
                metadata: full,
                reach,
            };
            async move {
                let page = self.store.list(&query).await.map_err(|error| unlisted("ListRuns", namespace, &error))?;
                let is_whole = page.next.is_none() || page.runs.len() >= page_size;
                Ok(if is_whole { Reached::Whole(page) } else { Reached::Part(page) })
            }
        };
        let (page, _turn) = self.turns.read(key, read).await?;
        let (runs, next) = fitting(page, ANSWER_BYTES_MAX.saturating_sub(PAGE_TOKEN_BYTES_MAX + 8)).await;
        let next_page_token =
            next.map(|place| page_token::after_place(&place, seals, namespace, &filter)).unwrap_or_default();
        Ok(v1::ListRunsResponse { runs, next_page_token })
    }

    /// Answers a `CountRuns`: a count for each status that the filter lets through, also where no run has it.
    ///
    /// # Errors
    ///
    /// The runs cannot be read.
    pub async fn count_runs(&self, call: Call<v1::CountRunsRequest>) -> Result<v1::CountRunsResponse, Problem> {
        let Call { caller, key, message: request, .. } = call;
        let (filter, by) = query::count_runs(request).map_err(problem::invalid)?;
        let namespace = &caller.namespace;
        let counted = &filter;
        let count = |reach: Reach| async move {
            let unlisted = |error| unlisted("CountRuns", namespace, &error);
            let is_of_kinds = by.suspension && counted.suspended != Some(false);
            // The runs that are suspended are found by an index of their own, however many others there are.
            let suspended = &Filter { suspended: Some(true), ..counted.clone() };
            let kinds = async {
                let kinds = CountBy { suspension: true, phase: false };
                if is_of_kinds {
                    self.store.count(namespace, suspended, None, kinds, reach).await.map(Some)
                } else {
                    Ok(None)
                }
            };
            let all = self.store.count(namespace, counted, None, CountBy { suspension: false, ..by }, reach);
            let (mut counted, kinds) = tokio::try_join!(all, kinds).map_err(unlisted)?;
            if let Some(kinds) = kinds {
                counted.suspensions = kinds.suspensions;
                counted.truncated |= kinds.truncated;
            }
            Ok(if counted.truncated { Reached::Part(counted) } else { Reached::Whole(counted) })
        };
        let (counted, _turn) = self.turns.read(key, count).await?;
        let let_through = |status: &RunStatus| filter.statuses.is_empty() || filter.statuses.contains(status);
        let counts = RunStatus::ALL.into_iter().filter(let_through).map(|status| v1::StatusCount {
            status: v1::RunStatus::from_domain(status).into(),
            count: counted.counts.get(&status).copied().unwrap_or(0),
        });
        let other_phases = counted.phases.values().skip(PHASES_LISTED_MAX).sum();
        let phases = counted.phases.into_iter().take(PHASES_LISTED_MAX);
        let phases = phases.map(|(phase, count)| v1::PhaseCount { phase, count }).collect();
        let other_suspensions = counted.suspensions.values().skip(PHASES_LISTED_MAX).sum();
        let suspensions = counted.suspensions.into_iter().take(PHASES_LISTED_MAX);
        let suspensions = suspensions.map(|(kind, count)| v1::SuspensionCount { kind, count }).collect();
        let (counts, truncated) = (counts.collect(), counted.truncated);
        Ok(v1::CountRunsResponse { counts, truncated, phases, other_phases, suspensions, other_suspensions })
    }

    /// The number of runs that wait for a claim, have a value of a label, and come before a place.
    pub(super) async fn count_waiting(
        &self,
        caller: CallerKey,
        namespace: &Namespace,
        value: &LabelValue,
        before: &ClaimPlace,
    ) -> Result<RunCounts, Problem> {
        let unlisted = |error| unlisted("GetRun", namespace, &error);
        let count = |reach: Reach| async move {
            let mut counted = RunCounts::default();
            let (mut below, mut walked) = (Priority::MAX + 1, 0);
            let last = before.priority().unwrap_or_default();
            loop {
                let found = self.store.next_priority(namespace, below).await.map_err(unlisted)?;
                let plain = Some(Priority::NONE).filter(|_| below > 0);
                let Some(priority) = found.max(plain).filter(|priority| *priority >= last) else { break };
                let before = Some(&before.within).filter(|_| priority == last);
                let part = self.count_of_one_priority((namespace, value), (priority, before), reach).await;
                let part = part.map_err(unlisted)?;
                for (status, count) in part.counts {
                    *counted.counts.entry(status).or_default() += count;
                }
                walked += 1;
                // A short read looks at a few priorities: most queues have no more.
                counted.truncated |= part.truncated || (reach == Reach::Short && walked == PRIORITIES_OF_A_SHORT_READ);
                below = priority.get();
                // A short read that is not the whole is made again.
                if counted.truncated {
                    break;
                }
            }
            Ok(if counted.truncated { Reached::Part(counted) } else { Reached::Whole(counted) })
        };
        let (counted, _turn) = self.turns.read(caller, count).await?;
        Ok(counted)
    }

    async fn count_of_one_priority(
        &self,
        (namespace, value): (&Namespace, &LabelValue),
        (priority, before): (Priority, Option<&Place>),
        reach: Reach,
    ) -> Result<RunCounts, StoreError> {
        let filter = &Filter {
            statuses: [RunStatus::Pending].into(),
            labels: [(value.label.clone(), value.value.clone())].into(),
            priority: Some(priority),
            ..Filter::default()
        };
        let mut counted = self.store.count(namespace, filter, before, CountBy::STATUS, reach).await?;
        let is_before = |place: &Place| before.is_none_or(|before| place < before);
        for not_begun in [true, false] {
            let (mut after, mut looked_at) = (None, 0);
            while reach == Reach::Long || !counted.truncated {
                let of = ReadyOf { not_begun, priority };
                let page = self.store.ready(namespace, of, after.as_ref(), READY_RUNS_MAX).await?;
                looked_at += page.runs.len();
                let ready = page.runs.iter().take_while(|run| is_before(&Place::of(run)));
                let ready = ready.filter(|run| run.labels.get(&value.label) == Some(&value.value)).count();
                *counted.counts.entry(RunStatus::Running).or_default() += ready as u64;
                after = page.next.filter(is_before);
                if after.is_none() {
                    break;
                }
                if looked_at >= reach.ready_runs_max() {
                    counted.truncated = true;
                    break;
                }
            }
        }
        Ok(counted)
    }
}

/// The turns of large reads, two at a time: lists, counts and searches for a place in a queue, which walk along the
/// store's indexes, pages of events, and what stands beside a run. Of the three sessions or connections that read, as stores have them by
/// default, one is left for the reads of single runs.
///
/// Nobody knows before how long such a read is. So each begins as a short one, and one that was not the whole by that
/// waits for the other turn, which is that of all long reads: a short list does not wait for a long one.
#[derive(Debug)]
pub struct Turns {
    reads: Arc<fairness::Turns>,
    /// Redactions that are committed at a time: one, since all commits of a shard wait while a history is written anew.
    redactions: Arc<fairness::Turns>,
    /// The calls that got no turn.
    refused: AtomicU64,
}

/// A read of the store.
pub(super) enum Reached<T> {
    /// Everything that was asked for.
    Whole(T),
    /// What the read reached.
    Part(T),
}

/// Large reads at a time.
const LARGE_READS_MAX: usize = 2;

impl Default for Turns {
    fn default() -> Self {
        let [reads, redactions] = [LARGE_READS_MAX, 1].map(fairness::Turns::new);
        Self { reads, redactions, refused: AtomicU64::new(0) }
    }
}

impl Turns {
    /// Makes a read in its turn: a short one, and in another turn a long one from the beginning if the short one was a
    /// part. Nothing is kept between the two, since many callers may wait for a long turn. The turn lasts for as long as
    /// the second value, and as the work of the store does, also where the caller goes away.
    pub(super) async fn read<T, F>(
        &self,
        caller: CallerKey,
        read: impl Fn(Reach) -> F,
    ) -> Result<(T, Attached), Problem>
    where
        F: Future<Output = Result<Reached<T>, Problem>>,
    {
        let until = Instant::now() + TURN_WAIT_MAX;
        let turn = self.turn(self.reads.turn(caller, TURN_WAIT_MAX).await)?;
        if let Reached::Whole(whole) = attached::with(turn.clone(), read(Reach::Short)).await? {
            return Ok((whole, turn));
        }
        drop(turn);
        let wait_max = until.saturating_duration_since(Instant::now());
        let turn = self.reads.long_turn(caller, wait_max).await.map_err(|_waited| TURN_WAIT_MAX);
        let turn = self.turn(turn)?;
        let (Reached::Whole(read) | Reached::Part(read)) = attached::with(turn.clone(), read(Reach::Long)).await?;
        Ok((read, turn))
    }

    /// A turn for a short read of few rows.
    pub(super) async fn short(&self, caller: CallerKey) -> Result<Attached, Problem> {
        self.turn(self.reads.turn(caller, TURN_WAIT_MAX).await)
    }

    /// The turn for the commit of a redaction. It is waited for as an answer is, since the one before may take seconds.
    pub(super) async fn redaction(&self, caller: CallerKey) -> Result<Attached, Problem> {
        self.turn(self.redactions.turn(caller, ANSWER_WAIT_MAX).await)
    }

    fn turn(&self, turn: Result<fairness::Turn, Duration>) -> Result<Attached, Problem> {
        let refused = |waited| {
            let nth = self.refused.fetch_add(1, Ordering::Relaxed);
            problem::overloaded_for(spread(waited, nth))
        };
        Ok(Arc::new(turn.map_err(refused)?))
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
        let shown: v1::Run = run.into_message();
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
    use std::collections::HashSet;
    use std::future::pending;
    use std::sync::Mutex;

    use futures_util::FutureExt as _;

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
            archived_at: None,
            purged_at: None,
            agent_id: None,
            bindings: crate::domain::Bindings::default(),
            ending: crate::domain::Ending::default(),
            supervision: crate::domain::Supervision::default(),
            refinements: None,
            labels: [("k".into(), "v".repeat(200))].into(),
            metadata: Metadata::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_lasts_until_the_work_has_ended_that_its_caller_went_away_from() {
        let turns = Turns::default();
        let connection = |number| CallerKey::new(number, None);
        let working = Mutex::new(Vec::new());
        for number in 1..=2 {
            let abandoned = turns.read(connection(number), |_reach| async {
                working.lock().unwrap().extend(attached::current());
                pending::<Result<Reached<()>, Problem>>().await
            });
            assert!(abandoned.now_or_never().is_none());
        }
        let ready = async || turns.read(connection(3), async |_reach| Ok(Reached::Whole(()))).await;
        let waits: HashSet<String> = [ready().await, ready().await].map(|refused| format!("{refused:?}")).into();
        assert!(waits.iter().all(|refused| refused.contains("OVERLOADED")), "{waits:?}");
        assert_eq!(waits.len(), 2, "callers that are refused together come back apart");
        working.lock().unwrap().pop();
        ready().await.expect("one of the two has ended");
    }

    #[tokio::test]
    async fn a_page_that_does_not_fit_ends_early_and_goes_on_behind_its_last_run() {
        let end = Place::of(&run(100));
        let page = || RunPage { runs: (0..9).map(run).collect(), next: Some(end.clone()) };
        let whole = v1::ListRunsResponse {
            runs: page().runs.iter().map(v1::Run::from_domain).collect(),
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
