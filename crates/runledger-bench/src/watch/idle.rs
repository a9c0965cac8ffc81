//! The cost of watchers for whom nothing happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::frames::{Told, Watch};
use super::{failed, real};
use crate::BenchError;
use crate::process::Usage;
use crate::progress::Progress;
use crate::report::{Number, Report};
use crate::runs::{AT_ONCE, Runs};
use crate::servers::{Client, Reach, Servers};

/// The settings of the measurement.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// Number of watchers
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..))]
    watchers: u32,
    /// Watchers in a hundred that watch one run each; the others watch all runs by a filter that matches none
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=100))]
    single: u32,
    /// Time that they stay, in seconds: each is due a checkpoint every 15
    #[arg(long, value_name = "SECONDS", default_value_t = 40)]
    seconds: u32,
    #[command(flatten)]
    servers: Servers,
}

impl Plan {
    /// The servers that are called, and the way to them.
    pub fn reach(&mut self) -> Reach<'_> {
        self.servers.reach()
    }
}

/// Opens watches that show nothing, and looks at what the server takes before and after.
///
/// # Errors
///
/// A call failed, or a watch ended.
pub async fn measure(plan: &Plan, stop: &CancellationToken) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let meter = plan.servers.meter()?;
    let (writer, reader) = plan.servers.connect_for(plan.watchers).await?;
    let runs = Runs::new(writer);
    let count = u64::from(plan.watchers);
    let single = count * u64::from(plan.single) / 100;
    progress.phase("runs", single);
    let single = runs.start_all(single, &progress, stop).await?;

    let mut usages = vec![meter.usage()?];
    progress.phase("watches", count);
    let begun = Instant::now();
    let opening = Arc::new(Semaphore::new(AT_ONCE));
    let checkpoints = Arc::new(AtomicU64::new(0));
    let (live, mut all_live) = watch::channel(0);
    let mut watchers = JoinSet::new();
    for number in 0..count {
        let idle = Idle { opening: opening.clone(), live: live.clone(), checkpoints: checkpoints.clone() };
        watchers.spawn(idle.watch(reader.of(number), runs.clone(), (number < single).then_some(number)));
    }
    tokio::select! {
        biased;
        error = failed(&mut watchers) => return Err(error),
        () = stop.cancelled() => {}
        _live = all_live.wait_for(|live| {
            progress.show(*live);
            *live == count
        }) => {}
    }
    let open = *all_live.borrow();
    let took = begun.elapsed();
    usages.push(meter.usage()?);
    progress.phase("the watches stay", 0);
    let held = Instant::now();
    tokio::select! {
        biased;
        error = failed(&mut watchers) => return Err(error),
        () = stop.cancelled() => {}
        () = sleep(Duration::from_secs(plan.seconds.into())) => {}
    }
    let held = held.elapsed();
    usages.push(meter.usage()?);
    watchers.shutdown().await;
    runs.complete_all(single, &progress).await?;

    let mut numbers: Vec<(&'static str, Number)> = vec![
        ("watchers", open.into()),
        ("open_seconds", took.as_secs_f64().into()),
        ("held_seconds", held.as_secs_f64().into()),
        ("checkpoints", checkpoints.load(Ordering::Relaxed).into()),
    ];
    let notes = match usages[..] {
        [Some(before), Some(opened), Some(after)] => {
            numbers.extend(taken([before, opened, after], open, held));
            Vec::new()
        }
        _ => vec!["what the server takes is not known: give --server-pid, on its machine".to_owned()],
    };
    let did = format!(
        "{single} x WatchRun and {} x WatchRuns open for {:.1} s, {}",
        open.saturating_sub(single),
        held.as_secs_f64(),
        plan.servers.named()
    );
    Ok(Report { bench: "watch idle", did, interrupted: stop.is_cancelled(), numbers, notes, ..Report::default() })
}

/// Memory and processor time of the server: before the watches, when all are open, and after they stayed open.
fn taken([before, opened, after]: [Usage; 3], open: u64, held: Duration) -> [(&'static str, Number); 6] {
    let per_watcher = |usage: Usage| {
        let grown = usage.resident_kib.saturating_sub(before.resident_kib);
        Number::from(real(grown) / real(open.max(1)))
    };
    [
        ("server_kib_before", before.resident_kib.into()),
        ("server_kib_open", opened.resident_kib.into()),
        ("server_kib_held", after.resident_kib.into()),
        ("server_kib_per_watcher_open", per_watcher(opened)),
        ("server_kib_per_watcher_held", per_watcher(after)),
        ("server_processors_held", after.processors_since(&opened, held).into()),
    ]
}

/// A watch to which nothing happens.
struct Idle {
    /// Permits to open a watch: they bound the watches that are opened at once.
    opening: Arc<Semaphore>,
    /// The number of live watches.
    live: watch::Sender<u64>,
    checkpoints: Arc<AtomicU64>,
}

impl Idle {
    /// Watches a run, or all runs by a filter that matches none.
    async fn watch(self, client: Client, runs: Runs, run: Option<u64>) -> Result<(), BenchError> {
        let turn = self.opening.acquire().await.expect("never closed");
        let mut watch = match run {
            Some(run) => Watch::run(client, runs.run_id(run)).await?,
            None => Watch::runs(client, runs.nothing()).await?,
        };
        watch.caught_up().await?;
        drop(turn);
        self.live.send_modify(|live| *live += 1);
        loop {
            match watch.next().await? {
                Told::Checkpoint => drop(self.checkpoints.fetch_add(1, Ordering::Relaxed)),
                Told::Change { .. } | Told::CaughtUp(_) | Told::Other => {}
                Told::End => return Err(BenchError::Ended { rpc: "WatchRun" }),
            }
        }
    }
}
