//! The callers of Runledger.

use std::collections::HashMap;
use std::sync::Arc;

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tokio::time::Instant;
use tonic::{Response, Status};

use super::Workload;
use super::asked::{Asked, Draws};
use super::phase::Caller;
use super::tally::{Of, Tally};
use crate::BenchError;
use crate::servers::Client;
use runledger_proto::v1::run_command::Command;
use runledger_proto::v1::{self, CompleteRunRequest, Disposition, GetRunRequest, StartRunRequest, UpdateRunRequest};

/// Makes the calls of one caller, one after the other.
#[derive(Debug)]
pub(crate) struct GrpcCaller {
    workload: Workload,
    calls: Calls,
    /// Runs that were started before, for loads that are on such.
    runs: Arc<[String]>,
}

/// The calls, each noted with the time that it took.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) client: Client,
    asked: Arc<Asked>,
    pub(super) draws: Draws,
}

impl GrpcCaller {
    pub(super) fn new(workload: Workload, calls: Calls, runs: Arc<[String]>) -> Self {
        Self { workload, calls, runs }
    }

    /// A run from its start to its end, with so many updates in between.
    async fn life(&mut self, updates: u32, due: Instant, tally: &mut Tally) -> Result<(), BenchError> {
        let run_id = self.calls.draws.run_id();
        let mut at = self.calls.start(&run_id, due, tally).await?;
        for update in 0..updates {
            at = self.calls.update(&run_id, update, at, tally).await?;
        }
        at = self.calls.complete(&run_id, at, tally).await?;
        tally.note(Of::Run, due, at);
        Ok(())
    }
}

impl GrpcCaller {
    /// The lives of many runs at once: each step of all is one call.
    async fn lives(&mut self, runs: usize, updates: u32, due: Instant, tally: &mut Tally) -> Result<(), BenchError> {
        let calls = &mut self.calls;
        let ids: Vec<String> = (0..runs).map(|_| calls.draws.run_id()).collect();
        let starts = ids.iter().map(|id| Command::Start(calls.start_request(id))).collect();
        let mut at = calls.apply(Of::Start, starts, due, tally).await?;
        for update in 0..updates {
            let updates = ids.iter().map(|id| Command::Update(calls.update_request(id, update))).collect();
            at = calls.apply(Of::Update, updates, at, tally).await?;
        }
        let completes = ids.iter().map(|id| Command::Complete(calls.complete_request(id))).collect();
        at = calls.apply(Of::Complete, completes, at, tally).await?;
        for _run in &ids {
            tally.note(Of::Run, due, at);
        }
        Ok(())
    }
}

impl Caller for GrpcCaller {
    async fn turn(&mut self, due: Instant, tally: &mut Tally) -> Result<(), BenchError> {
        let batch = self.calls.asked.batch;
        match self.workload {
            Workload::Lifecycle if batch > 0 => self.lives(batch, 2, due, tally).await,
            Workload::StartComplete if batch > 0 => self.lives(batch, 0, due, tally).await,
            Workload::Lifecycle => self.life(2, due, tally).await,
            Workload::StartComplete | Workload::Wait => self.life(0, due, tally).await,
            Workload::HotRun { .. } => {
                let run = self.calls.draws.one_of(self.runs.len());
                self.calls.update(&self.runs[run], 0, due, tally).await.map(drop)
            }
            Workload::Read { filled: Some(filled), .. } => {
                let run_id = filled.run_id(&mut self.calls.draws);
                self.calls.get(&run_id, due, tally).await
            }
            Workload::Read { filled: None, .. } => {
                let run = self.calls.draws.one_of(self.runs.len());
                self.calls.get(&self.runs[run], due, tally).await
            }
        }
    }
}

impl Calls {
    pub(super) fn new(client: Client, asked: Arc<Asked>, caller: u64) -> Self {
        let draws = asked.draws(caller);
        Self { client, asked, draws }
    }

    /// Each call gives the time of its answer, at which a closed loop makes the next call.
    pub(super) async fn start(
        &mut self,
        run_id: &str,
        from: Instant,
        tally: &mut Tally,
    ) -> Result<Instant, BenchError> {
        let request = self.start_request(run_id);
        let answer = self.client.start_run(request).await;
        applied("StartRun", answer, v1::StartRunResponse::disposition)?;
        Ok(tally.answered(Of::Start, from))
    }

    pub(super) async fn update(
        &mut self,
        run_id: &str,
        number: u32,
        from: Instant,
        tally: &mut Tally,
    ) -> Result<Instant, BenchError> {
        let request = self.update_request(run_id, number);
        let answer = self.client.update_run(request).await;
        applied("UpdateRun", answer, v1::UpdateRunResponse::disposition)?;
        Ok(tally.answered(Of::Update, from))
    }

    pub(super) async fn complete(
        &mut self,
        run_id: &str,
        from: Instant,
        tally: &mut Tally,
    ) -> Result<Instant, BenchError> {
        let request = self.complete_request(run_id);
        let answer = self.client.complete_run(request).await;
        applied("CompleteRun", answer, v1::CompleteRunResponse::disposition)?;
        Ok(tally.answered(Of::Complete, from))
    }

    async fn get(&mut self, run_id: &str, from: Instant, tally: &mut Tally) -> Result<(), BenchError> {
        let answer = self.client.get_run(GetRunRequest { run_id: run_id.to_owned(), ..GetRunRequest::default() }).await;
        let answer = answer.map_err(BenchError::call("GetRun"))?.into_inner();
        answer.run.ok_or(BenchError::Answer { rpc: "GetRun", field: "the run" })?;
        tally.answered(Of::Get, from);
        Ok(())
    }

    /// Sends many commands of one kind in one call. Each counts as answered with the call.
    async fn apply(
        &mut self,
        of: Of,
        commands: Vec<Command>,
        from: Instant,
        tally: &mut Tally,
    ) -> Result<Instant, BenchError> {
        const RPC: &str = "ApplyCommands";
        let commands = commands.into_iter().map(|command| v1::RunCommand { command: Some(command) }).collect();
        let answer = self.client.apply_commands(v1::ApplyCommandsRequest { commands, view: None }).await;
        let mut at = from;
        for result in answer.map_err(BenchError::call(RPC))?.into_inner().results {
            let disposition = result.disposition();
            if let Some(error) = result.error {
                return Err(BenchError::Command { message: error.message });
            }
            if disposition != Disposition::Applied {
                return Err(BenchError::NotApplied { rpc: RPC, disposition: disposition.as_str_name() });
            }
            at = tally.answered(of, from);
        }
        Ok(at)
    }

    fn start_request(&mut self, run_id: &str) -> StartRunRequest {
        let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let fields = |fields: [(&str, &str); 2]| fields.map(|(name, value)| (name.to_owned(), text(value))).into();
        StartRunRequest {
            task_thread_id: self.draws.task_thread_id(),
            run_id: run_id.to_owned(),
            agent_id: self.asked.agent_id.clone(),
            metadata: self.asked.metadata().map(|metadata| Struct { fields: fields(metadata) }),
            lifecycle: self.asked.lifecycle.clone(),
            request_id: self.request_id(),
            ..StartRunRequest::default()
        }
    }

    fn update_request(&mut self, run_id: &str, number: u32) -> UpdateRunRequest {
        UpdateRunRequest {
            run_id: run_id.to_owned(),
            phase: self.asked.phase(number),
            labels: HashMap::from([("step".to_owned(), self.draws.step())]),
            request_id: self.request_id(),
            ..UpdateRunRequest::default()
        }
    }

    fn complete_request(&mut self, run_id: &str) -> CompleteRunRequest {
        let request_id = self.request_id();
        CompleteRunRequest { run_id: run_id.to_owned(), request_id, ..CompleteRunRequest::default() }
    }

    fn request_id(&mut self) -> String {
        if self.asked.request_ids { self.draws.request_id() } else { String::new() }
    }
}

/// Every call of a load makes its event: one that does not is another load.
pub(crate) fn applied<A>(
    rpc: &'static str,
    answer: Result<Response<A>, Status>,
    disposition: impl Fn(&A) -> Disposition,
) -> Result<(), BenchError> {
    match disposition(&answer.map_err(BenchError::call(rpc))?.into_inner()) {
        Disposition::Applied => Ok(()),
        other @ (Disposition::Unchanged
        | Disposition::Replayed
        | Disposition::RecordedLate
        | Disposition::Unspecified) => Err(BenchError::NotApplied { rpc, disposition: other.as_str_name() }),
    }
}
