//! The calls that change a run: each is a command, and its answer is the run after the command.

use uuid::Uuid;

use super::lifecycles::built_in_of;
use super::{Authority, Call};
use crate::auth::Caller;
use crate::domain::{Command, Violation};
use crate::engine::Failure;
use crate::fairness::CallerKey;
use crate::store::attached::Attached;
use crate::telemetry::traces;
use crate::wire::from_domain::{FromDomain as _, IntoMessage as _};
use crate::wire::problem::{self, Problem};
use crate::wire::request;
use runledger_proto::v1;

/// The answer of every mutation.
pub(super) struct Mutated {
    pub(super) run: Option<v1::Run>,
    pub(super) disposition: i32,
    pub(super) current_revision: u64,
    pub(super) abort_requested: bool,
    values_redacted: Option<u64>,
}

// Those that need no more than their command, a function of `wire::request` with the name of the call.
include!(concat!(env!("OUT_DIR"), "/mutations.rs"));

impl Authority {
    /// Answers a `StartRun`.
    ///
    /// # Errors
    ///
    /// The command was not applied, or nobody knows.
    pub async fn start_run(&self, call: Call<v1::StartRunRequest>) -> Result<v1::StartRunResponse, Problem> {
        let names_run = !call.message.run_id.is_empty();
        let Mutated { run, disposition, current_revision, .. } =
            self.mutate(call, names_run, request::start_run).await?;
        Ok(v1::StartRunResponse { run, disposition, current_revision })
    }

    /// Answers an `UpdateRun`.
    ///
    /// # Errors
    ///
    /// The command was not applied, or nobody knows.
    pub async fn update_run(&self, call: Call<v1::UpdateRunRequest>) -> Result<v1::UpdateRunResponse, Problem> {
        let (caller, mut renewal) = (call.key, None);
        let command = |message, caller: &_, _| {
            renewal = request::update_renewal(&message, caller);
            request::update_run(message, caller)
        };
        let Mutated { run, disposition, current_revision, abort_requested, .. } =
            self.mutate(call, true, command).await?;
        if let Some((key, renewal)) = renewal {
            // The update was made: the answer waits for no renewal, and no deadline may pass in between.
            self.renewals.renew_soon(caller, key, renewal);
        }
        Ok(v1::UpdateRunResponse { run, disposition, current_revision, abort_requested })
    }

    /// Answers a `RedactRun`. Whoever watches through this process after the answer is shown no more of what was taken out.
    ///
    /// # Errors
    ///
    /// Nothing was taken out, or nobody knows.
    pub async fn redact_run(&self, call: Call<v1::RedactRunRequest>) -> Result<v1::RedactRunResponse, Problem> {
        let command = |message, caller: &_, _| request::redact_run(message, caller);
        let answer = self.mutate(call, true, command).await?;
        self.feed.forget();
        let Mutated { run, disposition, current_revision, values_redacted, .. } = answer;
        Ok(v1::RedactRunResponse { run, disposition, current_revision, values_redacted })
    }

    /// Commits the command that a request asks for. `names_run`: the request named its run, so that a repetition meets
    /// the same run. The command is made at once, so that the future needs no room for the request.
    pub(super) fn mutate<M>(
        &self,
        call: Call<M>,
        names_run: bool,
        command: impl FnOnce(M, &Caller, Uuid) -> Result<Command, Vec<Violation>>,
    ) -> impl Future<Output = Result<Mutated, Problem>> + Send {
        let Call { caller, key, until, trace, message } = call;
        let asked =
            command(message, &caller, self.store.ledger().id).map(|command| Box::new(Command { trace, ..command }));
        async move {
            let mut command = asked.map_err(problem::invalid)?;
            traces::current_run(&command.key.namespace, &command.key.run_id);
            let _turn = self.ready(&caller, key, &mut command).await?;
            let retry_is_safe = command.request.is_some() || (names_run && command.is_idempotent());
            // A lifecycle that is built in is put when a start first names it; no other command is sent again.
            let again = built_in_of(&command).map(|_name| command.clone());
            let submit = |command: Box<Command>| self.engine.queue_for(key, *command, until.deadline);
            let mut answer = match submit(command) {
                Ok(submitted) => self.engine.answer(submitted).await,
                Err(failure) => Err(failure),
            };
            if let (Err(Failure::Refused(refusal)), Some(command)) = (&answer, again)
                && Box::pin(self.puts_built_in(&command, refusal)).await?
            {
                answer = Box::pin(self.engine.submit_for(key, *command, until.deadline)).await;
            }
            let answer = answer.map_err(|failure| failed(failure, retry_is_safe))?;
            Ok(Mutated {
                abort_requested: answer.run.supervision.abort_request.is_some(),
                run: Some(answer.run.as_ref().into_message()),
                disposition: v1::Disposition::from_domain(answer.disposition).into(),
                current_revision: answer.current_revision.into(),
                values_redacted: answer.values_redacted,
            })
        }
    }

    /// Makes a command ready to be queued. Answers with the turn in which it is to be committed, if such commands are
    /// committed in turns.
    ///
    /// # Errors
    ///
    /// The caller may not give the command, or its turn did not come.
    pub(super) async fn ready(
        &self,
        caller: &Caller,
        key: CallerKey,
        command: &mut Command,
    ) -> Result<Option<Attached>, Problem> {
        may_name(caller, command)?;
        self.before(key, command).await
    }
}

/// The problem for a command without an answer. `retry_is_safe`: see [`problem::outcome_unknown`].
pub(super) fn failed(failure: Failure, retry_is_safe: bool) -> Problem {
    match failure {
        Failure::Refused(refusal) => problem::refusal(&refusal),
        Failure::Overloaded { wait } => problem::overloaded_for(wait),
        Failure::Draining => problem::draining(),
        Failure::StoreUnavailable => problem::store_unavailable(),
        Failure::StoreRefused => problem::store_refused(),
        Failure::StoreCorrupt => problem::store_corrupt(),
        Failure::Deadline => problem::deadline(),
        Failure::OutcomeUnknown => problem::outcome_unknown(retry_is_safe),
    }
}

/// Refuses a start that makes an agent the owner as which its caller may not act.
fn may_name(caller: &Caller, command: &Command) -> Result<(), Problem> {
    match command.ask.brought().agent_id {
        Some(owner) if !caller.rights.may_act_as(&caller.namespace, owner) => {
            Err(problem::agent_denied(Some(owner), &caller.rights.agents(&caller.namespace)))
        }
        Some(_) | None => Ok(()),
    }
}
