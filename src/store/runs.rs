//! The path on which runs are read: as they are, as they were, and many at once.

use async_trait::async_trait;

use super::contents::Beside;
use super::leases::KeptLease;
use super::query::{CountBy, Place, Reach, ReadyOf, RunCounts, RunPage, RunQuery};
use super::retention::Walked;
use super::{OfLedger, StoreError};
use crate::domain::{ContentRow, Filter, LabelValue, Namespace, Priority, Revision, Run, RunId, RunKey, Status, Time};

/// A run as it is, with its lease as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct RunAsKept {
    pub run: Run,
    /// The lease; none where the run keeps none. It may be of an epoch to come, which the run does not have yet.
    pub lease: Option<KeptLease>,
}

impl RunAsKept {
    /// Whether a row of `leases` belongs to a run: only then is the table looked at.
    pub(in crate::store) fn keeps_lease(run: &Run) -> bool {
        run.status == Status::Running && run.supervision.lease.is_some() && !run.is_at_rest()
    }
}

/// One of several runs that were asked for together.
#[derive(Clone, Debug, PartialEq)]
pub enum FoundRun {
    Run(Box<RunAsKept>),
    /// There is no such run.
    Nothing,
    /// The answer was full: the run was not read.
    Left,
}

/// Reads of runs.
#[async_trait]
pub trait Runs: OfLedger {
    /// The run as it is: sees every commit that was acknowledged before the call.
    async fn run(&self, key: &RunKey) -> Result<Option<Run>, StoreError>;

    /// Several runs as they are with their leases, in the order of their keys, each as [`run`](Runs::run) would have
    /// read it at one moment during the call. At least one of the runs is read, and no more once they have so many
    /// bytes.
    ///
    /// # Errors
    ///
    /// The store cannot be read, or one of the runs.
    async fn runs(&self, keys: &[RunKey], bytes_max: usize) -> Result<Vec<FoundRun>, StoreError>;

    /// Runs as they were right after one of their events each; none for a run that has no such event. At most 31 events
    /// are folded for each, from the last keyframe before it.
    async fn runs_at(&self, wanted: &[(RunKey, Revision)]) -> Result<Vec<Option<Run>>, StoreError>;

    /// Rows that stand beside a run, the input first, then results and links in their order. A row that was purged or taken
    /// out since the run was read is not among them.
    async fn beside(&self, key: &RunKey, asked: &Beside) -> Result<Vec<ContentRow>, StoreError>;

    /// A page of the runs that match a filter, in one snapshot that shows every commit that was acknowledged before the
    /// call. [So many](Reach::list_runs_max) runs are looked at at most: where few of them match, the
    /// page ends early, and may be empty although more follow. A run's place never changes, so pages that follow one
    /// another by [`next`](RunPage::next) neither skip nor repeat a run that was there all the time, whatever is
    /// committed between them; each run is shown, and tested, as it is when its page is read.
    async fn list(&self, query: &RunQuery) -> Result<RunPage, StoreError>;

    /// The numbers of runs that match a filter, in one snapshot as of [`list`](Runs::list), of the newest
    /// [so many](Reach::count_runs_max) that [the filter's index](super::query::By) leads to.
    /// `before`: only runs that were created before this place.
    async fn count(
        &self,
        namespace: &Namespace,
        filter: &Filter,
        before: Option<&Place>,
        by: CountBy,
        reach: Reach,
    ) -> Result<RunCounts, StoreError>;

    /// The runs of a namespace that are [ready](Run::is_ready), without their metadata, by (`started_at`, `run_id`)
    /// after a place, at most `limit`: as [`list`](Runs::list) reads them.
    async fn ready(
        &self,
        namespace: &Namespace,
        of: ReadyOf,
        after: Option<&Place>,
        limit: usize,
    ) -> Result<RunPage, StoreError>;

    /// The highest priority, below one, that a run has which waits for a claim; none where there is none, or none but runs
    /// that have no priority.
    async fn next_priority(&self, namespace: &Namespace, below: i16) -> Result<Option<Priority>, StoreError>;

    /// The runs that count towards the claims' limits on values of labels, in the order of the values, those of each
    /// by id: claimed under a [`MaxRunning`](crate::domain::MaxRunning), and neither terminal nor at rest without their
    /// slot.
    async fn running(&self, values: &[LabelValue]) -> Result<Vec<Vec<RunId>>, StoreError>;

    /// How far all walks of a namespace have come that [purge](super::Purges) its runs, and the store's clock. Whoever
    /// reads it before and after a list of runs knows which runs the list may lack that were there before.
    async fn walked_all(&self, namespace: &Namespace) -> Result<(Walked, Time), StoreError>;
}

/// One run as it was right after its event `revision`. See [`Runs::runs_at`].
pub async fn run_at(runs: &(impl Runs + ?Sized), key: &RunKey, revision: Revision) -> Result<Option<Run>, StoreError> {
    Ok(runs.runs_at(&[(key.clone(), revision)]).await?.pop().flatten())
}
