//! What the pure steps of a call cost, one by one: `cargo bench --bench micro`, or with a part of a name behind it,
//! such as `cargo bench --bench micro -- decide_batch`. `--save-baseline NAME` and `--baseline NAME` compare two
//! builds.
//!
//! No server, no database, no async: what waits for those is measured by `runledger bench`. Each file is one step of
//! the path of a call, in its order. Only what the library publishes is used.

mod columns;
mod frames;
mod rules;
mod samples;
mod wire;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    wire::measure(&mut criterion);
    rules::measure(&mut criterion);
    columns::measure(&mut criterion);
    frames::measure(&mut criterion);
    criterion.final_summary();
}
