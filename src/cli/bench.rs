//! `runledger bench`.

mod fill;

use std::cell::OnceCell;

use clap::{Args, Subcommand};
use tokio::signal::unix::SignalKind;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use self::fill::FillArgs;
use super::connect;
use super::exit::Stop;
use super::output::{Output, tell};
use crate::stdio;
use crate::tasks::signals::Signals;
use crate::telemetry::chain;
use runledger_bench::BenchError;
use runledger_bench::leases::{claims, heartbeats};
use runledger_bench::load::{self, HotRunPlan, Plan, ReadPlan, Workload};
use runledger_bench::overload;
use runledger_bench::progress;
use runledger_bench::report::Report;
use runledger_bench::servers::Reach;
use runledger_bench::watch::{catch_up, delay, idle, waiters};

macro_rules! exit_codes {
    () => {
        "Ctrl-C or SIGTERM ends it with what was measured so far, a second one at once.\n\
         Exit codes: 0 measured; 1 refused, or the measurement failed, or the output cannot be written; 2 usage; 3 \
         unreachable; 130 after Ctrl-C, and 143 after SIGTERM."
    };
}

macro_rules! help {
    ($($text:expr),* $(,)?) => { concat!($($text,)* "\n", exit_codes!()) };
}

pub(super) const HELP: &str = help!(
    "Examples:\n  \
    runledger bench lifecycle --callers 512 --seconds 30\n  \
    runledger bench start-complete --versus chatty,one-statement --database postgres://app@db/runs\n  \
    runledger bench watch delay --rate 1000 --seconds 30\n  \
    runledger bench watch catch-up --output json\n  \
    runledger bench fill 100000 --server 10.0.0.7:50051\n\n\
    It is a client of a server that runs. It writes runs of its own and ends them, and the ledger keeps \
    their events: use a ledger that may have them.\n"
);

macro_rules! comparison {
    () => {
        "\n\
        --versus writes the same transitions directly to Postgres, with prepared statements over as many connections as \
        there are callers, 64 at most: one row a run, one row an event, with the checks that keep a run's history \
        sound. Runledger and the baselines take turns in each round, in an order that alternates. `ratios` is Runledger \
        over each of them by round, with the median and the spread: more transitions a second are better, and a smaller \
        p50. The schema runledger_bench of that database is dropped first and last.\n"
    };
}

macro_rules! load_help {
    ($($text:expr),* $(,)?) => { help!(
        $($text,)*
        "\n\
        A caller calls again once it was answered; with --rate, calls are made at their times, and what is late counts \
        from then. Transitions are counted when the answer says that this call made its event; any other answer ends \
        the measurement.\n\n\
        --output json is one object: `bench` and `did` say what was done, `numbers` and `delays_ms` are of all rounds \
        together (Runledger's alone), `rounds` has the same of each when there are several. `events_written` is all that the ledger got, \
        the warm-up's too. Delays are in milliseconds: count, p50, p90, p99, p99_9, max.\n"
    ) };
}

const LIFECYCLE_HELP: &str = load_help!(
    "Examples:\n  \
    runledger bench lifecycle --callers 512 --seconds 30\n  \
    runledger bench lifecycle --rate 200 --server 10.0.0.7:50051,10.0.0.8:50051\n  \
    runledger bench lifecycle --lifecycle openchrome.task\n  \
    runledger bench lifecycle --versus one-statement --database postgres://app@db/runs\n",
    comparison!()
);

const START_COMPLETE_HELP: &str = load_help!(
    "Examples:\n  \
    runledger bench start-complete --callers 1 --seconds 30\n  \
    runledger bench start-complete --callers 4 --batch 100\n  \
    runledger bench start-complete --callers 512 --rounds 5 --metadata-bytes 60000 --output json\n  \
    runledger bench start-complete --versus chatty,one-statement --database postgres://app@db/runs\n  \
    runledger bench start-complete --versus chatty --pgbench pgbench --database postgres://app@db/runs\n",
    comparison!()
);

const HOT_RUN_HELP: &str = load_help!(
    "Examples:\n  \
    runledger bench hot-run --callers 64\n  \
    runledger bench hot-run --callers 64 --runs 8 --request-ids\n  \
    runledger bench hot-run --callers 64 --versus one-statement --database postgres://app@db/runs\n",
    comparison!()
);

const READ_HELP: &str = load_help!(
    "Examples:\n  \
    runledger bench read --callers 512\n  \
    runledger bench read --rate 2000 --runs 10000\n"
);

const WAIT_HELP: &str = load_help!(
    "Examples:\n  \
    runledger bench wait --callers 64\n  \
    runledger bench wait --callers 64 --server 10.0.0.7:50051,10.0.0.8:50051\n\n\
    Each caller's wait is open for a call's time before its run is completed.\n"
);

const OVERLOAD_HELP: &str = help!(
    "Examples:\n  \
    runledger bench overload --callers 8000\n  \
    runledger bench overload --rate 20000 --deadline-ms 2000 --connections 32\n\n\
    A call is acknowledged when its answer came in its time, counted from when it was due, and late when it did not; \
    refused when the server said OVERLOADED; failed with any other answer; unsent when so many were open that this \
    program made no more. Delays, of refusals too, count from when a call was due, so that they hold what it waited \
    for in this program: where much is late or unsent, or the server's refusals are slow, look at this program's \
    processors before you blame the server. Calls that are late are given up, for many of which a client's HTTP/2 may \
    end its connection.\n"
);

const WATCH_HELP: &str = help!(
    "Examples:\n  \
    runledger bench watch delay --rate 0\n  \
    runledger bench watch idle --watchers 5000 --server-pid 4711\n  \
    runledger bench watch catch-up --events 100000\n  \
    runledger bench watch waiters --waiters 10000\n"
);

const LEASES_HELP: &str = help!(
    "Examples:\n  \
    runledger bench leases heartbeats --runs 20000 --every 10 --seconds 600\n  \
    runledger bench leases claims --runs 10000 --workers 50\n"
);

const HEARTBEATS_HELP: &str = help!(
    "Example:\n  \
    runledger bench leases heartbeats --runs 20000 --every 10 --seconds 600 --server-pid 4711\n\n\
    Heartbeats are sent at their times, whether or not earlier ones were answered.\n"
);

const CLAIMS_HELP: &str = help!(
    "Examples:\n  \
    runledger bench leases claims --runs 10000 --workers 50 --server 10.0.0.7:50051,10.0.0.8:50051\n  \
    runledger bench leases claims --runs 10000 --workers 50 --instances 100\n\n\
    A run that is taken twice, or never, ends the measurement as failed.\n"
);

const FILL_HELP: &str = help!(
    "Examples:\n  \
    runledger bench fill 100000 --server 10.0.0.7:50051\n  \
    runledger bench fill 10000000 --seed 2 --callers 512 --server 10.0.0.7:50051,10.0.0.8:50051\n\n\
    The runs have three events on average, 200 bytes of metadata, agents, and task threads of ten runs, some of 100,000. \
    N is how many runs of the seed there are at the end: after a fill that was ended early, the same one goes on where it \
    stopped; with another seed, it adds N others. What goes on is a fill that this command of this release began. Two \
    fills of one seed are not made at once.\n\
    A run is three calls, so that a fill is as fast as its servers: some thousand runs a second. A run takes about 3.4 kB \
    on Postgres and 2.3 kB in a file. Before you measure on Postgres, VACUUM (FREEZE, ANALYZE) its tables. There is no \
    way back but to drop the database.\n"
);

const DELAY_HELP: &str = help!(
    "Examples:\n  \
    runledger bench watch delay --rate 0 --seconds 30\n  \
    runledger bench watch delay --rate 1000 --server 10.0.0.7:50051 --watch-server 10.0.0.8:50051\n  \
    runledger bench watch delay --of run --watchers 100 --rate 1000\n\n\
    Both ends are this process and one clock. Each change of each watcher is one delay.\n"
);

const IDLE_HELP: &str = help!(
    "Example:\n  \
    runledger bench watch idle --watchers 5000 --server-pid 4711\n\n\
    Memory is the resident memory that the server gained, the connections' included.\n"
);

const CATCH_UP_HELP: &str = help!(
    "Examples:\n  \
    runledger bench watch catch-up --events 100000\n  \
    runledger bench watch catch-up --cursor AbCd --watchers 1\n\n\
    The time is from the call to the last event, for the slowest watcher.\n"
);

const WAITERS_HELP: &str = help!(
    "Examples:\n  \
    runledger bench watch waiters --waiters 10000 --runs 100\n  \
    runledger bench watch waiters --waiters 10000 --runs 1 --rate 0\n\n\
    Waits do not say when they have arrived: give them the --seconds that it takes.\n"
);

#[derive(Args, Debug)]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    what: What,
    /// The named context that says what the flags and the environment do not [default: the current one]
    #[arg(long, global = true, env = "RUNLEDGER_CONTEXT", value_name = "NAME", help_heading = "Connection")]
    context: Option<String>,
    /// Form of the output
    #[arg(long, short, global = true, value_name = "FORMAT", value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Start runs, update each twice, complete them
    #[command(after_help = LIFECYCLE_HELP)]
    Lifecycle(Plan),
    /// Start runs and complete them
    #[command(after_help = START_COMPLETE_HELP)]
    StartComplete(Plan),
    /// Update few runs from many callers
    #[command(after_help = HOT_RUN_HELP)]
    HotRun(HotRunPlan),
    /// Read runs
    #[command(after_help = READ_HELP)]
    Read(ReadPlan),
    /// Start runs and complete them while somebody waits for each
    #[command(after_help = WAIT_HELP)]
    Wait(Plan),
    /// Ask for more than the server can do, and count what it still does
    #[command(after_help = OVERLOAD_HELP)]
    Overload(overload::Plan),
    /// Watches and waits: their delays, what they cost, and how they catch up
    #[command(after_help = WATCH_HELP)]
    Watch(WatchArgs),
    /// Leases: what it costs to keep runs alive, and how fast work is claimed
    #[command(after_help = LEASES_HELP)]
    Leases(LeasesArgs),
    /// Write many finished runs, to measure what servers do on a large ledger
    #[command(after_help = FILL_HELP, mut_args = fill::without_substitute)]
    Fill(FillArgs),
}

#[derive(Args, Debug)]
struct LeasesArgs {
    #[command(subcommand)]
    mode: LeasesMode,
}

#[derive(Debug, Subcommand)]
enum LeasesMode {
    /// Hold many runs by heartbeats
    #[command(after_help = HEARTBEATS_HELP)]
    Heartbeats(heartbeats::Plan),
    /// Let workers claim and complete pending runs
    #[command(after_help = CLAIMS_HELP)]
    Claims(claims::Plan),
}

#[derive(Args, Debug)]
struct WatchArgs {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// Delay from a commit to those who watch
    #[command(after_help = DELAY_HELP)]
    Delay(delay::Plan),
    /// Cost of watchers for whom nothing happens
    #[command(after_help = IDLE_HELP)]
    Idle(idle::Plan),
    /// Time in which a watcher that was away sees what it missed
    #[command(after_help = CATCH_UP_HELP)]
    CatchUp(catch_up::Plan),
    /// Delay of the answers to waits for a run's end, and the cost of the waits until then
    #[command(after_help = WAITERS_HELP)]
    Waiters(waiters::Plan),
}

impl What {
    /// The servers that are called and the way to them.
    fn reach(&mut self) -> Reach<'_> {
        match self {
            Self::Lifecycle(plan) | Self::StartComplete(plan) | Self::Wait(plan) => plan.reach(),
            Self::HotRun(plan) => plan.reach(),
            Self::Read(plan) => plan.reach(),
            Self::Overload(plan) => plan.reach(),
            Self::Watch(WatchArgs { mode: Mode::Delay(plan) }) => plan.reach(),
            Self::Watch(WatchArgs { mode: Mode::Idle(plan) }) => plan.reach(),
            Self::Watch(WatchArgs { mode: Mode::CatchUp(plan) }) => plan.reach(),
            Self::Watch(WatchArgs { mode: Mode::Waiters(plan) }) => plan.reach(),
            Self::Leases(LeasesArgs { mode: LeasesMode::Heartbeats(plan) }) => plan.reach(),
            Self::Leases(LeasesArgs { mode: LeasesMode::Claims(plan) }) => plan.reach(),
            Self::Fill(fill) => fill.reach(),
        }
    }
}

pub(super) async fn run(mut args: BenchArgs) -> Result<(), Stop> {
    if let What::Fill(fill) = &mut args.what {
        fill.told_where(args.context.as_deref())?;
    }
    let (servers, access) = args.what.reach();
    let target = connect::target(args.context.as_deref(), servers, access)?;
    (*servers, *access) = (target.servers, target.access);
    // A picture is left out while one before it is not taken.
    progress::draw_by(|picture| {
        if stdio::err().is_written() {
            stdio::err().say(picture);
        }
    });
    let stop = CancellationToken::new();
    let stopped_by = OnceCell::new();
    let signals = Signals::caught(&[SignalKind::interrupt(), SignalKind::terminate()]);
    let signals = signals.map_err(|error| Stop::Undone(format!("signals cannot be caught: {error}")))?;
    let report = tokio::select! {
        biased;
        measured = measure(&args.what, &stop) => measured?,
        second = stopped(signals, &stop, &stopped_by) => return Err(Stop::Signal(second)),
    };
    let text = match args.output {
        Output::Table => report.to_string(),
        Output::Json => format!("{}\n", report.json()),
    };
    let signals = Signals::caught(&[SignalKind::interrupt(), SignalKind::terminate()]);
    let mut signals = signals.map_err(|error| Stop::Undone(format!("signals cannot be caught: {error}")))?;
    // On a thread of its own, since nobody may read it.
    tokio::select! {
        biased;
        told = spawn_blocking(move || tell(&text)) => told.map_err(std::io::Error::from)??,
        number = signals.next() => return Err(Stop::Signal(number)),
    }
    match stopped_by.into_inner() {
        Some(number) if report.interrupted => Err(Stop::Signal(number)),
        Some(_) | None => Ok(()),
    }
}

impl From<BenchError> for Stop {
    fn from(error: BenchError) -> Self {
        let sentence = chain(&error);
        if let BenchError::Senseless(sentence) = error {
            return Self::Usage(sentence);
        }
        if error.is_unreachable() { Self::Unreachable(sentence) } else { Self::Undone(sentence) }
    }
}

async fn measure(what: &What, stop: &CancellationToken) -> Result<Report, BenchError> {
    match what {
        What::Lifecycle(plan) => load::measure(Workload::Lifecycle, plan, stop).await,
        What::StartComplete(plan) => load::measure(Workload::StartComplete, plan, stop).await,
        What::HotRun(plan) => plan.measure(stop).await,
        What::Read(plan) => plan.measure(stop).await,
        What::Wait(plan) => load::measure(Workload::Wait, plan, stop).await,
        What::Overload(plan) => overload::measure(plan, stop).await,
        What::Watch(WatchArgs { mode: Mode::Delay(plan) }) => delay::measure(plan, stop).await,
        What::Watch(WatchArgs { mode: Mode::Idle(plan) }) => idle::measure(plan, stop).await,
        What::Watch(WatchArgs { mode: Mode::CatchUp(plan) }) => catch_up::measure(plan, stop).await,
        What::Watch(WatchArgs { mode: Mode::Waiters(plan) }) => waiters::measure(plan, stop).await,
        What::Leases(LeasesArgs { mode: LeasesMode::Heartbeats(plan) }) => heartbeats::measure(plan, stop).await,
        What::Leases(LeasesArgs { mode: LeasesMode::Claims(plan) }) => claims::measure(plan, stop).await,
        What::Fill(fill) => runledger_bench::fill::measure(&fill.plan, stop).await,
    }
}

/// The first signal asks for what there is, the second is not waited for. Gives the second.
async fn stopped(mut signals: Signals, stop: &CancellationToken, first: &OnceCell<u8>) -> u8 {
    let number = signals.next().await;
    first.set(number).expect("it is set here only");
    stop.cancel();
    signals.next().await
}
