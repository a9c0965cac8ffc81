//! One place reads files whole, so that none is waited for or read without a bound: no other code opens a file by a path
//! that somebody gave to the process.

use super::writing::places_of;

/// What opens a file to read it, or reads all of it.
const READERS: [&str; 5] = [" File::open(", "(File::open(", "fs::File::open(", "fs::read(", "fs::read_to_string"];

/// The places that read otherwise, each with its reason.
const PLACES: [(&str, &str); 13] = [
    ("src/private.rs", "opens a folder, to make a name in it last"),
    ("src/memory.rs", "what the system tells, under /proc"),
    ("src/memory/control_group.rs", "what the system tells, under /proc and /sys"),
    ("src/telemetry/process.rs", "what the system tells, under /proc"),
    ("src/cli/run/worker/children.rs", "what the system tells, under /proc"),
    ("src/store/sqlite/lockers.rs", "what the system tells, under /proc"),
    ("crates/runledger-bench/src/process.rs", "what the system tells, under /proc"),
    ("src/cli/run/worker/program.rs", "opens the run's input, which it made, for the program"),
    ("src/cli/run/apply.rs", "a stream of commands without an end, a bounded line at a time"),
    ("src/cli/export/replaced.rs", "an export's first and last line, of a regular file"),
    ("src/store/sqlite/lock.rs", "what the system tells, under /proc"),
    ("src/store/sqlite/log.rs", "a part of a ledger, after `whole` has looked at what it is"),
    ("src/store/sqlite/whole.rs", "the look at what the parts of a ledger are"),
];

#[test]
fn one_place_reads_files_whole() {
    let places = places_of(&READERS);
    let others = places.iter().filter(|(name, _)| !PLACES.iter().any(|(place, _)| place == name)).collect::<Vec<_>>();
    assert!(others.is_empty(), "read it with `runledger_files`: {others:#?}");
    for (place, _) in PLACES {
        assert!(places.iter().any(|(name, _)| name == place), "{place} reads nothing any more");
    }
}
