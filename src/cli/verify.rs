//! `runledger verify`: whether a ledger's rows are what its events say.
//!
//! Every run is folded from its events and held against its row, and every event is looked at in its place in the log.
//! Servers may write meanwhile: each page is one snapshot, events never change, and a run's row is read before its
//! events.

mod beside;
mod difference;
mod places;
mod replay;
mod row_now;
mod runs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use indicatif::HumanCount;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

use self::difference::Difference;
use super::exit::Stop;
use super::ledger_access::{self, PATIENCE, Progress, counted, patiently, rate};
use super::output::tell;
use crate::config::StoreLocation;
use crate::domain::{LedgerEpoch, Shard};
use crate::store::StoreError;
use crate::store::inspect::Inspect;
use crate::telemetry::chain;
use crate::text::count;

/// Differences that are printed; all are counted.
const PRINTED_MAX: u64 = 100;

/// Pages that are read and checked at once: the store is there for others.
const AT_ONCE: usize = 2;

/// Differences on their way to the terminal.
const UNTOLD_MAX: usize = 256;

pub(super) const HELP: &str = "Examples:\n  \
    runledger verify\n  \
    runledger verify --store postgres://app:secret@db/runs --shard 0\n\n\
    Goes on while servers write, in short statements, and writes nothing. It replays every run's events against its \
    row, and checks that revisions and positions are dense, that times do not fall, and that the active runs are those \
    that are not terminal. SQLite is asked for its file as well, in one long read, meanwhile the write-ahead log of a \
    server grows (not with --shard). Each difference is named, the first 100 are printed.\n\n\
    Exit codes: 0 sound; 1 something differs, or the output cannot be written; 2 usage; 3 the store cannot be read.";

#[derive(Args, Debug)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    store: StoreLocation,
    /// Only this shard, from 0
    #[arg(long, value_name = "N", value_parser = count::<u16>)]
    shard: Option<u16>,
}

/// The state that the parts of a verification share.
struct Ledger {
    inspect: Arc<dyn Inspect>,
    differences: mpsc::Sender<Difference>,
    /// Events that were looked at: each once in its run's history and once in the log.
    events: AtomicU64,
    runs: AtomicU64,
}

impl Ledger {
    async fn found(&self, differences: &mut Vec<Difference>) {
        for difference in differences.drain(..) {
            // The receiver is gone once the verdict is printed.
            let _gone = self.differences.send(difference).await;
        }
    }

    fn count_events(&self, events: usize) {
        self.events.fetch_add(u64::try_from(events).unwrap_or(0), Ordering::Relaxed);
    }
}

pub(super) async fn run(args: VerifyArgs) -> Result<(), Stop> {
    let inspect = ledger_access::open(&args.store).await?;
    let shard_count = inspect.ledger().shard_count;
    if let Some(shard) = args.shard.filter(|shard| *shard >= shard_count) {
        let shards = format!("--shard {shard}: the ledger has the shards 0 to {}", shard_count - 1);
        return Err(Stop::Usage(shards));
    }
    let shards: Vec<Shard> =
        args.shard.map_or_else(|| (0..shard_count).collect(), |one| vec![one]).into_iter().map(Shard).collect();
    check(inspect, &shards, args.shard.is_none()).await
}

/// Checks the ledger, and prints every difference and the verdict.
async fn check(inspect: Arc<dyn Inspect>, shards: &[Shard], whole: bool) -> Result<(), Stop> {
    let begun = Instant::now();
    let ends = patiently(PATIENCE, || inspect.ends()).await?;
    let total: u64 = shards.iter().map(|shard| ends.of(*shard)).sum();
    let (sender, mut differences) = mpsc::channel(UNTOLD_MAX);
    let location = inspect.describe().location;
    let ledger = Arc::new(Ledger { inspect, differences: sender, events: AtomicU64::new(0), runs: AtomicU64::new(0) });
    let mut jobs = start(&ledger, shards, whole);

    let mut progress = Progress::shown(total * 2, "events");
    let mut tick = interval(Duration::from_millis(200));
    let (mut found, mut failed, mut told) = (0, None, Ok(()));
    let mut show = |progress: &Progress, difference: &Difference| {
        found += 1;
        if found <= PRINTED_MAX && told.is_ok() {
            told = progress.print(&difference.to_string());
        }
    };
    loop {
        tokio::select! {
            biased;
            Some(difference) = differences.recv() => show(&progress, &difference),
            _ = tick.tick() => progress.at(ledger.events.load(Ordering::Relaxed)),
            ended = jobs.join_next() => match ended {
                None => break,
                Some(Ok(Ok(()))) => {}
                // A row that cannot be read is one difference more; the other parts go on.
                Some(Ok(Err(error @ StoreError::Corrupt { .. }))) => show(&progress, &Difference::unreadable(&error)),
                Some(Ok(Err(error))) => {
                    failed = Some(error);
                    break;
                }
                Some(Err(panic)) => {
                    failed = Some(StoreError::Refused(panic.into()));
                    break;
                }
            },
        }
    }
    while let Ok(difference) = differences.try_recv() {
        show(&progress, &difference);
    }
    progress.end();
    told?;
    if found > PRINTED_MAX {
        tell(&format!("and {} more\n", HumanCount(found - PRINTED_MAX)))?;
    }
    if let Some(error) = failed {
        tell(&format!("NOT VERIFIED: {location} could not be read to its end: {}\n", chain(&error)))?;
        return Err(error.into());
    }
    let past = ledger.inspect.ledger();
    if past.epoch > LedgerEpoch::FIRST {
        tell(&format!("The ledger was restored or failed over, last in {}.\n", past.epoch_began()))?;
    }
    let looked_at = ledger.events.load(Ordering::Relaxed);
    let seen = format!(
        "{}, {}, {} in {:.1} s ({} events/s)",
        counted(ledger.runs.load(Ordering::Relaxed), "run"),
        counted(looked_at / 2, "event"),
        counted(shards.len() as u64, "shard"),
        begun.elapsed().as_secs_f64(),
        HumanCount(rate(looked_at / 2, begun.elapsed())),
    );
    if found == 0 {
        return Ok(tell(&format!("SOUND: {location}: {seen}\n"))?);
    }
    tell(&format!("NOT SOUND: {location}: {}: {seen}\n", counted(found, "difference")))?;
    Err(Stop::Unsound)
}

/// What the database finds in its own file.
async fn faults(ledger: &Ledger) -> Result<(), StoreError> {
    let faults = patiently(PATIENCE, || ledger.inspect.faults()).await?;
    ledger.found(&mut faults.iter().map(|fault| Difference::of_file(fault)).collect()).await;
    Ok(())
}

/// Two parts a shard, a few at once.
fn start(ledger: &Arc<Ledger>, shards: &[Shard], whole: bool) -> JoinSet<Result<(), StoreError>> {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut jobs = JoinSet::new();
    if whole {
        let (file, ledger) = (ledger.clone(), ledger.clone());
        jobs.spawn(async move { faults(&file).await });
        jobs.spawn(async move { places::shards(&ledger).await });
    }
    for shard in shards.iter().copied() {
        let (replaying, turn) = (ledger.clone(), turns.clone());
        jobs.spawn(async move {
            let _turn = turn.acquire().await;
            runs::replay(&replaying, shard).await
        });
        let (walking, turn) = (ledger.clone(), turns.clone());
        jobs.spawn(async move {
            let _turn = turn.acquire().await;
            places::walk(&walking, shard).await
        });
    }
    jobs
}
