//! Runledger's side of a load: who calls it in a phase, and the runs that are there before and after.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Workload;
use super::asked::Asked;
use super::over_grpc::{Calls, GrpcCaller};
use super::phase::{Phase, Watched};
use super::tally::{Sum, Tally};
use super::waits::WaitingCaller;
use crate::BenchError;
use crate::pace;
use crate::progress::Progress;
use crate::runs::AT_ONCE;
use crate::servers::{Connections, Replicas};

/// Runledger as it is called.
#[derive(Clone, Debug)]
pub(super) struct Runledger {
    workload: Workload,
    connections: Connections,
    asked: Arc<Asked>,
}

impl Runledger {
    /// Connects.
    pub(super) async fn open(workload: Workload, replicas: &Replicas, asked: Arc<Asked>) -> Result<Self, BenchError> {
        Ok(Self { workload, connections: replicas.connect().await?, asked })
    }

    fn calls(&self, caller: u64) -> Calls {
        Calls::new(self.connections.of(caller), self.asked.clone(), caller)
    }

    /// Runs one phase, on runs that were started before where the workload needs such.
    pub(super) async fn phase(
        &self,
        phase: &Phase,
        runs: &Arc<[String]>,
        watched: Watched<'_>,
    ) -> Result<(Sum, Duration), BenchError> {
        match self.workload {
            Workload::Wait => phase.run(|caller| WaitingCaller::new(self.calls(caller)), watched).await,
            Workload::Lifecycle | Workload::StartComplete | Workload::HotRun { .. } | Workload::Read { .. } => {
                let caller = |caller| GrpcCaller::new(self.workload, self.calls(caller), runs.clone());
                phase.run(caller, watched).await
            }
        }
    }

    /// Starts the runs that the load is on: so many as there are before the stop.
    pub(super) async fn prepared(
        &self,
        progress: &Progress,
        stop: &CancellationToken,
    ) -> Result<Arc<[String]>, BenchError> {
        let count = u64::from(self.workload.runs());
        progress.phase("runs", count);
        let start = |number| {
            let (load, mut tally) = (self.clone(), Tally::unmeasured());
            progress.step();
            async move {
                let run_id = load.asked.run_id(number);
                load.calls(number).start(&run_id, Instant::now(), &mut tally).await.map(drop)
            }
        };
        let made = pace::make_all(count, AT_ONCE, stop, start).await?;
        Ok((0..made).map(|number| self.asked.run_id(number)).collect())
    }

    /// Completes the runs that were started before.
    pub(super) async fn end(&self, runs: &Arc<[String]>, progress: &Progress) -> Result<(), BenchError> {
        progress.phase("ends", runs.len() as u64);
        let complete = |number: u64| {
            let (load, runs, mut tally) = (self.clone(), runs.clone(), Tally::unmeasured());
            progress.step();
            async move {
                let run_id = &runs[usize::try_from(number).expect("an index")];
                load.calls(number).complete(run_id, Instant::now(), &mut tally).await.map(drop)
            }
        };
        // The runs that were started are completed, even after the stop.
        pace::make_all(runs.len() as u64, AT_ONCE, &CancellationToken::new(), complete).await.map(drop)
    }
}
