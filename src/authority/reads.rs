//! Reads of one run: its state, and the result that a call on it would have.

use super::{Authority, Call, run_not_found, unreadable};
use crate::domain::check::{Outcome, check_matrix, check_run};
use crate::wire::problem::{self, Problem};
use crate::wire::query;
use crate::wire::request::{self, TransitionQuestion};
use runledger_proto::v1;

impl Authority {
    /// Answers a `GetRun`.
    ///
    /// # Errors
    ///
    /// The run cannot be read, or is not there.
    pub async fn get_run(&self, call: Call<v1::GetRunRequest>) -> Result<v1::GetRunResponse, Problem> {
        let (key, queue_label) = query::get_run(call.message, &call.caller).map_err(problem::invalid)?;
        match self.reads.run(&key).await {
            Ok(Some(run)) => {
                let queue = match queue_label {
                    Some(label) => self.place(&key, &run, &label).await?,
                    None => None,
                };
                let run = Some(self.shown(&key, &run).await?);
                Ok(v1::GetRunResponse { run, queue })
            }
            Ok(None) => Err(run_not_found(key)),
            Err(error) => Err(unreadable("GetRun", &key, &error)),
        }
    }

    /// Answers a `CheckTransition`.
    ///
    /// # Errors
    ///
    /// The run cannot be read.
    pub async fn check_transition(
        &self,
        call: Call<v1::CheckTransitionRequest>,
    ) -> Result<v1::CheckTransitionResponse, Problem> {
        let question = request::check_transition(call.message, &call.caller).map_err(problem::invalid)?;
        let check = match question {
            TransitionQuestion::Matrix { from, to } => check_matrix(from, to),
            TransitionQuestion::Run { key, to } => {
                let run = self.reads.run(&key).await.map_err(|error| unreadable("CheckTransition", &key, &error))?;
                check_run(&key, run.as_ref(), to, call.caller.principal)
            }
        };
        let (disposition, reason) = match &check.outcome {
            Ok(Outcome::Applied) => (v1::Disposition::Applied, ""),
            Ok(Outcome::Unchanged) => (v1::Disposition::Unchanged, ""),
            Ok(Outcome::RecordedLate) => (v1::Disposition::RecordedLate, ""),
            Err(refusal) => (v1::Disposition::Unspecified, refusal.reason()),
        };
        Ok(v1::CheckTransitionResponse {
            allowed: check.allowed,
            disposition: disposition.into(),
            reason: reason.to_owned(),
            from: check.from.map_or(v1::RunStatus::Unspecified, v1::RunStatus::from).into(),
        })
    }
}
