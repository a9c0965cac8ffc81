//! The callers of the baseline: they do what Runledger's do, on the same kinds of runs.

use std::sync::Arc;

use tokio::time::Instant;

use super::sessions::{Lender, Write};
use crate::BenchError;
use crate::load::Workload;
use crate::load::asked::Draws;
use crate::load::phase::Caller;
use crate::load::tally::{Of, Tally};

#[derive(Debug)]
pub(super) struct SqlCaller {
    workload: Workload,
    metadata: Option<Arc<str>>,
    draws: Draws,
    /// Runs that are there before.
    runs: Arc<[String]>,
    lender: Arc<Lender>,
}

impl SqlCaller {
    pub(super) fn new(
        workload: Workload,
        metadata: Option<Arc<str>>,
        draws: Draws,
        runs: Arc<[String]>,
        lender: Arc<Lender>,
    ) -> Self {
        Self { workload, metadata, draws, runs, lender }
    }

    async fn life(&mut self, updates: u32, due: Instant, tally: &mut Tally) -> Result<(), BenchError> {
        let run_id = self.draws.run_id();
        let task_thread_id = self.draws.task_thread_id();
        let start = Write::Start { task_thread_id: &task_thread_id, metadata: self.metadata.as_deref() };
        self.lender.write(&run_id, start).await?;
        let mut at = tally.answered(Of::Start, due);
        for _ in 0..updates {
            self.lender.write(&run_id, Write::Update { step: &self.draws.step() }).await?;
            at = tally.answered(Of::Update, at);
        }
        self.lender.write(&run_id, Write::Complete).await?;
        at = tally.answered(Of::Complete, at);
        tally.note(Of::Run, due, at);
        Ok(())
    }
}

impl Caller for SqlCaller {
    async fn turn(&mut self, due: Instant, tally: &mut Tally) -> Result<(), BenchError> {
        match self.workload {
            Workload::Lifecycle => self.life(2, due, tally).await,
            Workload::StartComplete => self.life(0, due, tally).await,
            Workload::HotRun { .. } => {
                let run = self.draws.one_of(self.runs.len());
                self.lender.write(&self.runs[run], Write::Update { step: &self.draws.step() }).await?;
                tally.answered(Of::Update, due);
                Ok(())
            }
            Workload::Read { .. } | Workload::Wait => {
                unreachable!("there is no baseline for it: it was refused")
            }
        }
    }
}
