//! Requests to commands, and runs to answers: what the service does before and after a commit.

use bytes::Bytes;
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion};
use prost::Message;
use runledger::domain::Command;
use runledger::store::Ledger;
use runledger::wire::from_domain::IntoMessage as _;
use runledger::wire::request;
use runledger_proto::v1;
use std::hint::black_box;

use super::samples::{self, SIZES};

pub(super) fn measure(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wire");
    let (caller, Ledger { id, .. }) = (samples::caller(), samples::ledger());
    for (size, bytes) in SIZES {
        taken(&mut group, &format!("start_request_to_command/{size}"), &samples::start_request(1, bytes), |message| {
            request::start_run(message, &caller, id).expect("a sound request")
        });
        answered(&mut group, size, &samples::completed(1, bytes).run);
    }
    taken(&mut group, "update_request_to_command", &samples::update_request(1), |message| {
        request::update_run(message, &caller).expect("a sound request")
    });
    taken(&mut group, "complete_request_to_command", &samples::complete_request(1), |message| {
        request::complete_run(message, &caller).expect("a sound request")
    });
    let command = samples::start(1, 200);
    group.bench_function("digest", |bencher| bencher.iter(|| black_box(&command).digest()));
    group.finish();
}

/// From a request's bytes to what the domain decides.
fn taken<M: Message + Default>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    message: &M,
    command: impl Fn(M) -> Command,
) {
    let bytes = Bytes::from(message.encode_to_vec());
    group.bench_function(name, |bencher| {
        bencher.iter_batched(
            || bytes.clone(),
            |bytes| command(M::decode(bytes).expect("what was encoded")),
            BatchSize::SmallInput,
        );
    });
}

/// From a run to the bytes of a mutation's answer.
fn answered(group: &mut BenchmarkGroup<'_, WallTime>, size: &str, run: &runledger::domain::Run) {
    group.bench_function(format!("run_to_answer/{size}"), |bencher| {
        bencher.iter(|| {
            let run: v1::Run = black_box(run).into_message();
            let answer = v1::CompleteRunResponse {
                current_revision: run.revision,
                run: Some(run),
                disposition: v1::Disposition::Applied.into(),
                abort_requested: false,
                ..v1::CompleteRunResponse::default()
            };
            answer.encode_to_vec()
        });
    });
}
