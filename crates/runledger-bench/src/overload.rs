//! The work that a server still does when it is asked for more than it can do.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use super::BenchError;
use super::delays::Delays;
use super::process::Usage;
use super::progress::Progress;
use super::report::{Number, Report, per_second};
use super::runs::Runs;
use super::servers::{Connections, Reach, Servers};
use runledger_proto::chain;
use runledger_proto::v1::UpdateRunRequest;

/// The runs that are updated.
const RUNS: u64 = 1_000;

/// Calls that may be open: more are not made, and counted as such.
const OPEN_MAX: usize = 65_536;

/// The settings of the measurement.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// Calls to make in a second, whatever becomes of earlier ones
    #[arg(long, value_name = "N", conflicts_with = "callers")]
    rate: Option<NonZeroU32>,
    /// Callers, each of which calls again once it was answered; who is refused waits as the refusal says
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    callers: u32,
    /// Call again at once after a refusal
    #[arg(long, conflicts_with = "rate")]
    impatient: bool,
    /// Time that a caller waits for its answer, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    deadline_ms: u32,
    /// Time to measure, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Time to call before that, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    warm_up: u32,
    #[command(flatten)]
    servers: Servers,
}

impl Plan {
    /// The servers that are called, and the way to them.
    pub fn reach(&mut self) -> Reach<'_> {
        self.servers.reach()
    }
}

/// Lets callers call, and counts what becomes of their calls: acknowledged, refused, or given up.
///
/// # Errors
///
/// The runs could not be started or ended.
pub async fn measure(plan: &Plan, stop: &CancellationToken) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let meter = plan.servers.meter()?;
    let (connections, _) = plan.servers.connect().await?;
    let runs = Runs::new(connections.clone());
    let started = runs.start_all(RUNS, &progress, stop).await?;
    let begun = Instant::now();
    let measured_from = begun + Duration::from_secs(plan.warm_up.into());
    let load = Load {
        connections,
        runs: runs.clone(),
        deadline: Duration::from_millis(plan.deadline_ms.into()),
        impatient: plan.impatient,
        measured_from,
        until: measured_from + Duration::from_secs(plan.seconds.into()),
        tally: Arc::new(Mutex::new(Tally::new())),
    };
    progress.say("calls");
    let used = async {
        until(load.measured_from, stop).await;
        let before = meter.usage()?;
        until(load.until, stop).await;
        Ok::<_, BenchError>((before.zip(meter.usage()?), load.measured_from.elapsed()))
    };
    let made = async {
        match plan.rate {
            Some(rate) => load.open(rate, stop).await,
            None => load.closed(plan.callers, stop).await,
        }
    };
    let (used, made) = tokio::join!(used, made);
    made?;
    let (used, measured) = used?;
    // The connections may have suffered: what was measured is not lost for that.
    let ended = match runs.complete_all(started, &progress).await {
        Ok(()) => None,
        Err(error) => Some(format!("its runs were not ended: {}", chain(&error))),
    };
    let tally = load.tally.lock();
    let mut report = plan.report(&tally, used, measured.min(load.until - load.measured_from), stop.is_cancelled());
    report.notes.extend(ended);
    Ok(report)
}

/// Waits until then, or for the stop.
async fn until(then: Instant, stop: &CancellationToken) {
    tokio::select! {
        () = sleep_until(then) => {}
        () = stop.cancelled() => {}
    }
}

/// A load of calls, and the tally of their results.
#[derive(Clone, Debug)]
struct Load {
    connections: Connections,
    runs: Runs,
    deadline: Duration,
    impatient: bool,
    measured_from: Instant,
    until: Instant,
    tally: Arc<Mutex<Tally>>,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Acknowledged,
    /// Refused by the server, which says when to come back.
    Refused(Duration),
    /// The call's time was over.
    Late,
    /// Anything else.
    Failed,
    /// The call was not made.
    Unsent,
}

impl Load {
    async fn open(&self, rate: NonZeroU32, stop: &CancellationToken) -> Result<(), BenchError> {
        let begun = Instant::now();
        let mut calls = JoinSet::new();
        for number in 0_u64.. {
            let due = begun + Duration::from_secs(number) / rate.get();
            if due >= self.until || stop.is_cancelled() {
                break;
            }
            until(due, stop).await;
            while let Some(done) = calls.try_join_next() {
                done?;
            }
            if calls.len() < OPEN_MAX {
                let load = self.clone();
                calls.spawn(async move {
                    let _noted = load.call(number, due).await;
                });
            } else {
                self.note(Fate::Unsent, due);
            }
        }
        while let Some(done) = calls.join_next().await {
            done?;
        }
        Ok(())
    }

    async fn closed(&self, callers: u32, stop: &CancellationToken) -> Result<(), BenchError> {
        let mut calling = JoinSet::new();
        let made = Arc::new(AtomicU64::new(0));
        for _ in 0..callers {
            let (load, made, stop) = (self.clone(), made.clone(), stop.clone());
            calling.spawn(async move {
                while Instant::now() < load.until && !stop.is_cancelled() {
                    let number = made.fetch_add(1, Ordering::Relaxed);
                    if let Fate::Refused(retry_after) = load.call(number, Instant::now()).await
                        && !load.impatient
                    {
                        until(Instant::now() + retry_after, &stop).await;
                    }
                }
            });
        }
        while let Some(done) = calling.join_next().await {
            done?;
        }
        Ok(())
    }

    async fn call(&self, number: u64, due: Instant) -> Fate {
        let labels = [("step".to_owned(), number.to_string())].into();
        let run_id = self.runs.run_id(number % RUNS);
        let mut request = Request::new(UpdateRunRequest { run_id, labels, ..UpdateRunRequest::default() });
        request.set_timeout(self.deadline);
        let fate = match self.connections.of(number).update_run(request).await {
            Ok(_) if due.elapsed() <= self.deadline => Fate::Acknowledged,
            Ok(_) => Fate::Late,
            Err(status) => fate(&status),
        };
        self.note(fate, due);
        fate
    }

    fn note(&self, fate: Fate, due: Instant) {
        if (self.measured_from..self.until).contains(&due) {
            self.tally.lock().note(fate, due.elapsed());
        }
    }
}

fn fate(status: &Status) -> Fate {
    match status.code() {
        Code::ResourceExhausted => {
            let retry = status.get_details_retry_info().and_then(|info| info.retry_delay);
            Fate::Refused(retry.unwrap_or_default())
        }
        Code::DeadlineExceeded | Code::Cancelled => Fate::Late,
        Code::Ok
        | Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => Fate::Failed,
    }
}

/// The counts of the calls.
#[derive(Debug)]
struct Tally {
    acknowledged: Delays,
    refused: Delays,
    late: u64,
    failed: u64,
    unsent: u64,
}

impl Tally {
    fn new() -> Self {
        Self { acknowledged: Delays::new(), refused: Delays::new(), late: 0, failed: 0, unsent: 0 }
    }

    fn note(&mut self, fate: Fate, took: Duration) {
        match fate {
            Fate::Acknowledged => self.acknowledged.record(took),
            Fate::Refused(_) => self.refused.record(took),
            Fate::Late => self.late += 1,
            Fate::Failed => self.failed += 1,
            Fate::Unsent => self.unsent += 1,
        }
    }
}

impl Plan {
    fn report(&self, tally: &Tally, used: Option<(Usage, Usage)>, time: Duration, interrupted: bool) -> Report {
        let (acknowledged, refused) = (tally.acknowledged.count(), tally.refused.count());
        let asked = acknowledged + refused + tally.late + tally.failed + tally.unsent;
        let mut numbers: Vec<(&'static str, Number)> = vec![
            ("asked_per_second", per_second(asked, time).into()),
            ("acknowledged_per_second", per_second(acknowledged, time).into()),
            ("refused_per_second", per_second(refused, time).into()),
            ("late_per_second", per_second(tally.late, time).into()),
            ("failed", tally.failed.into()),
            ("unsent", tally.unsent.into()),
            ("measured_seconds", time.as_secs_f64().into()),
        ];
        if let Some((before, after)) = used {
            numbers.extend([
                ("server_processors", after.processors_since(&before, time).into()),
                ("server_kib", after.resident_kib.into()),
            ]);
        }
        let who = match self.rate {
            Some(rate) => format!("{rate} calls a second"),
            None => format!("{} callers", self.callers),
        };
        Report {
            bench: "overload",
            did: format!(
                "{who} that wait {} ms, {} s after {} s, {}",
                self.deadline_ms,
                self.seconds,
                self.warm_up,
                self.servers.named()
            ),
            interrupted,
            numbers,
            delays_ms: vec![("acknowledged", tally.acknowledged.summary()), ("refused", tally.refused.summary())],
            ..Report::default()
        }
    }
}
