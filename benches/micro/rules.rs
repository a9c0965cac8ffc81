//! The rules: one command on one run, and a commit's commands together.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use runledger::domain::batch::decide_batch;
use runledger::domain::decide::{Context, decide};
use runledger::domain::evolve::evolve;
use runledger::domain::{Command, Run};

use super::samples::{self, SIZES};

/// Commands that queued while the last commit ran: alone, as many as there are callers, and as many as are taken.
const BATCHES: [usize; 3] = [1, 32, 512];

pub(super) fn measure(criterion: &mut Criterion) {
    one(criterion);
    batches(criterion);
}

fn one(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rules");
    let context = Context::at(samples::now());
    for (size, bytes) in SIZES {
        let (start, complete) = (samples::start(1, bytes), samples::complete(1));
        let (started, completed) = (samples::started(1, bytes), samples::completed(1, bytes));
        group.bench_function(format!("decide_start/{size}"), |bencher| {
            bencher.iter(|| decide(None, black_box(&start), &context));
        });
        group.bench_function(format!("decide_complete/{size}"), |bencher| {
            bencher.iter(|| decide(Some(black_box(&started.run)), &complete, &context));
        });
        group.bench_function(format!("decide_refused/{size}"), |bencher| {
            bencher.iter(|| decide(Some(black_box(&completed.run)), &start, &context));
        });
        group.bench_function(format!("evolve_start/{size}"), |bencher| {
            bencher.iter(|| evolve(None, black_box(&started.event)));
        });
        group.bench_function(format!("evolve_complete/{size}"), |bencher| {
            bencher.iter_batched(
                || started.run.clone(),
                |run| evolve(Some(run), black_box(&completed.event)),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide_batch");
    for size in BATCHES {
        group.throughput(Throughput::Elements(size as u64));
        let starts = commands(size, |number| samples::start(number, 200));
        let completes = commands(size, samples::complete);
        let updates_of_one = commands(size, samples::update_step);
        let started: Vec<Run> = (0..size).map(|number| samples::started(number, 200).run).collect();
        for (name, commands, runs) in [
            ("starts", &starts, &[][..]),
            ("completes", &completes, &started[..]),
            ("updates_of_one_run", &updates_of_one, &started[..1]),
        ] {
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter_batched(
                    || samples::loaded(runs.to_vec()),
                    |loaded| decide_batch(black_box(commands), loaded),
                    BatchSize::LargeInput,
                );
            });
        }
    }
    group.finish();
}

fn commands(count: usize, command: impl Fn(usize) -> Command) -> Vec<Arc<Command>> {
    (0..count).map(|number| Arc::new(command(number))).collect()
}
