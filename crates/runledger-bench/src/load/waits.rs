//! Callers that wait for the ends of their own runs.

use runledger_proto::Duration as WireDuration;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::over_grpc::Calls;
use super::phase::Caller;
use super::tally::{Of, Tally};
use crate::BenchError;
use runledger_proto::v1::WaitRunRequest;

/// Longer than any run of a load is open.
const WAIT_MAX: WireDuration = WireDuration { seconds: 3_600, nanos: 0 };

/// Starts runs and completes them, while a wait for each is open.
///
/// No answer tells when a wait has arrived at the server. So a run is completed only after the next one was started:
/// the wait for it was sent before that, and has been at the server for a whole call.
#[derive(Debug)]
pub(super) struct WaitingCaller {
    calls: Calls,
    /// The run that is waited for.
    open: Option<String>,
    /// The wait for it: the time of its answer.
    wait: JoinSet<Result<Instant, BenchError>>,
}

impl WaitingCaller {
    pub(super) fn new(calls: Calls) -> Self {
        Self { calls, open: None, wait: JoinSet::new() }
    }

    async fn complete(&mut self, run_id: &str, from: Instant, tally: &mut Tally) -> Result<(), BenchError> {
        let completed = self.calls.complete(run_id, from, tally).await?;
        if let Some(answered) = self.wait.join_next().await {
            // An answer that comes before the completing call's own counts as none after it.
            tally.note(Of::Wait, completed, answered??);
        }
        Ok(())
    }
}

impl Caller for WaitingCaller {
    async fn turn(&mut self, due: Instant, tally: &mut Tally) -> Result<(), BenchError> {
        let run_id = self.calls.draws.run_id();
        let at = self.calls.start(&run_id, due, tally).await?;
        if let Some(before) = self.open.take() {
            self.complete(&before, at, tally).await?;
        }
        let mut client = self.calls.client.clone();
        self.open = Some(run_id.clone());
        self.wait.spawn(async move {
            let answer = client.wait_run(WaitRunRequest { run_id, timeout: Some(WAIT_MAX), until: 0 }).await;
            let answer = answer.map_err(BenchError::call("WaitRun"))?.into_inner();
            if answer.timed_out { Err(BenchError::TimedOut { timed_out: 1 }) } else { Ok(Instant::now()) }
        });
        Ok(())
    }

    async fn finish(mut self, tally: &mut Tally) -> Result<(), BenchError> {
        match self.open.take() {
            Some(run_id) => self.complete(&run_id, Instant::now(), tally).await,
            None => Ok(()),
        }
    }
}
