//! A worker's loop: a run is started or claimed under a lease, kept alive by heartbeats while its work is done, and
//! ended as the work ends.

mod claims;
mod heartbeats;
mod held;
mod task;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use runledger_proto::methods::Unary;
use runledger_proto::{Struct, duration, v1};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

pub use self::claims::Claiming;
use self::claims::Next;
pub use self::heartbeats::Cancellation;
pub use self::held::{FAILURE_REASON_BYTES_MAX, Held};
pub use self::task::{Cancellations, Job, Outcome, Reported, Task};
use crate::client::Client;
use crate::failure::{Failure, Kind};

/// Time that one call waits for its answer, before it is made again.
pub const CALL_WAIT_MAX: Duration = Duration::from_secs(10);

/// The pause after a call that nobody served.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Longer than any worker lives.
const FAR: Duration = Duration::from_hours(24 * 365);

/// The options of a worker.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time that a run lives without a heartbeat: 1 second to 24 hours. Heartbeats are sent every third of it.
    pub lease_ttl: Duration,
    /// Time for which the end of a run is reported again, where nobody serves the report.
    pub report_for: Duration,
    /// Time that work may go on after it was told of an abort request, or of the loss of its lease. The end of the
    /// request's own grace may come sooner.
    pub cancel_grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_secs(30),
            report_for: Duration::from_mins(10),
            cancel_grace: Duration::from_secs(30),
        }
    }
}

/// An incident of a worker beside its work, for a log.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A call was not served. The worker makes it again until it is served; the notice comes once, not for every
    /// attempt.
    Retrying(Failure),
    /// The authority concluded that this worker had gone, and ended the run. The work goes on, and its end is kept as a
    /// late report.
    PresumedGone(Failure),
    /// A run was claimed for a worker that stopped, and is given back: it was not begun.
    GivenBack(String),
    /// Such a run could not be given back. The run ends when its lease is over.
    NotGivenBack(Option<String>, Failure),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retrying(failure) => write!(f, "{failure} (trying again)"),
            Self::PresumedGone(failure) => {
                write!(f, "{failure} Its program goes on, and how it ends is reported late.")
            }
            Self::GivenBack(run_id) => write!(f, "run {run_id} was claimed and is given back: it was not begun"),
            Self::NotGivenBack(Some(run_id), failure) => {
                write!(f, "run {run_id} was claimed and could not be given back: {failure}")
            }
            Self::NotGivenBack(None, failure) => {
                write!(f, "{failure} If a run was claimed meanwhile, it ends when its lease is over.")
            }
        }
    }
}

/// The result of a start.
#[derive(Clone, Debug, PartialEq)]
pub enum Started {
    /// The run is this worker's.
    Held(Held),
    /// The run was running already, and is not this worker's.
    Running(v1::Run),
}

/// Takes runs under a lease and ends them.
#[derive(Clone)]
pub struct Worker {
    client: Client,
    options: Options,
    notices: Arc<dyn Fn(Notice) + Send + Sync>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("client", &self.client).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker without notices.
    #[must_use]
    pub fn new(client: Client, options: Options) -> Self {
        Self { client, options, notices: Arc::new(|_| {}) }
    }

    /// The same worker, which calls `notices` for each incident beside its work.
    #[must_use]
    pub fn with_notices(self, notices: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        Self { notices: Arc::new(notices), ..self }
    }

    /// Starts a run under a lease. The worker sets `request_id` and `lease_ttl`.
    ///
    /// # Errors
    ///
    /// The run was not started.
    pub async fn start(&mut self, request: v1::StartRunRequest) -> Result<Started, Failure> {
        let request = v1::StartRunRequest {
            request_id: request_id(),
            lease_ttl: Some(duration(self.options.lease_ttl)),
            ..request
        };
        let answer = self.client.ask(&request, Instant::now() + CALL_WAIT_MAX).await?;
        let unchanged = answer.disposition() == v1::Disposition::Unchanged;
        let run = answer.run.unwrap_or_default();
        Ok(if unchanged { Started::Running(run) } else { Started::Held(Held::from(run)) })
    }

    /// Claims the first run, by priority and then by age, that waits for a claim, matches, and is one of those that
    /// `what` takes. None when there was no such run for as long as the worker waits, or when the stop came first; a run
    /// that was claimed in that moment is given back. A server that is away is waited for.
    ///
    /// # Errors
    ///
    /// The claim was refused.
    pub async fn claim(&mut self, what: &Claiming, stop: &CancellationToken) -> Result<Option<Held>, Failure> {
        self.claim_as(request_id(), what, stop).await
    }

    async fn claim_as(
        &mut self,
        mut asked: String,
        what: &Claiming,
        stop: &CancellationToken,
    ) -> Result<Option<Held>, Failure> {
        tokio::select! {
            // The stop comes first: a worker that stops does not look at the answer, and a run that was granted in this
            // moment is asked for again below.
            biased;
            () = stop.cancelled() => {}
            claimed = self.next_run(what, &mut asked) => return claimed,
        }
        self.give_back(what, asked).await;
        Ok(None)
    }

    /// What the run was given; none where it was given nothing. A server that is away is waited for, for as long as
    /// [`Options::report_for`] says.
    ///
    /// # Errors
    ///
    /// The run cannot be read.
    pub async fn input(&mut self, held: &Held) -> Result<Option<Struct>, Failure> {
        if held.run.input.is_none() {
            return Ok(None);
        }
        let view = Some(v1::RunView::Whole.into());
        let request = v1::GetRunRequest { run_id: held.run.run_id.clone(), view, ..v1::GetRunRequest::default() };
        Ok(self.insist(&request).await?.input)
    }

    /// What the run waits for, where it is suspended: its work may have suspended it by a call of its own.
    ///
    /// # Errors
    ///
    /// The run cannot be read.
    pub async fn suspension(&mut self, held: &Held) -> Result<Option<v1::Suspension>, Failure> {
        let request = v1::GetRunRequest { run_id: held.run.run_id.clone(), ..v1::GetRunRequest::default() };
        Ok(self.insist(&request).await?.run.and_then(|run| run.suspension).map(|suspension| *suspension))
    }

    /// Begins the work on a run: from here on heartbeats keep the run alive.
    #[must_use]
    pub fn begin(&self, held: Held) -> Task {
        let (progress, said) = watch::channel(None);
        let beats = heartbeats::start(self.clone(), held.clone(), said);
        let job = Job { held, progress, cancelled: beats.cancelled.clone() };
        Task { job, worker: self.clone(), _beats: beats }
    }

    /// Has the work on a run done, and reports its end. Where the run is to be aborted, was suspended or was lost, the
    /// work is told and may go on for [`Options::cancel_grace`]; then it is dropped.
    ///
    /// # Errors
    ///
    /// The end of the run was not reported: nobody served it in time, or it was refused although the run was not lost.
    pub async fn work<F: Future<Output = Outcome>>(
        &self,
        held: Held,
        work: impl FnOnce(Job) -> F,
    ) -> Result<(), Failure> {
        self.work_then(held, work, None).await.map(drop)
    }

    /// The same. The report that the work is done claims the next run with it, unless the stop came.
    async fn work_then<F: Future<Output = Outcome>>(
        &self,
        held: Held,
        work: impl FnOnce(Job) -> F,
        next: Option<(&Claiming, &CancellationToken)>,
    ) -> Result<Next, Failure> {
        let task = self.begin(held);
        let given_up = async {
            let told = task.job.cancelled().await;
            sleep(told.left().unwrap_or(self.options.cancel_grace).min(self.options.cancel_grace)).await;
        };
        let outcome = tokio::select! {
            biased;
            outcome = work(task.job.clone()) => Some(outcome),
            () = given_up => None,
        };
        let told = task.job.cancellation();
        let outcome = match (outcome, &told) {
            (Some(outcome), _) => outcome,
            (None, Some(Cancellation::AbortRequested { reason, .. })) => Outcome::abort_requested(reason.clone()),
            (None, Some(Cancellation::LeaseLost(_) | Cancellation::Suspended { .. }) | None) => return Ok(Next::new()),
        };
        let what = next.filter(|(_, stop)| !stop.is_cancelled()).map(|(what, _)| what);
        match Box::pin(task.end_then(outcome, None, what)).await {
            // What became of the run since is somebody else's word.
            Err(failure)
                if failure.kind == Kind::Refused
                    && matches!(told, Some(Cancellation::LeaseLost(_) | Cancellation::Suspended { .. })) =>
            {
                Ok(Next::new())
            }
            reported => reported.map(|(_, next)| next),
        }
    }

    /// Claims runs one after the other and has the work on each done, until there is no run for as long as the worker
    /// waits, or the stop came: then the work in hand is waited for. The call that reports a run as completed claims the
    /// next one; where the stop comes meanwhile, that one is given back.
    ///
    /// # Errors
    ///
    /// A claim was refused, or the end of a run was not reported: then the worker takes 5 seconds more, at most, to give back
    /// what that report may have claimed.
    pub async fn run<F: Future<Output = Outcome>>(
        &mut self,
        what: &Claiming,
        stop: &CancellationToken,
        mut work: impl FnMut(Job) -> F,
    ) -> Result<(), Failure> {
        let mut next = Next::new();
        // Boxed, so that a caller's future has no room for every call of the loop.
        while let Some(held) = Box::pin(self.take(next, what, stop)).await? {
            next = Box::pin(self.work_then(held, &mut work, Some((what, stop)))).await?;
        }
        Ok(())
    }

    /// Makes a call again until it is answered, for [`Options::report_for`] at most.
    async fn insist<C: Unary>(&mut self, call: &C) -> Result<C::Answer, Failure> {
        let until = after(self.options.report_for);
        let (mut lost, mut is_open) = (false, false);
        loop {
            match self.client.ask(call, until.min(Instant::now() + CALL_WAIT_MAX)).await {
                Ok(answer) => return Ok(answer),
                Err(mut failure) if self.client.is_refused_for_good(&failure) || Instant::now() >= until => {
                    failure.is_after_open |= is_open;
                    return Err(failure);
                }
                Err(failure) => {
                    is_open |= failure.may_be_applied();
                    if !std::mem::replace(&mut lost, true) {
                        self.notice(Notice::Retrying(failure));
                    }
                    sleep(AGAIN_AFTER).await;
                }
            }
        }
    }

    fn notice(&self, notice: Notice) {
        (self.notices)(notice);
    }
}

/// The moment after this time, or the last one that can be told.
fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + FAR)
}

/// A new request id. Each call has an id of its own, so that it can be sent again.
#[expect(clippy::disallowed_methods, reason = "the one place of this crate that draws ids")]
fn request_id() -> String {
    format!("worker-{}", uuid::Uuid::now_v7())
}
