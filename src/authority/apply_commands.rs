//! The call that applies many commands: each is decided, refused and answered as by its own call.

use std::collections::{BTreeMap, VecDeque};

use super::mutations::failed;
use super::{ANSWER_BYTES_MAX, Authority, Call};
use crate::auth::Caller;
use crate::domain::{Command, Renewal, RunId, RunKey};
use crate::engine::{Answer, Failure};
use crate::fairness::CallerKey;
use crate::wire::commands::{self, Made, Results};
use crate::wire::problem::{self, Code, Problem};
use runledger_proto::v1;

/// A command of the list on its way.
enum CommandState {
    /// It is queued, at its place among those that are.
    Queued { run_id: RunId, retry_is_safe: bool, renewal: Option<(RunKey, Renewal)> },
    /// It was refused before.
    Refused { run_id: Option<RunId>, problem: Problem },
}

impl Authority {
    /// Answers an `ApplyCommands`.
    ///
    /// # Errors
    ///
    /// None of the commands was queued.
    pub async fn apply_commands(
        &self,
        call: Call<v1::ApplyCommandsRequest>,
    ) -> Result<v1::ApplyCommandsResponse, Problem> {
        let Call { caller, key, until, trace, message } = call;
        let commands::Commands { commands, full } = commands::apply_commands(message).map_err(problem::invalid)?;
        let (mut steps, mut queued) = (VecDeque::with_capacity(commands.len()), Vec::new());
        let (mut built_in, mut held_up) = (BTreeMap::new(), BTreeMap::<RunId, Problem>::new());
        for command in commands {
            let made = commands::command(command, &caller, self.store.ledger().id);
            let Made { mut command, names_run, renewal } = match made {
                Ok(made) => made,
                Err(violations) => {
                    steps.push_back(CommandState::Refused { run_id: None, problem: problem::invalid(violations) });
                    continue;
                }
            };
            let run_id = command.key.run_id.clone();
            command.trace = trace;
            let ready = match held_up.get(&run_id) {
                None => self.ready_in_list(&caller, key, &mut command, &mut built_in).await,
                Some(problem) => Err(problem.clone()),
            };
            match ready {
                Ok(()) => {
                    let retry_is_safe = command.request.is_some() || (names_run && command.is_idempotent());
                    queued.push(command);
                    steps.push_back(CommandState::Queued { run_id, retry_is_safe, renewal });
                }
                Err(problem) => {
                    // What would do later goes with what is behind it on its run.
                    if matches!(problem.code(), Code::Unavailable | Code::ResourceExhausted) {
                        held_up.insert(run_id.clone(), problem.clone());
                    }
                    steps.push_back(CommandState::Refused { run_id: Some(run_id), problem });
                }
            }
        }
        let mut results = Results::new(full, ANSWER_BYTES_MAX);
        let tell = |answer: Result<Answer, Failure>| {
            CommandState::refused_before(&mut steps, &mut results);
            let Some(CommandState::Queued { run_id, retry_is_safe, renewal }) = steps.pop_front() else { return };
            match answer {
                Ok(answer) => {
                    if let Some((run, renewal)) = renewal {
                        // The update was made: the answer waits for no renewal.
                        self.renewals.renew_soon(key, run, renewal);
                    }
                    results.done(&run_id, &answer.run, answer.disposition, answer.current_revision);
                }
                Err(failure) => results.failed(Some(&run_id), failed(failure, retry_is_safe)),
            }
        };
        let told = self.engine.submit_all_for(key, queued, until.deadline, tell).await;
        told.map_err(|failure| failed(failure, true))?;
        CommandState::refused_before(&mut steps, &mut results);
        Ok(results.answer())
    }

    /// Makes a command ready to be queued with others.
    async fn ready_in_list(
        &self,
        caller: &Caller,
        key: CallerKey,
        command: &mut Command,
        built_in: &mut BTreeMap<String, Result<(), Problem>>,
    ) -> Result<(), Problem> {
        // The turn is one of redactions, and no command of a list is one.
        let _turn = self.ready(caller, key, command).await?;
        self.put_before(command, built_in).await
    }
}

impl CommandState {
    /// Writes the results of the commands that were refused before the next one that is queued.
    fn refused_before(steps: &mut VecDeque<Self>, results: &mut Results) {
        while let Some(Self::Refused { run_id, problem }) =
            steps.pop_front_if(|step| matches!(step, Self::Refused { .. }))
        {
            results.failed(run_id.as_deref(), problem);
        }
    }
}
