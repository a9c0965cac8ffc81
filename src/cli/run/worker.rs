//! `runledger run worker`: any program as a run. The worker starts or claims the run under a lease, keeps it alive by
//! heartbeats, tells the program of a request to abort it, and ends the run as the program ends.

mod children;
mod environment;
pub(super) mod guard;
pub(super) mod help;
mod program;
mod workdir;

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args};
use runledger_client::worker::{Cancellation, Claiming, Held, Job, Options, Outcome, Started, Task, Worker};
use runledger_client::{Failure, Kind};
use runledger_proto::{Struct, v1};
use rustix::process::Signal;
use tokio::signal::unix::SignalKind;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::environment::environment;
use self::guard::Guard;
use self::program::{Input, Program};
use self::workdir::Papers;
use crate::cli::connect::Server;
use crate::cli::exit::{Stop, say};
use crate::cli::fields::{self, JsonSource, Label, MaxRunning, at_least_one, labels, suspension_kind};
use crate::cli::words::status;
use crate::tasks::signals::Signals;
use crate::text::seconds_or_duration;

/// The reason why the program was told to end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Halt {
    /// A caller asked for the run to be aborted, for this reason.
    Abort(String),
    /// The run is not this worker's any more, or has ended.
    Lost,
    /// Somebody suspended the run.
    Suspended,
    /// The worker itself was told to end.
    Signal,
}

/// The exit status by which a program says that its run is to wait (`EX_TEMPFAIL` of sysexits.h).
const SUSPENDS: i32 = 75;

/// The exit status by which a program says that another attempt would fail as well (`EX_PROTOCOL` of sysexits.h, whose programs
/// find what they were told impossible).
const FAILS_FOR_GOOD: i32 = 76;

/// Longer than any worker lives.
const FAR: Duration = Duration::from_hours(24 * 365);

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("work").args(["claim", "task_thread_id"]).required(true).multiple(true))]
pub(super) struct WorkerArgs {
    /// Claim pending runs, and those whose claim was not begun or whose attempt failed, one after the other, instead of starting one: those that
    /// match the flags, the highest priority first, then the oldest
    #[arg(long, conflicts_with_all = ["run_id", "metadata"])]
    claim: bool,
    /// The orchestration task that the run belongs to
    #[arg(long, visible_alias = "task-thread", value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    task_thread_id: Option<String>,
    /// The run's workflow
    #[arg(long, visible_alias = "workflow", value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    workflow_id: Option<String>,
    /// A label; repeat it for more
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Label>,
    /// The run's id [default: the authority makes one]
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// The run's own data
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    metadata: Option<JsonSource>,
    /// Claim suspended runs that are ready to go on as well: the program can take one up where it was left
    #[arg(long, requires = "claim")]
    resumable: bool,
    /// What a program that ends with exit status 75 waits for: the run is suspended with this kind
    #[arg(long, value_name = "KIND", default_value = "HELP", value_parser = suspension_kind)]
    suspend_kind: String,
    /// Give the program what the run was given on its standard input
    #[arg(long)]
    input_on_stdin: bool,
    /// Pass over runs while N (1 to 100) with the same value of this label are running that were claimed so. All who
    /// claim such runs are to give the same limit
    #[arg(long, value_name = "LABEL=N", requires = "claim")]
    max_running: Option<MaxRunning>,
    /// End after this many claimed runs [default: never]
    #[arg(long, value_name = "N", requires = "claim", value_parser = at_least_one)]
    runs: Option<u64>,
    /// End when there is no run to claim for this long, or none that --max-running lets run [default: wait for ever]
    #[arg(long, value_name = "DURATION", requires = "claim", value_parser = seconds_or_duration)]
    idle: Option<Duration>,
    /// Time that the run lives without a heartbeat; a heartbeat is sent every third of it
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = seconds_or_duration)]
    lease_ttl: Duration,
    /// Time that the program may go on after SIGTERM; then SIGKILL. The end of an abort's grace may come sooner
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = seconds_or_duration)]
    kill_after: Duration,
    /// Time to try to report the run's end
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = seconds_or_duration)]
    report_for: Duration,
    #[command(flatten)]
    server: Server,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl WorkerArgs {
    fn labels(&self) -> Result<HashMap<String, String>, Stop> {
        labels(self.labels.clone())
    }
}

pub(super) async fn run(args: WorkerArgs) -> Result<(), Stop> {
    let target = args.server.target()?;
    let client = target.client()?;
    let called = target.environment(&client);
    let options = Options { lease_ttl: args.lease_ttl, report_for: args.report_for, cancel_grace: args.kill_after };
    let mut worker = Worker::new(client, options).with_notices(|notice| say(&notice.to_string()));
    let signals = Signals::caught(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]);
    let mut signals = signals.map_err(|error| Stop::Undone(format!("signals cannot be caught: {error}")))?;
    let orphans = children::takes_ends_of_orphans();
    let _orphans = orphans.map_err(|error| Stop::Undone(format!("signals cannot be caught: {error}")))?;
    let mut guard = Guard::start(args.kill_after.min(args.lease_ttl / 2));
    if !args.claim {
        let held = start(&args, &mut worker).await?;
        return Box::pin(work(&args, &called, &mut worker, &mut signals, &mut guard, held)).await;
    }
    let mut left = args.runs.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(held) = claim(&args, &mut worker, &mut signals).await? else { return Ok(()) };
        match Box::pin(work(&args, &called, &mut worker, &mut signals, &mut guard, held)).await {
            // The end of one run, whatever it is, is no reason not to take the next.
            Ok(()) | Err(Stop::Program(_)) => {}
            Err(Stop::Failed(failure)) if failure.kind == Kind::Refused => say(&failure.to_string()),
            Err(stop) => return Err(stop),
        }
        left -= 1;
    }
    Ok(())
}

async fn start(args: &WorkerArgs, worker: &mut Worker) -> Result<Held, Stop> {
    let request = v1::StartRunRequest {
        task_thread_id: args.task_thread_id.clone().unwrap_or_default(),
        run_id: args.run_id.clone().unwrap_or_default(),
        workflow_id: args.workflow_id.clone().unwrap_or_default(),
        labels: args.labels()?,
        metadata: fields::json("--metadata", args.metadata.as_ref())?,
        ..v1::StartRunRequest::default()
    };
    match worker.start(request).await? {
        Started::Held(held) => Ok(held),
        Started::Running(run) => {
            Err(Stop::Undone(format!("run {} is running already: it is not this worker's", run.run_id)))
        }
    }
}

/// The next run; none when there was none for as long as this worker waits.
async fn claim(args: &WorkerArgs, worker: &mut Worker, signals: &mut Signals) -> Result<Option<Held>, Stop> {
    let filter = v1::RunFilter {
        task_thread_id: args.task_thread_id.clone().unwrap_or_default(),
        workflow_id: args.workflow_id.clone().unwrap_or_default(),
        labels: args.labels()?,
        ..v1::RunFilter::default()
    };
    let max_running = args.max_running.as_ref().map(MaxRunning::message);
    let take = if args.resumable { v1::ClaimTake::Both } else { v1::ClaimTake::Pending };
    let claiming = Claiming { filter, max_running, take, idle: args.idle };
    let stop = CancellationToken::new();
    let mut claimed = pin!(worker.claim(&claiming, &stop));
    tokio::select! {
        claimed = &mut claimed => Ok(claimed?),
        number = signals.next() => {
            stop.cancel();
            // A run that was claimed in this moment is given back.
            let none = claimed.await?;
            debug_assert!(none.is_none(), "a claim that was stopped hands nothing out");
            Err(Stop::Signal(number))
        }
    }
}

/// Runs the program as the run, and reports how it ended.
async fn work(
    args: &WorkerArgs,
    called: &[(&'static str, Option<OsString>)],
    worker: &mut Worker,
    signals: &mut Signals,
    guard: &mut Guard,
    held: Held,
) -> Result<(), Stop> {
    let begins = if held.run.resumed_from.is_some() { "goes on" } else { "begins" };
    say(&format!("run {} {begins}, under the lease of epoch {}", held.run.run_id, held.epoch));
    let task = worker.begin(held.clone());
    let (task, papers) = laid_out(worker, signals, task, &held).await?;
    let papers_of_the_run = papers.environment().map(|(name, path)| (name, Some(path)));
    let environment: Vec<_> = environment(&held, called).into_iter().chain(papers_of_the_run).collect();
    let stdin = if args.input_on_stdin { Input::File(papers.input()) } else { Input::Inherited };
    let mut program = match Program::start(&args.command, &environment, stdin, task.job.clone()) {
        Ok(program) => program,
        Err(error) => {
            let reason = format!("{} cannot be started: {error}", args.command[0].display());
            report(task, failed(reason.clone(), "SPAWN_FAILED"), None).await?;
            return Err(Stop::Undone(reason));
        }
    };
    // Side by side: a guard that does not answer keeps no signal and no request from the program.
    let guarded = program.guarded(guard, papers.folder());
    let ((), ended) = tokio::join!(guarded, accompany(args, signals, &task.job, &mut program));
    let Ended { status: ended, told, stopped_by } = ended?;
    guard.watches(None, papers.folder()).await;
    let said = program.said().await;
    let is_its_own_end = matches!(told, None | Some(Halt::Signal));
    let waits = is_its_own_end && ended.code() == Some(SUSPENDS);
    let is_done = told.is_none() && ended.success();
    // A program that has suspended its run by itself has said more than its exit status does, and the pause of another
    // stays. But what is done is done, whoever paused it meanwhile.
    if is_its_own_end
        && !said.completed
        && let Some(suspension) = worker.suspension(&held).await?
        && (!is_done || suspension.lease_epoch == held.epoch)
    {
        say(&format!("run {} is suspended: {}: {}", held.run.run_id, suspension.kind, suspension.reason));
        return Err(ending(stopped_by, ended));
    }
    // Many a program ends with 0 when it is told to end: that alone does not say that it has done what the run is for.
    let completed = ended.success() && (said.completed || matches!(told, None | Some(Halt::Lost)));
    let Some(outcome) = outcome((args, &held.run), completed, told.as_ref(), ended, &said.last) else {
        return Err(ending(stopped_by, ended));
    };
    let (outcome, result) = with_result(outcome, papers.left());
    let is_invalid = completed && matches!(outcome, Outcome::Failed { .. });
    let mut lost = false;
    match (report(task, outcome, result).await, &told) {
        (Ok(()), _) => {}
        // The run was somebody else's before its program ended, which was said.
        (Err(failure), Some(Halt::Lost | Halt::Suspended)) if failure.kind == Kind::Refused => lost = true,
        (Err(failure), _) => return Err(failure.into()),
    }
    match (stopped_by, ended.code(), ended.signal()) {
        (Some(number), _, _) => Err(Stop::Signal(number)),
        _ if waits => Err(ending(None, ended)),
        (_, Some(0), _) if is_invalid => Err(Stop::Program(1)),
        (_, Some(0), _) if completed && !lost => Ok(()),
        (_, Some(0), _) => Err(Stop::Program(128 + 15)),
        (_, Some(code), _) => Err(Stop::Program(u8::try_from(code).unwrap_or(1))),
        (_, None, number) => Err(Stop::Program(128 + u8::try_from(number.unwrap_or(0)).unwrap_or(0))),
    }
}

/// What is reported of a program that has ended, with its last lines: none where whoever takes the run next goes on.
fn outcome(
    (args, run): (&WorkerArgs, &v1::Run),
    completed: bool,
    told: Option<&Halt>,
    ended: ExitStatus,
    last: &str,
) -> Option<Outcome> {
    let waits = ended.code() == Some(SUSPENDS);
    Some(match told {
        _ if completed => Outcome::Completed(None),
        Some(Halt::Abort(reason)) => Outcome::abort_requested(reason.clone()),
        Some(Halt::Signal) if !waits => stopped(run),
        None | Some(Halt::Signal) if waits => Outcome::Suspended {
            kind: if told.is_none() { args.suspend_kind.clone() } else { "INTERRUPTED".to_owned() },
            reason: last.lines().rfind(|line| !line.trim().is_empty()).map_or_else(|| how(ended), str::to_owned),
        },
        Some(Halt::Suspended) => return None,
        Some(Halt::Lost | Halt::Signal) | None => {
            let how = how(ended);
            let (reason, code) =
                (if last.is_empty() { how } else { format!("{how}\n{last}") }, "EXIT_STATUS".to_owned());
            match ended.code() {
                Some(FAILS_FOR_GOOD) => Outcome::FailedForGood { reason, code },
                Some(_) | None => Outcome::Failed { reason, code },
            }
        }
    })
}

/// The outcome with what the program left for the run, as far as it can be read.
fn with_result(outcome: Outcome, left: Result<Option<Struct>, String>) -> (Outcome, Option<Struct>) {
    match (left, outcome) {
        (Ok(result), outcome) => (outcome, result),
        (Err(fault), Outcome::Completed(_)) => {
            let reason = format!("what the program left in RUNLEDGER_RESULT {fault}");
            say(&reason);
            (failed(reason, "RESULT_INVALID"), None)
        }
        (Err(fault), outcome) => {
            say(&format!("what the program left in RUNLEDGER_RESULT {fault}: it is not reported"));
            (outcome, None)
        }
    }
}

/// Reads what the run was given, and writes it down for the program. Whatever keeps the program from its beginning ends
/// the run.
async fn laid_out(worker: &mut Worker, signals: &mut Signals, task: Task, held: &Held) -> Result<(Task, Papers), Stop> {
    let run_id = &held.run.run_id;
    let mut cancellations = task.job.cancellations();
    let (outcome, stop) = tokio::select! {
        biased;
        number = signals.next() => (stopped(&held.run), Stop::Signal(number)),
        cancellation = cancellations.next() => match cancellation {
            Cancellation::AbortRequested { reason, .. } => {
                say(&format!("run {run_id} is to be aborted: {reason}"));
                (Outcome::abort_requested(reason), Stop::Program(128 + 15))
            }
            Cancellation::LeaseLost(why) => {
                say(&format!("run {run_id} is not this worker's any more: {why}"));
                return Err(Stop::Program(128 + 15));
            }
            Cancellation::Suspended { kind, reason } => {
                say(&format!("run {run_id} was suspended: {kind}: {reason}"));
                return Err(Stop::Program(128 + 15));
            }
        },
        input = worker.input(held) => match input {
            Ok(input) => match Papers::laid_out(input.as_ref()) {
                Ok(papers) => return Ok((task, papers)),
                Err(error) => {
                    let reason = format!("no files can be made for the program: {error}");
                    (failed(reason.clone(), "SPAWN_FAILED"), Stop::Undone(reason))
                }
            },
            Err(failure) => {
                (failed(format!("what the run was given cannot be read: {failure}"), "SPAWN_FAILED"), failure.into())
            }
        },
    };
    report(task, outcome, None).await?;
    Err(stop)
}

/// The end of a run whose worker was told to end: of its attempt, where others are left.
fn stopped(run: &v1::Run) -> Outcome {
    let (reason, code) = ("its worker was told to end".to_owned(), "WORKER_STOPPED".to_owned());
    if run.attempt < run.max_attempts { Outcome::Failed { reason, code } } else { Outcome::Aborted { reason, code } }
}

/// Reports how the program ended, and says what became of the run.
async fn report(task: Task, outcome: Outcome, result: Option<Struct>) -> Result<(), Failure> {
    let run_id = task.job.run().run_id.clone();
    let ending = match &outcome {
        Outcome::Completed(_) => "completed".to_owned(),
        Outcome::Aborted { code, .. } => format!("aborted / {code}"),
        Outcome::Failed { code, .. } | Outcome::FailedForGood { code, .. } => format!("failed / {code}"),
        Outcome::Suspended { kind, reason } => {
            let (kind, reason) = (kind.clone(), reason.clone());
            let run = task.end_with(outcome, result).await?.run;
            say(&match run.suspension {
                Some(_) => format!("run {run_id} is suspended: {kind}: {reason}"),
                // Somebody had asked for it to be aborted.
                None => format!("run {run_id} has ended: {} / {}", status(run.status), run.reason_code),
            });
            return Ok(());
        }
    };
    let reported = task.end_with(outcome, result).await?;
    let goes_on = reported.run.last_failure.as_ref().filter(|_| reported.run.status() == v1::RunStatus::Running);
    say(&match reported.disposition {
        _ if let Some(failure) = goes_on => {
            let (failed, of) = (failure.attempt, reported.run.max_attempts);
            format!("attempt {failed} of {of} at run {run_id} has failed: the next claim begins another one")
        }
        v1::Disposition::RecordedLate => {
            format!("the authority had ended run {run_id}: how its program ended is kept as a late report")
        }
        v1::Disposition::Unchanged => format!("run {run_id} had ended before, and stays as it is"),
        v1::Disposition::Unspecified | v1::Disposition::Applied | v1::Disposition::Replayed => {
            format!("run {run_id} has ended: {ending}")
        }
    });
    Ok(())
}

/// How the worker ends after a program whose run is not this worker's to end.
fn ending(stopped_by: Option<u8>, ended: ExitStatus) -> Stop {
    match (stopped_by, ended.code()) {
        (Some(number), _) => Stop::Signal(number),
        (None, Some(code)) if code != 0 => Stop::Program(u8::try_from(code).unwrap_or(1)),
        (None, Some(_) | None) => Stop::Program(128 + 15),
    }
}

fn failed(reason: String, code: &str) -> Outcome {
    Outcome::Failed { reason, code: code.to_owned() }
}

/// The end of a program.
struct Ended {
    status: ExitStatus,
    told: Option<Halt>,
    /// The signal that told the worker to end.
    stopped_by: Option<u8>,
}

/// A moment so far ahead, or as far as there is time.
fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + FAR)
}

/// Waits for the program's end, and tells it to end where it must.
async fn accompany(args: &WorkerArgs, signals: &mut Signals, job: &Job, program: &mut Program) -> Result<Ended, Stop> {
    let mut cancellations = job.cancellations();
    let mut told = None;
    let mut stopped_by = None;
    let mut kill_at: Option<Instant> = None;
    loop {
        let kill = async {
            match kill_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = program.wait() => {
                let ended = ended.map_err(|error| Stop::Undone(format!("the program cannot be waited for: {error}")))?;
                if told.is_some() {
                    // The processes that the program left behind in its group must end too.
                    program.signal(Signal::KILL);
                }
                return Ok(Ended { status: ended, told, stopped_by });
            }
            number = signals.next() => {
                if stopped_by.is_some() {
                    program.signal(Signal::KILL);
                } else {
                    // A run that was lost stays so: it is not for this worker to end.
                    if told != Some(Halt::Lost) {
                        told = Some(Halt::Signal);
                    }
                    stopped_by = Some(number);
                    program.signal(Signal::TERM);
                    kill_at = Some(after(args.kill_after));
                }
            }
            cancellation = cancellations.next() => {
                let run_id = &job.run().run_id;
                let left = match cancellation {
                    Cancellation::AbortRequested { reason, left } => {
                        say(&format!("run {run_id} is to be aborted: {reason}"));
                        told = told.or(Some(Halt::Abort(reason)));
                        left.unwrap_or(args.kill_after).min(args.kill_after)
                    }
                    Cancellation::LeaseLost(why) => {
                        say(&format!("run {run_id} is not this worker's any more: {why}"));
                        told = Some(Halt::Lost);
                        args.kill_after
                    }
                    Cancellation::Suspended { kind, reason } => {
                        say(&format!("run {run_id} was suspended: {kind}: {reason}"));
                        told = told.or(Some(Halt::Suspended));
                        args.kill_after
                    }
                };
                program.signal(Signal::TERM);
                let at = after(left);
                kill_at = Some(kill_at.map_or(at, |other| other.min(at)));
            }
            () = kill => {
                program.signal(Signal::KILL);
                kill_at = None;
            }
        }
    }
}

fn how(ended: ExitStatus) -> String {
    match (ended.code(), ended.signal()) {
        (Some(code), _) => format!("the program ended with exit status {code}"),
        (None, Some(number)) => format!("the program was ended by signal {number}"),
        (None, None) => "the program ended".to_owned(),
    }
}
