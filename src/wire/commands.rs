//! Many commands in one request, and what became of each.

use prost::Message as _;

use super::listed_errors::ListedErrors;
use super::parts::lease::update_renewal;
use super::problem::Problem;
use super::validate::Violations;
use super::{query, request};
use crate::auth::Caller;
use crate::domain::{Command, Disposition, Renewal, Revision, Run, RunKey, Violation};
use crate::wire::from_domain::FromDomain as _;
use runledger_proto::v1;
use runledger_proto::v1::run_command::Command as Of;
use uuid::Uuid;

/// Commands of one call at most.
pub const COMMANDS_MAX: usize = 1_000;

/// Bytes of a result's tag and length in the answer, and of those of a run in it.
const FRAME_BYTES: usize = 2 * 5;

/// What a call asks for.
#[derive(Debug)]
pub struct Commands {
    /// The commands, as they came.
    pub commands: Vec<v1::RunCommand>,
    /// Whether each result shows its run: true, with its metadata; false, without.
    pub full: Option<bool>,
}

/// The commands of an `ApplyCommands`.
///
/// # Errors
///
/// Every violation of the call. Those of a command are for its own result.
pub fn apply_commands(request: v1::ApplyCommandsRequest) -> Result<Commands, Vec<Violation>> {
    let mut violations = Violations::default();
    match request.commands.len() {
        0 => violations.push("commands", "is required: 1 to 1,000 commands"),
        1..=COMMANDS_MAX => {}
        more => violations.push("commands", format!("has {more} commands; the limit is {COMMANDS_MAX}")),
    }
    let full = request.view.map(|view| query::is_full(view, &mut violations));
    violations.settle(Commands { commands: request.commands, full })
}

/// One command, as its own call would make it.
#[derive(Debug)]
pub struct Made {
    pub command: Command,
    /// Whether the request named its run, so that a repetition meets the same run.
    pub names_run: bool,
    /// What is renewed once the command was applied.
    pub renewal: Option<(RunKey, Renewal)>,
}

/// The domain's command of one in the list.
///
/// # Errors
///
/// Every violation, by the fields of the command's own request.
pub fn command(command: v1::RunCommand, caller: &Caller, ledger: Uuid) -> Result<Made, Vec<Violation>> {
    let Some(of) = command.command else {
        return Err(vec![Violation::new("command", "is required: one of the commands that this release knows")]);
    };
    let (mut names_run, mut renewal) = (true, None);
    let command = match of {
        Of::Start(start) => {
            names_run = !start.run_id.is_empty();
            request::start_run(start, caller, ledger)
        }
        Of::Update(update) => {
            renewal = update_renewal(&update, caller);
            request::update_run(update, caller)
        }
        Of::Complete(complete) => request::complete_run(complete, caller),
        Of::Abort(abort) => request::abort_run(abort, caller),
        Of::Fail(fail) => request::fail_run(fail, caller),
        Of::Claim(claim) => request::claim_run(claim, caller),
        Of::Release(release) => request::release_run(release, caller),
        Of::Suspend(suspend) => request::suspend_run(suspend, caller),
        Of::RequestAbort(ask) => request::request_abort(ask, caller),
    }?;
    Ok(Made { command, names_run, renewal })
}

/// Writes the answer: results in order, within the bytes that an answer has.
#[derive(Debug)]
pub struct Results {
    full: Option<bool>,
    bytes_left: usize,
    /// Of the runs that are shown so far.
    run_bytes: usize,
    errors: ListedErrors,
    answer: v1::ApplyCommandsResponse,
}

impl Results {
    /// An answer of so many bytes at most, without a result. `full`: see [`Commands::full`].
    #[must_use]
    pub fn new(full: Option<bool>, bytes_max: usize) -> Self {
        Self {
            full,
            bytes_left: bytes_max,
            run_bytes: 0,
            errors: ListedErrors::default(),
            answer: v1::ApplyCommandsResponse::default(),
        }
    }

    /// The result of a command that was answered.
    pub fn done(&mut self, run_id: &str, run: &Run, disposition: Disposition, current_revision: Revision) {
        let shown = self.shown(run);
        self.push(v1::CommandResult {
            run_id: run_id.to_owned(),
            disposition: v1::Disposition::from_domain(disposition).into(),
            revision: run.revision.into(),
            current_revision: current_revision.into(),
            status: v1::RunStatus::from_domain(run.status).into(),
            lease_epoch: run.supervision.lease.map(|lease| lease.epoch.into()).unwrap_or_default(),
            abort_requested: run.supervision.abort_request.is_some(),
            run: shown,
            ..v1::CommandResult::default()
        });
    }

    /// The run as the call wants it, as long as there is room: what is never shown is not kept until the last answer.
    fn shown(&mut self, run: &Run) -> Option<v1::Run> {
        let full = self.full?;
        if self.run_bytes > self.bytes_left {
            self.answer.runs_left_out += 1;
            return None;
        }
        let mut shown = v1::Run::from_domain(run);
        if !full {
            shown.metadata = None;
        }
        self.run_bytes += shown.encoded_len();
        Some(shown)
    }

    /// The result of a command that was not. Without a `run_id`, it is not known to be one.
    pub fn failed(&mut self, run_id: Option<&str>, problem: Problem) {
        let (error, details_left_out) = self.errors.next(problem);
        let (run_id, error) = (run_id.unwrap_or_default().to_owned(), Some(error));
        self.push(v1::CommandResult { run_id, error, details_left_out, ..Default::default() });
    }

    fn push(&mut self, result: v1::CommandResult) {
        self.answer.results.push(result);
    }

    /// The answer: runs are left out from the first one on for which there is no room.
    #[must_use]
    pub fn answer(mut self) -> v1::ApplyCommandsResponse {
        let (results, left) = (&mut self.answer.results, &mut self.bytes_left);
        let bare = |result: &v1::CommandResult| {
            let run = result.run.as_ref().map_or(0, prost::Message::encoded_len);
            result.encoded_len() - run + FRAME_BYTES
        };
        *left = left.saturating_sub(results.iter().map(bare).sum());
        for result in results {
            let run = result.run.as_ref().map_or(0, prost::Message::encoded_len);
            if run > *left {
                // Whoever reads the answer learns of the first one: those after it are not shown out of turn.
                *left = 0;
                result.run = None;
                self.answer.runs_left_out += 1;
            } else {
                *left -= run;
            }
        }
        self.answer
    }
}
