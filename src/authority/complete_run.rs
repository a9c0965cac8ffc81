//! The call that completes a run, and claims the next one where it is asked to.

use std::time::Duration;

use prost::Message as _;
use tokio::time::{Instant, timeout_at};

use super::mutations::Mutated;
use super::{ANSWER_BYTES_MAX, Authority, Call, is_shed};
use crate::domain::Violation;
use crate::wire::problem::{self, Code, Problem};
use crate::wire::{query, request};
use runledger_proto::{methods, v1};

/// The time that the claim takes at most.
const CLAIM_WAIT_MAX: Duration = Duration::from_secs(1);

/// The call as which the claim is taken on.
const CLAIM_NEXT: &str = "/runledger.v1.RunService/ClaimNextRun";

impl Authority {
    /// Answers a `CompleteRun`.
    ///
    /// # Errors
    ///
    /// The command was not applied, or nobody knows. Nothing was claimed.
    pub async fn complete_run(
        &self,
        mut call: Call<v1::CompleteRunRequest>,
    ) -> Result<v1::CompleteRunResponse, Problem> {
        let asked = call.message.claim_next.take();
        let asked = asked.map(|asked| query::claim_next(*asked, &call.caller)).transpose();
        let (asked, violations) = asked.map_or_else(|violations| (None, violations), |asked| (asked, Vec::new()));
        let next = asked.map(|message| Call {
            caller: call.caller.clone(),
            key: call.key,
            until: call.until.clone(),
            trace: call.trace,
            message,
        });
        let command = |message, caller: &_, _| both(request::complete_run(message, caller), violations);
        let Mutated { run, disposition, current_revision, abort_requested, .. } =
            self.mutate(call, true, command).await?;
        let mut answer = v1::CompleteRunResponse {
            run,
            disposition,
            current_revision,
            abort_requested,
            ..v1::CompleteRunResponse::default()
        };
        if let Some(next) = next {
            let left = ANSWER_BYTES_MAX.saturating_sub(answer.encoded_len());
            match Box::pin(self.claim_after(next, left)).await {
                Ok(claimed) => answer.claimed = Some(Box::new(claimed)),
                Err(problem) => answer.claim_error = Some(Box::new(problem.into_rpc_status())),
            }
        }
        Ok(answer)
    }

    /// Claims once the run before was completed. A completion is always taken on, and a claim only while there is memory.
    /// The claim has half of the time that is left: what was completed is told in time, whatever the claim waits for.
    async fn claim_after(
        &self,
        mut next: Call<query::ClaimNext>,
        bytes_max: usize,
    ) -> Result<v1::ClaimNextRunResponse, Problem> {
        if methods::of(CLAIM_NEXT).is_some_and(|method| is_shed(method.shed, self.process_memory.pressure())) {
            return Err(problem::memory_short(problem::MEMORY_RETRY));
        }
        let now = Instant::now();
        let left = next.until.end().map(|end| end.saturating_duration_since(now) / 2);
        let by = now + left.map_or(CLAIM_WAIT_MAX, |left| left.min(CLAIM_WAIT_MAX));
        next.until.deadline = Some(by);
        // Dropped, what was claimed is given back.
        let claimed = timeout_at(by, self.claim_next(next, bytes_max)).await;
        match claimed.unwrap_or_else(|_late| Err(problem::deadline())) {
            // This time is none that the caller set: the claim waited for its turn.
            Err(late) if late.code() == Code::DeadlineExceeded => Err(problem::overloaded_for(CLAIM_WAIT_MAX)),
            claimed => claimed,
        }
    }
}

/// The command, unless there are violations, of it or other ones of its call.
fn both<T>(command: Result<T, Vec<Violation>>, others: Vec<Violation>) -> Result<T, Vec<Violation>> {
    match command {
        Ok(command) if others.is_empty() => Ok(command),
        Ok(_) => Err(others),
        Err(violations) => Err(violations.into_iter().chain(others).collect()),
    }
}
