//! The JSON that both stores keep: what a commit writes of a run and its event, and what reads take back.

use std::hint::black_box;

use criterion::{BatchSize, Criterion};
use runledger::store::json::{self, EventColumns, RunColumns};

use super::samples::{self, SIZES, Sample};

pub(super) fn measure(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("columns");
    for (size, bytes) in SIZES {
        let Sample { run, event } = samples::started(1, bytes);
        let key = run.key();
        let (record, metadata) = (json::record(&run), json::metadata(&run));
        let (text, keyframe) = (json::event(&event), json::keyframe(&run));
        group.bench_function(format!("record_encode/{size}"), |bencher| bencher.iter(|| json::record(black_box(&run))));
        group.bench_function(format!("metadata_encode/{size}"), |bencher| {
            bencher.iter(|| json::metadata(black_box(&run)));
        });
        group.bench_function(format!("run_decode/{size}"), |bencher| {
            let columns = RunColumns {
                key: key.clone(),
                revision: 1,
                status: run.status.code(),
                started_at: run.started_at,
                task_thread_id: run.task_thread_id.clone(),
                agent_id: run.agent_id.clone(),
                workflow_id: None,
                audit_session_id: None,
                route: None,
                labels: None,
                record: record.clone(),
                metadata: metadata.clone(),
                archived_at: None,
                purged_at: None,
            };
            bencher.iter_batched(|| columns.clone(), json::read_run, BatchSize::SmallInput);
        });
        group.bench_function(format!("event_encode/{size}"), |bencher| bencher.iter(|| json::event(black_box(&event))));
        group.bench_function(format!("event_decode/{size}"), |bencher| {
            bencher.iter_batched(
                || EventColumns {
                    key: key.clone(),
                    revision: event.revision,
                    at: event.at,
                    event: text.clone(),
                    request_id: None,
                },
                json::read_event,
                BatchSize::SmallInput,
            );
        });
        group.bench_function(format!("keyframe_encode/{size}"), |bencher| {
            bencher.iter(|| json::keyframe(black_box(&run)));
        });
        group.bench_function(format!("keyframe_decode/{size}"), |bencher| {
            bencher.iter(|| json::read_keyframe(&key, black_box(&keyframe)));
        });
    }
    let completion = samples::completed(1, 200).event;
    group.bench_function("completion_encode", |bencher| bencher.iter(|| json::event(black_box(&completion))));
    group.finish();
}
