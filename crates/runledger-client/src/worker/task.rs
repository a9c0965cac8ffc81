//! The work on one run: its causes to end early, its progress, and its outcome.

use runledger_proto::{Struct, v1};
use tokio::sync::watch;

use super::claims::{Claiming, Next};
use super::heartbeats::{Cancellation, Heartbeats};
use super::{Held, Worker, request_id};
use crate::failure::Failure;

/// The outcome of the work on a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The work was done. The merge patch, if any, changes the run's metadata.
    Completed(Option<Struct>),
    /// The work was ended on purpose.
    Aborted {
        /// The reason, for people.
        reason: String,
        /// The reason, for programs: such as `ABORT_REQUESTED`.
        code: String,
    },
    /// The work failed. While the run has attempts left, the next claim begins another one.
    Failed {
        /// The reason, for people; cut at 4,096 bytes.
        reason: String,
        /// The reason, for programs.
        code: String,
    },
    /// The work failed, and would fail again: no other attempt is made.
    FailedForGood {
        /// The reason, for people; cut at 4,096 bytes.
        reason: String,
        /// The reason, for programs.
        code: String,
    },
    /// The work waits for something that no worker can bring about, and is taken up by a later claim.
    Suspended {
        /// What it waits for: such as `HELP`.
        kind: String,
        /// The reason, for people; cut at 1,024 bytes.
        reason: String,
    },
}

impl Outcome {
    /// The end of work that followed a request to abort the run.
    #[must_use]
    pub fn abort_requested(reason: impl Into<String>) -> Self {
        Self::Aborted { reason: reason.into(), code: "ABORT_REQUESTED".to_owned() }
    }
}

/// A job: the handle that the work on a run is given. Clones are of the same work.
#[derive(Clone, Debug)]
pub struct Job {
    /// The run and its lease, as they were when the work began.
    pub held: Held,
    pub(super) progress: watch::Sender<Option<v1::Progress>>,
    pub(super) cancelled: watch::Receiver<Option<Cancellation>>,
}

impl Job {
    /// The run, as it was when the work began.
    #[must_use]
    pub fn run(&self) -> &v1::Run {
        &self.held.run
    }

    /// Reports the work's progress with the next heartbeats: `done` of `total` (0: not known). Messages are at most 256
    /// bytes.
    pub fn progress(&self, done: u64, total: u64, message: impl Into<String>) {
        self.progress.send_replace(Some(v1::Progress { done, total, message: message.into(), at: None }));
    }

    /// Waits until the work is to end: the run is to be aborted, was suspended, or is not this worker's any more.
    pub async fn cancelled(&self) -> Cancellation {
        self.cancellations().next().await
    }

    /// Each cause for the work to end, as it comes: after a request to abort it, the run may be lost.
    #[must_use]
    pub fn cancellations(&self) -> Cancellations {
        let mut cancelled = self.cancelled.clone();
        cancelled.mark_changed();
        Cancellations(cancelled)
    }

    /// The last cause that the work was told, if it is to end.
    #[must_use]
    pub fn cancellation(&self) -> Option<Cancellation> {
        self.cancelled.borrow().clone()
    }
}

/// The causes for work to end, as they come.
#[derive(Debug)]
pub struct Cancellations(watch::Receiver<Option<Cancellation>>);

impl Cancellations {
    /// The next cause. Safe to cancel: no cause is lost.
    pub async fn next(&mut self) -> Cancellation {
        loop {
            if self.0.changed().await.is_err() {
                // The heartbeats have ended, and have nothing more to tell.
                std::future::pending::<()>().await;
            }
            if let Some(cancellation) = self.0.borrow_and_update().clone() {
                return cancellation;
            }
        }
    }
}

/// The answer to the report of a work's outcome.
#[derive(Clone, Debug)]
pub struct Reported {
    /// The disposition of the report.
    pub disposition: v1::Disposition,
    /// The run. One that was to be suspended has ended where somebody had asked for it to be aborted.
    pub run: v1::Run,
}

/// A run whose work has begun. The heartbeats stop when the value is dropped.
#[derive(Debug)]
pub struct Task {
    /// The handle that the work is given.
    pub job: Job,
    pub(super) worker: Worker,
    pub(super) _beats: Heartbeats,
}

impl Task {
    /// Reports the work's outcome, until the report is answered or [`Options::report_for`](super::Options::report_for)
    /// is over: finished work is not to be lost. Gives the report's disposition: it may have been kept as a late
    /// report, where the authority had ended the run.
    ///
    /// # Errors
    ///
    /// No server served the report, or it was refused.
    pub async fn end(self, outcome: Outcome) -> Result<v1::Disposition, Failure> {
        self.end_with(outcome, None).await.map(|reported| reported.disposition)
    }

    /// The same, with what came of the run: at most 65,536 bytes as compact JSON. Gives the run as well.
    ///
    /// # Errors
    ///
    /// As of [`end`](Self::end).
    pub async fn end_with(self, outcome: Outcome, result: Option<Struct>) -> Result<Reported, Failure> {
        // Boxed: a caller's future needs no room for every kind of report.
        Box::pin(self.end_then(outcome, result, None)).await.map(|(reported, _)| reported)
    }

    /// The same. A report of work that was done claims the next run as well, of those that `what` takes.
    pub(super) async fn end_then(
        mut self,
        outcome: Outcome,
        result: Option<Struct>,
        what: Option<&Claiming>,
    ) -> Result<(Reported, Next), Failure> {
        let (reported, mut next) = self.report(outcome, result, what).await?;
        next.client = Some(self.worker.client);
        Ok((reported, next))
    }

    async fn report(
        &mut self,
        outcome: Outcome,
        result: Option<Struct>,
        what: Option<&Claiming>,
    ) -> Result<(Reported, Next), Failure> {
        macro_rules! reported {
            ($request:expr) => {
                self.worker.insist(&$request).await.map(|answer| {
                    let disposition = answer.disposition();
                    (Reported { disposition, run: answer.run.unwrap_or_default() }, Next::new())
                })
            };
        }
        let run = &self.job.held.clone();
        match outcome {
            Outcome::Completed(metadata) => {
                let request = v1::CompleteRunRequest { result, ..run.completed(metadata) };
                self.completed(request, what).await
            }
            Outcome::Aborted { reason, code } => {
                reported!(v1::AbortRunRequest { result, ..run.aborted(reason, code) })
            }
            Outcome::Suspended { kind, reason } => {
                if result.is_some() {
                    let request = v1::UpdateRunRequest { result, ..run.updated() };
                    self.worker.insist(&request).await?;
                }
                reported!(run.suspended(kind, reason))
            }
            Outcome::Failed { reason, code } => {
                reported!(v1::FailRunRequest { result, ..run.failed(reason, code) })
            }
            Outcome::FailedForGood { reason, code } => {
                reported!(v1::FailRunRequest { result, r#final: true, ..run.failed(reason, code) })
            }
        }
    }

    async fn completed(
        &mut self,
        mut request: v1::CompleteRunRequest,
        what: Option<&Claiming>,
    ) -> Result<(Reported, Next), Failure> {
        let asked = request_id();
        let claim = what.map(|what| self.worker.claim_request(what, asked.clone(), None));
        request.claim_next = claim.map(Box::new);
        match self.worker.insist(&request).await {
            Ok(mut answer) => {
                let next = Next::answered(asked, &mut answer);
                let disposition = answer.disposition();
                Ok((Reported { disposition, run: answer.run.unwrap_or_default() }, next))
            }
            Err(failure) => {
                // A report that may have been applied may have claimed a run as well.
                if let Some(what) = what.filter(|_| failure.may_be_applied()) {
                    self.worker.give_back(what, asked).await;
                }
                Err(failure)
            }
        }
    }
}
