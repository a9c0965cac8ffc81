//! `runledger run worker`: any program as a run. It is started or claimed under a lease, kept alive by heartbeats, told of
//! a request to abort it, and ended as it ends.

mod claims;
pub(super) mod guard;
mod heartbeats;
mod held;
mod program;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use clap::Args;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};

use self::guard::Guard;
use self::heartbeats::Heard;
use self::held::Held;
use self::program::Program;
use crate::cli::connect::{CALL_WAIT_MAX, Server};
use crate::cli::ending::{Stop, say};
use crate::cli::fields::{Label, MaxRunning, MetadataSource, duration};
use crate::clock;
use runledger_client::{Call, Client, Kind};
use runledger_proto::v1;

/// Why the program was told to end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// Somebody asked for the run to be aborted, for this reason.
    Abort(String),
    /// The run is not this worker's any more, or has ended.
    Lost,
    /// This worker was told to end.
    Signal,
}

/// The pause after a call that nobody served.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Longer than any worker lives.
const FAR: Duration = Duration::from_hours(24 * 365);

#[derive(Args, Debug)]
pub(super) struct WorkerArgs {
    /// Claim pending and ready runs, oldest first, one after the other, instead of starting one: those that match the flags
    #[arg(long, conflicts_with_all = ["run_id", "metadata"])]
    claim: bool,
    /// The orchestration task that the run belongs to
    #[arg(long, visible_alias = "task-thread", value_name = "ID", required_unless_present = "claim")]
    task_thread_id: Option<String>,
    /// The run's workflow
    #[arg(long, visible_alias = "workflow", value_name = "ID")]
    workflow_id: Option<String>,
    /// A label; repeat it for more
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Label>,
    /// The run's id [default: the authority makes one]
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// The run's own data
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    metadata: Option<MetadataSource>,
    /// Pass over runs while N (1 to 100) with the same value of this label are running that were claimed so. Whoever claims
    /// them is to say the same
    #[arg(long, value_name = "LABEL=N", requires = "claim")]
    max_running: Option<MaxRunning>,
    /// End after this many claimed runs [default: never]
    #[arg(long, value_name = "N", requires = "claim", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// End when there is no run to claim for this long, or none that --max-running lets run [default: wait for ever]
    #[arg(long, value_name = "DURATION", requires = "claim", value_parser = duration)]
    idle: Option<Duration>,
    /// How long the run lives without a heartbeat; they are sent every third of it
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    lease_ttl: Duration,
    /// How long the program may go on after SIGTERM; then SIGKILL. The end of an abort's grace may come sooner
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    kill_after: Duration,
    /// How long to try to report how it ended
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    report_for: Duration,
    #[command(flatten)]
    server: Server,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) async fn run(args: WorkerArgs) -> Result<(), Stop> {
    let mut client = args.server.client()?;
    let mut signals = Signals::caught()?;
    let mut guard = Guard::start(args.kill_after.min(args.lease_ttl / 2));
    if !args.claim {
        let run = start(&args, &mut client).await?;
        return work(&args, &mut client, &mut signals, &mut guard, run).await;
    }
    let mut left = args.runs.unwrap_or(u64::MAX);
    while left > 0 {
        let mut asked = request_id();
        let claimed = tokio::select! {
            claimed = claims::claim(&args, &mut client, &mut asked) => Ok(claimed?),
            number = signals.next() => Err(number),
        };
        let claimed = match claimed {
            Ok(claimed) => claimed,
            Err(number) => {
                claims::give_back(&args, &mut client, asked).await;
                return Err(Stop::Signal(number));
            }
        };
        let Some(run) = claimed else { return Ok(()) };
        match work(&args, &mut client, &mut signals, &mut guard, run).await {
            // How one run ended is no reason not to take the next.
            Ok(()) | Err(Stop::Program(_)) => {}
            Err(Stop::Failed(failure)) if failure.kind == Kind::Refused => say(&failure.to_string()),
            Err(stop) => return Err(stop),
        }
        left -= 1;
    }
    Ok(())
}

async fn start(args: &WorkerArgs, client: &mut Client) -> Result<Held, Stop> {
    let request = v1::StartRunRequest {
        task_thread_id: args.task_thread_id.clone().unwrap_or_default(),
        run_id: args.run_id.clone().unwrap_or_default(),
        workflow_id: args.workflow_id.clone().unwrap_or_default(),
        labels: args.labels.iter().cloned().map(|Label(key, value)| (key, value)).collect(),
        metadata: args.metadata.as_ref().map(MetadataSource::read).transpose()?,
        request_id: request_id(),
        lease_ttl: Some(runledger_proto::duration(args.lease_ttl)),
        ..v1::StartRunRequest::default()
    };
    let answer = client.ask(&request, Instant::now() + CALL_WAIT_MAX).await?;
    let run = answer.run.unwrap_or_default();
    if answer.disposition == i32::from(v1::Disposition::Unchanged) {
        return Err(Stop::Undone(format!("run {} is running already: it is not this worker's", run.run_id)));
    }
    Ok(Held::of(&run))
}

/// Runs the program as the run, and reports how it ended.
async fn work(
    args: &WorkerArgs,
    client: &mut Client,
    signals: &mut Signals,
    guard: &mut Guard,
    run: Held,
) -> Result<(), Stop> {
    say(&format!("run {} begins, under the lease of epoch {}", run.run_id, run.epoch));
    let of_run = [
        ("RUNLEDGER_RUN_ID", run.run_id.clone()),
        ("RUNLEDGER_TASK_THREAD_ID", run.task_thread_id.clone()),
        ("RUNLEDGER_LEASE_EPOCH", run.epoch.to_string()),
        ("RUNLEDGER_LABELS", run.labels.clone()),
        ("RUNLEDGER_METADATA", run.metadata.clone()),
        ("RUNLEDGER_SERVER", client.server().to_owned()),
    ];
    let mut program = match Program::start(&args.command, &of_run) {
        Ok(program) => program,
        Err(error) => {
            let reason = format!("{} cannot be started: {error}", args.command[0].display());
            let failed = report(args, client, &run.failed(reason.clone(), "SPAWN_FAILED")).await;
            return failed.and(Err(Stop::Undone(reason)));
        }
    };
    guard.watches(program.group()).await;
    let Ended { status: ended, told, stopped_by } = accompany(args, client, signals, &run, &mut program).await?;
    guard.watches(None).await;
    let said = program.said().await;
    // Many a program ends with 0 when it is told to end: that alone does not say that it has done what the run is for.
    let completed = ended.success() && (said.completed || matches!(told, None | Some(Told::Lost)));
    let reported = match &told {
        _ if completed => report(args, client, &run.completed()).await.map(|answer| answer.disposition()),
        Some(Told::Abort(reason)) => {
            let aborted = run.aborted(reason.clone(), "ABORT_REQUESTED");
            report(args, client, &aborted).await.map(|answer| answer.disposition())
        }
        Some(Told::Signal) => {
            let aborted = run.aborted("its worker was told to end".to_owned(), "WORKER_STOPPED");
            report(args, client, &aborted).await.map(|answer| answer.disposition())
        }
        Some(Told::Lost) | None => {
            let how = how(ended);
            let reason = if said.last.is_empty() { how } else { format!("{how}\n{}", said.last) };
            report(args, client, &run.failed(reason, "EXIT_STATUS")).await.map(|answer| answer.disposition())
        }
    };
    let mut lost = false;
    match (reported, &told) {
        (Ok(v1::Disposition::RecordedLate), _) => {
            say(&format!("the authority had ended run {}: how its program ended is kept as a late report", run.run_id));
        }
        (Ok(_), _) => {}
        // The run was somebody else's before its program ended, which was said.
        (Err(Stop::Failed(failure)), Some(Told::Lost)) if failure.kind == Kind::Refused => lost = true,
        (Err(stop), _) => return Err(stop),
    }
    match (stopped_by, ended.code(), ended.signal()) {
        (Some(number), _, _) => Err(Stop::Signal(number)),
        (_, Some(0), _) if completed && !lost => Ok(()),
        (_, Some(0), _) => Err(Stop::Program(128 + 15)),
        (_, Some(code), _) => Err(Stop::Program(u8::try_from(code).unwrap_or(1))),
        (_, None, number) => Err(Stop::Program(128 + u8::try_from(number.unwrap_or(0)).unwrap_or(0))),
    }
}

/// How a program ended.
struct Ended {
    status: ExitStatus,
    told: Option<Told>,
    /// The signal that told this worker to end.
    stopped_by: Option<u8>,
}

/// A moment so far ahead, or as far as there is time.
fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + FAR)
}

/// Waits for the program's end, and tells it to end where it must.
async fn accompany(
    args: &WorkerArgs,
    client: &Client,
    signals: &mut Signals,
    run: &Held,
    program: &mut Program,
) -> Result<Ended, Stop> {
    let mut beats = heartbeats::start(client.clone(), run.clone(), args.lease_ttl, program.progress.clone());
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
                    // What it started and left behind was to end too.
                    program.signal(Signal::KILL);
                }
                return Ok(Ended { status: ended, told, stopped_by });
            }
            number = signals.next() => {
                if stopped_by.is_some() {
                    program.signal(Signal::KILL);
                } else {
                    // A run that was lost stays so: it is not for this worker to end.
                    if told != Some(Told::Lost) {
                        told = Some(Told::Signal);
                    }
                    stopped_by = Some(number);
                    program.signal(Signal::TERM);
                    kill_at = Some(after(args.kill_after));
                }
            }
            Some(heard) = beats.heard.recv() => {
                let left = match heard {
                    Heard::Abort { reason, left } => {
                        say(&format!("run {} is to be aborted: {reason}", run.run_id));
                        told = told.or(Some(Told::Abort(reason)));
                        left.unwrap_or(args.kill_after).min(args.kill_after)
                    }
                    Heard::Lost(why) => {
                        say(&format!("run {} is not this worker's any more: {why}", run.run_id));
                        told = Some(Told::Lost);
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

/// Reports until it is answered, or for as long as it may take: what the program did is not to be lost.
async fn report<C: Call>(args: &WorkerArgs, client: &mut Client, call: &C) -> Result<C::Answer, Stop> {
    let until = after(args.report_for);
    let mut lost = false;
    loop {
        match client.ask(call, until.min(Instant::now() + CALL_WAIT_MAX)).await {
            Ok(answer) => return Ok(answer),
            Err(failure) if failure.kind == Kind::Refused || Instant::now() >= until => return Err(failure.into()),
            Err(failure) => {
                if !std::mem::replace(&mut lost, true) {
                    say(&format!("{failure} (trying again)"));
                }
                sleep(AGAIN_AFTER).await;
            }
        }
    }
}

/// Each call has an id of its own, so that it can be sent again.
fn request_id() -> String {
    format!("worker-{}", clock::draw_id())
}

fn how(ended: ExitStatus) -> String {
    match (ended.code(), ended.signal()) {
        (Some(code), _) => format!("the program ended with exit status {code}"),
        (None, Some(number)) => format!("the program was ended by signal {number}"),
        (None, None) => "the program ended".to_owned(),
    }
}

/// The signals that end a worker.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    /// From here on, none of them ends the process by itself.
    fn caught() -> Result<Self, Stop> {
        let caught = |kind| signal(kind).map_err(|error| Stop::Undone(format!("signals cannot be caught: {error}")));
        let (interrupt, terminate) = (caught(SignalKind::interrupt())?, caught(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, hangup: caught(SignalKind::hangup())? })
    }

    /// The next one, by its number.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
            _ = self.hangup.recv() => 1,
        }
    }
}
