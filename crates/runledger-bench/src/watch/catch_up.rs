//! The time in which a watcher that was away sees what it missed.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::frames::Watch;
use super::per_second;
use crate::BenchError;
use crate::pace;
use crate::progress::Progress;
use crate::report::{Number, Report};
use crate::runs::Runs;
use crate::servers::{Connections, Reach, Servers};
use runledger_proto::v1::RunFilter;

/// Callers that write what is missed.
const WRITERS: usize = 256;

/// The settings of the measurement.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// Number of events to write and to miss
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    events: u32,
    /// Write nothing: all runs' events after this cursor were missed, such as the one that an earlier measurement gave
    #[arg(long, value_name = "CURSOR", conflicts_with = "events")]
    cursor: Option<String>,
    /// Number of watchers that catch up at once, after one alone has
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    watchers: u32,
    #[command(flatten)]
    servers: Servers,
}

impl Plan {
    /// The servers that are called, and the way to them.
    pub fn reach(&mut self) -> Reach<'_> {
        self.servers.reach()
    }
}

/// The events that watchers have to catch up with.
struct Missed {
    cursor: String,
    filter: RunFilter,
    /// The number of these events, where it is known.
    events: Option<u64>,
}

/// The result of watchers that caught up.
struct CaughtUp {
    events: u64,
    /// The time until the last watcher had caught up.
    took: Duration,
    /// The processors that the server kept busy, where this is known.
    processors: Option<f64>,
}

/// Takes a cursor, writes, and watches from the cursor: alone, and then many at once.
///
/// # Errors
///
/// A call failed, or events are missing.
pub async fn measure(plan: &Plan, stop: &CancellationToken) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let (writer, reader) = plan.servers.connect().await?;
    let mut numbers: Vec<(&'static str, Number)> = Vec::new();
    let missed = if let Some(cursor) = &plan.cursor {
        Missed { cursor: cursor.clone(), filter: RunFilter::default(), events: None }
    } else {
        let begun = Instant::now();
        let (missed, events) = written(plan, Runs::new(writer), &reader, &progress, stop).await?;
        let took = begun.elapsed();
        numbers.extend([
            ("write_seconds", took.as_secs_f64().into()),
            ("write_events_per_second", per_second(events, took).into()),
        ]);
        missed
    };
    let one = caught_up(plan, &missed, &reader, 1, &progress).await?;
    numbers.extend([
        ("events", one.events.into()),
        ("one_seconds", one.took.as_secs_f64().into()),
        ("one_events_per_second", per_second(one.events, one.took).into()),
    ]);
    numbers.extend(one.processors.map(|processors| ("one_server_processors", processors.into())));
    let mut did = format!("{} events caught up with by one watcher", one.events);
    if plan.watchers > 1 && !stop.is_cancelled() {
        let all = caught_up(plan, &missed, &reader, plan.watchers, &progress).await?;
        did = format!("{did}, then by {} at once", plan.watchers);
        numbers.extend([
            ("all_seconds", all.took.as_secs_f64().into()),
            ("all_events_per_second", per_second(all.events * u64::from(plan.watchers), all.took).into()),
        ]);
        numbers.extend(all.processors.map(|processors| ("all_server_processors", processors.into())));
    }
    let did = format!("{did}, {}", plan.servers.named());
    let notes = vec![format!("the same events again: --cursor {}", missed.cursor)];
    Ok(Report { bench: "watch catch-up", did, interrupted: stop.is_cancelled(), numbers, notes, ..Report::default() })
}

/// Takes a cursor and writes events after it.
async fn written(
    plan: &Plan,
    runs: Runs,
    reader: &Connections,
    progress: &Progress,
    stop: &CancellationToken,
) -> Result<(Missed, u64), BenchError> {
    let filter = runs.filter();
    let mut watch = Watch::runs(reader.of(0), filter.clone()).await?;
    let (_none, cursor) = watch.caught_up().await?;
    let cursor = cursor.ok_or(BenchError::Answer { rpc: "WatchRuns", field: "a cursor" })?;
    drop(watch);
    // Two events a run.
    let count = u64::from(plan.events.div_ceil(2));
    progress.phase("runs", count);
    let life = |number| {
        let runs = runs.clone();
        progress.step();
        async move {
            runs.start(number).await?;
            runs.complete(number).await.map(drop)
        }
    };
    let events = pace::make_all(count, WRITERS, stop, life).await? * 2;
    Ok((Missed { cursor, filter, events: Some(events) }, events))
}

/// Lets watchers catch up at once.
async fn caught_up(
    plan: &Plan,
    missed: &Missed,
    reader: &Connections,
    watchers: u32,
    progress: &Progress,
) -> Result<CaughtUp, BenchError> {
    progress.phase("watchers", watchers.into());
    let meter = plan.servers.meter()?;
    let before = meter.usage()?;
    let begun = Instant::now();
    let mut catching_up = JoinSet::new();
    let cursor: Arc<str> = missed.cursor.as_str().into();
    for number in 0..watchers {
        let (client, filter, cursor) = (reader.of(number.into()), missed.filter.clone(), cursor.clone());
        catching_up.spawn(async move {
            let mut watch = Watch::runs_after(client, filter, cursor.to_string()).await?;
            watch.caught_up().await.map(|(events, _cursor)| events)
        });
    }
    let mut least = u64::MAX;
    while let Some(events) = catching_up.join_next().await {
        let seen = events??;
        if let Some(written) = missed.events.filter(|written| *written != seen) {
            return Err(BenchError::Miscounted { written, seen });
        }
        progress.step();
        least = least.min(seen);
    }
    let took = begun.elapsed();
    let processors = before.zip(meter.usage()?).map(|(before, after)| after.processors_since(&before, took));
    Ok(CaughtUp { events: least, took, processors })
}
