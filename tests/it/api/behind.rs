//! Watches of many runs that fell behind together, on a store in memory: how often they read the log.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::domain::{Filter, Positions};
use runledger::feed::Limits;
use runledger::feed::cursor::Cursor;
use runledger::feed::watch_runs::{Begin, Frame};
use runledger::store::{OfLedger as _, OpenOptions, RunLog as _};

use super::checkpoints::Process;
use crate::support::commands::start;

const RUNS: usize = 400;
const PAGE_EVENTS: usize = 10;

/// The runs that a watch shows from a place to the moment when it has caught up, in order.
async fn shown(process: &Process, positions: Positions) -> Vec<String> {
    let cursor = Cursor { epoch: process.store.ledger().epoch, positions, view: None };
    let begin = Begin::After(cursor);
    let frames = process.feed.watch_runs(DEFAULT_NAMESPACE.into(), Filter::default(), begin).await.unwrap();
    let mut frames = Box::pin(frames);
    let mut runs = Vec::new();
    loop {
        match frames.next().await.unwrap().unwrap() {
            Frame::Change { after, .. } => runs.push(after.run_id.to_string()),
            Frame::CaughtUp { .. } => return runs,
            Frame::Checkpoint { .. } => {}
            other @ Frame::Snapshot { .. } => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_crowd_that_fell_behind_reads_each_page_of_the_log_about_once_and_misses_nothing() {
    for shards in [1, 3] {
        let limits = Limits { log_page_events_max: PAGE_EVENTS, ..Limits::default() };
        let options = OpenOptions { shards: Some(shards), ..OpenOptions::default() };
        let process = Process::start_of(limits, options).await;
        let mut places = Vec::new();
        for number in 0..RUNS {
            if number % 3 == 0 && places.len() < 25 {
                places.push((number, process.store.ends().await.unwrap()));
            }
            process.apply(start(&format!("run-{number}"))).await;
        }
        let crowd = places.iter().chain(&places).map(|(from, place)| {
            let process = &process;
            async move { (*from, shown(process, place.clone()).await) }
        });
        let seen = join_all(crowd).await;
        // The end of the log is read by each of them, and by the tailer.
        let reads = process.store.pages.load(Ordering::Relaxed);
        let alone = u64::try_from(RUNS / PAGE_EVENTS).unwrap();
        assert!(reads <= 3 * alone + 3 * 50, "{reads} reads for 50 watches, where one takes {alone}");
        let all: Vec<String> = shown(&process, places[0].1.clone()).await;
        assert_eq!(all.len(), RUNS);
        for (from, runs) in seen {
            let due: BTreeSet<String> = (from..RUNS).map(|number| format!("run-{number}")).collect();
            assert_eq!(runs.len(), due.len(), "each once, from {from}");
            assert_eq!(runs.iter().cloned().collect::<BTreeSet<_>>(), due, "from {from}");
            let order: Vec<&String> = all.iter().filter(|run| due.contains(*run)).collect();
            assert_eq!(runs.iter().collect::<Vec<_>>(), order, "in one order, from {from}");
        }
        let memory = process.feed.memory();
        assert!(memory.iter().any(|part| part.name == "history_pages" && part.bytes > 0), "{memory:?}");
    }
}
