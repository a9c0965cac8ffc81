//! The names of the runs that a fill writes, which a load of reads asks for.

/// The largest number that a run's id has room for: ten digits, so that ids sort as their numbers do.
pub const RUNS_MAX: u64 = 9_999_999_999;
const NUMBER_DIGITS: usize = 10;

/// The seed of a fill that names none.
pub const SEED: u64 = 1;

/// The id of a run of a fill, by its number from 1.
#[must_use]
pub fn run_id(seed: u64, number: u64) -> String {
    format!("fill-{seed}-{number:0NUMBER_DIGITS$}")
}
