//! The frames of a watch: encoded once for all sessions, and once more around that for each of them.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion};
use prost::Message as _;
use runledger::domain::LedgerEpoch;
use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::feed::Encode as _;
use runledger::feed::cursor::Cursor;
use runledger::wire::WireFrames;
use runledger::wire::seal::Seals;
use runledger::wire::served::WatchRunsResponse;
use runledger::wire::served::watch_runs_response::{Change, Frame};

use super::samples::{self, SIZES};

pub(super) fn measure(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frames");
    let frames = WireFrames { seals: Arc::new(Seals::new(samples::ledger())) };
    let cursor = Cursor {
        epoch: LedgerEpoch::FIRST,
        positions: vec![1_000_000; samples::ledger().shard_count.into()].into(),
        view: None,
    };
    for (size, bytes) in SIZES {
        let sample = samples::started(1, bytes);
        group
            .bench_function(format!("event/{size}"), |bencher| bencher.iter(|| frames.event(black_box(&sample.event))));
        group.bench_function(format!("run/{size}"), |bencher| bencher.iter(|| frames.run(black_box(&sample.run))));
        let change = Change {
            event: frames.event(&sample.event),
            run: frames.run(&sample.run),
            matches: true,
            cursor: frames.cursor(DEFAULT_NAMESPACE, &cursor),
        };
        group.bench_function(format!("for_one_session/{size}"), |bencher| {
            bencher.iter_batched(
                || change.clone(),
                |change| WatchRunsResponse { frame: Some(Frame::Change(change)) }.encode_to_vec(),
                BatchSize::SmallInput,
            );
        });
    }
    group.bench_function("cursor", |bencher| bencher.iter(|| frames.cursor(DEFAULT_NAMESPACE, black_box(&cursor))));
    group.finish();
}
