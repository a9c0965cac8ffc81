//! Random histories, written down: whatever is answered, stored and shown of each command. A change of the rules' code
//! that is no change of the rules leaves every byte as it is, refusals and their order included.
//!
//! The digests of the histories are kept beside this file. `RUNLEDGER_TEST_HISTORIES=FILE` writes the histories of all
//! blocks to a file, for a comparison by `diff` where a digest has changed.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::Write as _;

use proptest::collection::vec;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use prost::Message;
use runledger::domain::{Ask, Disposition, Hash, Refusal, Time, Verdict};
use runledger::store::json;
use runledger::wire::problem;
use runledger_proto::v1;

use crate::support::commands::{Asking as _, TTL_MS, deferred, start};
use crate::support::lifecycles::Standing as _;
use crate::support::model::Model;
use crate::support::postgres::variable;
use crate::support::random::commands;
use runledger::wire::from_domain::IntoMessage as _;

/// Histories of which one digest is kept.
const BLOCK: u64 = 100;

/// Blocks that every run of the tests looks at, of those whose digests are kept.
const BLOCKS_LOOKED_AT: usize = 3;

const DIGESTS: &str = include_str!("histories.txt");

/// The history that a seed makes, a line for each thing that is answered, stored or shown.
fn history(seed: u64) -> String {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let drawn = vec(commands(), 1..40).new_tree(&mut runner).expect("no command is filtered out").current();
    // Most commands would else find no run.
    let mut begun = [start("run-0"), deferred("run-1"), start("run-2").with("loop").lease_ttl_ms(TTL_MS)];
    for tried in &mut begun[1..] {
        let Ask::Start(start) = &mut tried.ask else { unreachable!("it starts") };
        start.max_attempts = Some(3);
    }
    let (mut model, mut told) = (Model::default(), format!("history {seed}\n"));
    for (command, nth) in begun.iter().chain(&drawn).zip(1_i64..) {
        say(&mut told, "digest", &hex(&command.digest()));
        let events = model.events.len();
        match model.ask(command, Time::from_micros(1_000 * nth)) {
            Ok(verdict) => say(&mut told, "answer", &named(&verdict)),
            Err(refusal) => say(&mut told, "refusal", &refused(&refusal)),
        }
        let Some(event) = model.events.get(events) else { continue };
        say(&mut told, "event", &json::event(event));
        let mut shown: v1::RunEvent = event.into_message();
        let labels = shown.changes.as_mut().map(|changes| std::mem::take(&mut changes.labels));
        say(&mut told, "shown", &shown_of(&shown, labels.unwrap_or_default()));
        let run = &model.runs[&command.key];
        say(&mut told, "record", &json::record(run));
        say(&mut told, "keyframe", &json::keyframe(run));
        say(&mut told, "metadata", json::metadata(run).as_deref().unwrap_or("none"));
        say(&mut told, "labels", json::labels(&run.labels).as_deref().unwrap_or("none"));
        let mut shown: v1::Run = run.into_message();
        let labels = std::mem::take(&mut shown.labels);
        say(&mut told, "shown", &shown_of(&shown, labels));
    }
    // Redactions write earlier events anew.
    for event in &model.events {
        say(&mut told, "left", &json::event(event));
    }
    told
}

fn say(told: &mut String, what: &str, text: &str) {
    writeln!(told, "{what} {text}").expect("a text takes everything");
}

/// A message, apart from its labels: a message's map is written in any order.
fn shown_of(message: &impl Message, labels: HashMap<String, String>) -> String {
    format!("{} {:?}", hex(&message.encode_to_vec()), BTreeMap::from_iter(labels))
}

fn named(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Done(Disposition::RecordedLate, run) => format!("recorded late {}", run.revision),
        Verdict::Done(disposition, run) => format!("{} {}", disposition.name(), run.revision),
        Verdict::Redacted { run, values } => format!("redacted {} values, {}", values, run.revision),
        Verdict::Replayed { revision, current_revision } => format!("replayed {revision} of {current_revision}"),
    }
}

/// A refusal as its caller sees it.
fn refused(refusal: &Refusal) -> String {
    let status = tonic::Status::from(problem::refusal(refusal));
    format!("{:?} {} {}", status.code(), status.message(), hex(status.details()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a text takes everything");
        text
    })
}

#[test]
fn every_byte_of_random_histories_stays_as_it_is() {
    let out = variable("RUNLEDGER_TEST_HISTORIES");
    let mut file = out.as_ref().map(|path| std::fs::File::create(path).unwrap());
    let blocks = if file.is_some() { usize::MAX } else { BLOCKS_LOOKED_AT };
    let mut changed = Vec::new();
    for (block, kept) in (0_u64..).zip(DIGESTS.lines()).take(blocks) {
        let histories: String = (block * BLOCK..(block + 1) * BLOCK).map(history).collect();
        let digest = Hash::new(histories.as_bytes()).to_string();
        if digest != kept {
            changed.push(format!("block {block}: {digest}"));
        }
        if let Some(file) = &mut file {
            file.write_all(histories.as_bytes()).unwrap();
        }
    }
    assert!(changed.is_empty(), "RUNLEDGER_TEST_HISTORIES=FILE writes them:\n{}", changed.join("\n"));
}
