//! The runs that a load writes: named after it, so that its watchers can tell them from all others.

use std::collections::HashMap;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::progress::Progress;
use super::servers::Connections;
use super::{BenchError, pace};
use crate::random::draw_id;
use runledger_proto::v1::{self, CompleteRunRequest, RunFilter, StartRunRequest, UpdateRunRequest};

/// Calls that are open at once while a measurement is prepared.
pub(super) const AT_ONCE: usize = 64;

/// The runs of one measurement, by number.
#[derive(Clone, Debug)]
pub(super) struct Runs {
    /// The runs' task thread.
    name: String,
    writer: Connections,
}

/// A change that was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) revision: u64,
    /// The time at which the call was sent.
    pub(super) sent: Instant,
    /// The time at which the answer had come: the change is committed.
    pub(super) answered: Instant,
}

impl Runs {
    pub(super) fn new(writer: Connections) -> Self {
        Self { name: format!("bench-{}", draw_id().simple()), writer }
    }

    /// The runs' task thread, which no other run has.
    pub(super) fn thread(&self) -> &str {
        &self.name
    }

    pub(super) fn run_id(&self, number: u64) -> String {
        format!("{}-{number}", self.name)
    }

    /// The number of a run of this load.
    pub(super) fn number(&self, run_id: &str) -> Option<u64> {
        run_id.strip_prefix(&self.name)?.strip_prefix('-')?.parse().ok()
    }

    /// Matches all of them, and nobody else's.
    pub(super) fn filter(&self) -> RunFilter {
        RunFilter { task_thread_id: self.name.clone(), ..RunFilter::default() }
    }

    /// Matches nothing.
    pub(super) fn nothing(&self) -> RunFilter {
        RunFilter { task_thread_id: format!("{}-nothing", self.name), ..RunFilter::default() }
    }

    /// Starts the first so many. Gives how many it started before the stop.
    pub(super) async fn start_all(
        &self,
        count: u64,
        progress: &Progress,
        stop: &CancellationToken,
    ) -> Result<u64, BenchError> {
        let start = |number| {
            let runs = self.clone();
            progress.step();
            async move { runs.start(number).await.map(drop) }
        };
        pace::make_all(count, AT_ONCE, stop, start).await
    }

    /// Completes the first so many.
    pub(super) async fn complete_all(&self, count: u64, progress: &Progress) -> Result<(), BenchError> {
        progress.phase("ends", count);
        let complete = |number| {
            let runs = self.clone();
            progress.step();
            async move { runs.complete(number).await.map(drop) }
        };
        pace::make_all(count, AT_ONCE, &CancellationToken::new(), complete).await.map(drop)
    }

    pub(super) async fn start(&self, number: u64) -> Result<Written, BenchError> {
        let request = StartRunRequest {
            task_thread_id: self.name.clone(),
            run_id: self.run_id(number),
            agent_id: "bench".to_owned(),
            ..StartRunRequest::default()
        };
        let mut client = self.writer.of(number);
        written("StartRun", async { client.start_run(request).await.map(|answer| answer.into_inner().run) }).await
    }

    /// Sets a label to a value that it did not have: each update is an event.
    pub(super) async fn update(&self, number: u64, step: u64) -> Result<Written, BenchError> {
        let labels = HashMap::from([("step".to_owned(), step.to_string())]);
        let request = UpdateRunRequest { run_id: self.run_id(number), labels, ..UpdateRunRequest::default() };
        let mut client = self.writer.of(number);
        written("UpdateRun", async { client.update_run(request).await.map(|answer| answer.into_inner().run) }).await
    }

    pub(super) async fn complete(&self, number: u64) -> Result<Written, BenchError> {
        let request = CompleteRunRequest { run_id: self.run_id(number), ..CompleteRunRequest::default() };
        let mut client = self.writer.of(number);
        written("CompleteRun", async { client.complete_run(request).await.map(|answer| answer.into_inner().run) }).await
    }
}

async fn written(
    rpc: &'static str,
    call: impl Future<Output = Result<Option<v1::Run>, Status>>,
) -> Result<Written, BenchError> {
    let sent = Instant::now();
    let run = call.await.map_err(BenchError::call(rpc))?;
    let answered = Instant::now();
    let run = run.ok_or(BenchError::Answer { rpc, field: "the run" })?;
    Ok(Written { revision: run.revision, sent, answered })
}
