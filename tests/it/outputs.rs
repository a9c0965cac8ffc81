//! Who may write to standard output and standard error: everybody by `stdio`, which waits for no reader, and a few
//! places by themselves, each for a reason.

use std::fs;
use std::path::{Path, PathBuf};

use crate::layering::packages;

/// The ways to write past `stdio`.
const WAYS: &[&str] = &["println!", "eprintln!", "print!(", "eprint!(", "dbg!(", "stdout()", "stderr()"];

/// The places that may, and why.
const MAY: &[(&str, &str)] = &[
    ("src/stdio.rs", "it is the one that writes"),
    ("src/telemetry/log.rs", "it asks whether there is a terminal"),
    ("src/cli.rs", "help and mistakes of the command line: no signal is caught yet"),
    ("src/cli/bar.rs", "it asks how wide the terminal is"),
    ("src/cli/namespace.rs", "it asks whether there is a terminal"),
    ("src/cli/token.rs", "it asks who may read what is printed"),
    ("src/cli/ledger_access.rs", "it asks whether there is a terminal"),
    ("src/cli/output.rs", "data that must not be dropped; what can be told to stop writes on a thread of its own"),
    ("src/cli/completions.rs", "data, at once; no signal is caught"),
    ("src/cli/config.rs", "data, at once; no signal is caught"),
    ("src/cli/monitoring.rs", "data, at once; no signal is caught"),
    ("src/cli/export/sink.rs", "data that must not be dropped, on a thread of its own"),
    ("src/cli/run/worker/program.rs", "the output of a program, by tasks that nobody waits for without a bound"),
    ("src/cli/run/worker/guard.rs", "the answers of the guard to its worker"),
    ("crates/runledger-bench/src/progress.rs", "it asks whether there is a terminal"),
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn nobody_writes_to_standard_output_or_standard_error_past_stdio() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    for folder in packages() {
        files(&root.join(folder), &mut sources);
    }
    let (mut breaches, mut used) = (Vec::new(), Vec::new());
    for path in sources {
        let place = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let code = text.lines().zip(1..).filter(|(line, _)| !line.trim_start().starts_with("//"));
        for (line, number) in code.filter(|(line, _)| WAYS.iter().any(|way| line.contains(way))) {
            if MAY.iter().any(|(may, _)| *may == place) {
                used.push(place.clone());
            } else {
                breaches.push(format!("{place}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(breaches.is_empty(), "say it by `stdio`:\n{}", breaches.join("\n"));
    let unused: Vec<_> = MAY.iter().filter(|(may, _)| !used.iter().any(|place| place == may)).collect();
    assert!(unused.is_empty(), "they write no more: {unused:?}");
}
