//! Random commands: batches are nothing but commands one after the other, and runs nothing but the fold of events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::Config;
use runledger::domain::batch::decide_batch;
use runledger::domain::evolve::evolve;
use runledger::domain::limits::KEYFRAME_EVENTS;
use runledger::domain::rewriting::{Rewriting, Rewritten};
use runledger::domain::sides::contents::ContentsOf;
use runledger::domain::steady::after_all;
use runledger::domain::{
    Ask, Command, ContentDigest, ContentRow, ContentTable, Decide as _, Disposition, Event, Hash, LedgerEpoch, Link,
    Loaded, NewEvent, RedactedPath, Revision, Rules, Run, RunKey, Sides, Status, Steady, Time, Verdict,
};

use crate::support::model::{Model, folded, loaded_lifecycles};
use crate::support::random::{batches, commands};

fn config() -> Config {
    Config { failure_persistence: None, ..Config::with_cases(300) }
}

/// A store that keeps what was decided, and nothing else.
#[derive(Default)]
struct Shelf {
    runs: BTreeMap<RunKey, Run>,
    log: Vec<NewEvent>,
    beside: Vec<ContentRow>,
}

impl Shelf {
    fn append(&mut self, new: NewEvent) {
        if let Some(redaction) = &new.event.changes.redaction {
            let is_earlier = |row: &ContentRow| row.key == new.event.key && row.revision < new.event.revision;
            let tables: Vec<_> = redaction.paths.iter().filter_map(RedactedPath::table).collect();
            self.beside.retain(|row| !(is_earlier(row) && tables.contains(&row.table)));
            for row in self.beside.iter_mut().filter(|row| row.table == ContentTable::Link && is_earlier(row)) {
                let link: Link = serde_json::from_str(&row.content).unwrap();
                if let Some(left) = redaction.of_link(&link) {
                    (row.content, row.link_key) = (left.text(), None);
                }
            }
            let mut rewriting = Rewriting::new(redaction);
            for old in self.log.iter_mut().filter(|old| old.event.key == new.event.key) {
                let Rewritten { event, keyframe, .. } = rewriting.next(&old.event);
                old.event = event.unwrap_or_else(|| old.event.clone());
                old.keyframe = keyframe.or_else(|| old.keyframe.clone());
            }
        }
        self.log.push(new);
    }

    fn load(&self, commands: &[Arc<Command>], model: &Model, now: Time) -> Loaded {
        let asked = |key: &RunKey| commands.iter().any(|command| command.key == *key);
        Loaded {
            last: self.log.last().map_or(0, |last| last.position),
            now: after_all(now, self.log.last().map(|last| last.event.at), None),
            steady: Steady::always(self.log.last().map_or(now, |last| now.max(last.event.at))),
            runs: self.runs.values().filter(|run| asked(&run.key())).cloned().map(Arc::new).collect(),
            requests: model.requests().into_iter().filter(|(key, ..)| asked(key)).collect(),
            sides: Sides {
                leases: model.leases().into_iter().filter(|(key, _)| asked(key)).collect(),
                max_running: model.running_beside(commands, &self.runs),
                claims: model.claimed(),
                contents: self.beside.iter().filter_map(|row| Some((row.key.clone(), row.link_key?))).collect(),
                lifecycles: loaded_lifecycles(
                    Rules.lifecycles(commands, &self.runs.values().cloned().map(Arc::new).collect::<Vec<_>>()),
                ),
                ..Sides::default()
            },
            ledger_epoch: LedgerEpoch::FIRST,
        }
    }
}

impl Shelf {
    fn links(&self) -> BTreeSet<(RunKey, Hash)> {
        let links: Vec<_> = self.beside.iter().filter_map(|row| Some((row.key.clone(), row.link_key?))).collect();
        let once: BTreeSet<_> = links.iter().cloned().collect();
        assert_eq!(once.len(), links.len(), "a run has a link once: {links:?}");
        once
    }

    fn digests(&self) -> BTreeMap<Place, ContentDigest> {
        let place = |row: &ContentRow| (row.key.clone(), row.table, row.revision, row.number);
        let digests: BTreeMap<_, _> =
            self.beside.iter().map(|row| (place(row), ContentDigest::new(&row.content))).collect();
        assert_eq!(digests.len(), self.beside.len(), "no row is written twice");
        digests
    }
}

/// The place of a row beside its run.
type Place = (RunKey, ContentTable, Revision, u32);

/// What the events say that stands beside their runs.
fn said(log: &[NewEvent]) -> BTreeMap<Place, ContentDigest> {
    let (mut runs, mut said): (BTreeMap<RunKey, Run>, BTreeMap<Place, ContentDigest>) = Default::default();
    for NewEvent { event, .. } in log {
        let run = evolve(runs.remove(&event.key), event);
        let ContentsOf { input, result, links: (first, links) } = ContentsOf::event(event, &run);
        let mut say = |table, number, digest| {
            assert_eq!(said.insert((event.key.clone(), table, event.revision, number), digest), None);
        };
        for (table, digest) in [(ContentTable::Input, input), (ContentTable::Result, result)] {
            if let Some(digest) = digest {
                say(table, 0, digest);
            }
        }
        for (number, link) in (first..).zip(links) {
            say(ContentTable::Link, number, ContentDigest::new(&link.text()));
        }
        runs.insert(event.key.clone(), run);
    }
    said
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_batch_is_its_commands_one_by_one(batches in batches(12), clocks in vec(-100_000..100_000_i64, 12)) {
        let (mut shelf, mut model) = (Shelf::default(), Model::default());
        for (batch, clock) in batches.into_iter().zip(clocks) {
            let now = Time::from_micros(1_000_000 + clock);
            let mut left: Vec<Arc<Command>> = batch.into_iter().map(Arc::new).collect();
            while !left.is_empty() {
            let batch = std::mem::take(&mut left);
            let loaded = shelf.load(&batch, &model, now);
            let before = shelf.runs.clone();
            let shard_now = shelf.log.last().map_or(now, |last| now.max(last.event.at));
            let decided = decide_batch(&batch, loaded);

            prop_assert!(!decided.verdicts.is_empty(), "a batch looks at one command at least");
            let (looked_at, rest) = batch.split_at(decided.verdicts.len());
            left = rest.to_vec();
            let expected: Vec<_> = looked_at.iter().map(|command| model.ask(command, shard_now)).collect();
            prop_assert_eq!(&decided.verdicts, &expected);
            for write in decided.runs {
                let stored = before.get(&write.run.key());
                prop_assert_eq!(write.before.as_ref().map(|stored| stored.revision), stored.map(|run| run.revision));
                prop_assert_eq!(write.before.as_ref().map(|stored| stored.status), stored.map(|run| run.status));
                let differs = stored.map_or(!write.run.metadata.is_empty(), |run| run.metadata != write.run.metadata);
                prop_assert!(write.metadata_changed || !differs, "a changed metadata is written");
                let again = shelf.runs.insert(write.run.key(), (*write.run).clone());
                prop_assert_eq!(again.as_ref(), stored, "each run is written once");
            }
            shelf.beside.extend(decided.sides.contents.into_iter().flatten());
            for new in decided.events {
                shelf.append(new);
            }
            }
        }
        prop_assert_eq!(shelf.links(), model.links().into_iter().collect::<BTreeSet<_>>());
        prop_assert_eq!(shelf.digests(), said(&shelf.log), "what stands beside the runs is what their events say");
        prop_assert_eq!(&shelf.runs, &model.runs, "the runs as stored");
        let events: Vec<&Event> = shelf.log.iter().map(|new| &new.event).collect();
        prop_assert_eq!(&events, &model.events.iter().collect::<Vec<_>>(), "the log");
        prop_assert_eq!(&folded(events), &model.runs, "the fold of the log");
        for (new, position) in shelf.log.iter().zip(1..) {
            prop_assert_eq!(new.position, position, "positions are dense, from 1");
            prop_assert_eq!(new.keyframe.is_some(), new.event.revision.get().is_multiple_of(KEYFRAME_EVENTS));
            prop_assert_eq!(new.request.as_ref().map(|request| &request.id), new.event.request_id.as_ref());
        }
        prop_assert!(shelf.log.is_sorted_by_key(|new| new.event.at), "times never fall");
    }

    /// Any commands in any order: a run ends once, and a late report changes only its own field.
    #[test]
    fn a_run_ends_once(sent in vec(commands(), 1..60)) {
        let mut model = Model::default();
        for (command, at) in sent.iter().zip(0..) {
            let ended: BTreeMap<_, _> =
                model.runs.iter().filter(|(_, run)| run.status.is_terminal()).map(|(k, r)| (k.clone(), r.clone())).collect();
            let answer = model.ask(command, Time::from_micros(at));
            if let Some(run) = ended.get(&command.key) {
                let mut after = model.runs[&command.key].clone();
                if matches!(answer, Ok(Verdict::Done(Disposition::Applied, _))) {
                    prop_assert!(matches!(command.ask, Ask::Archive | Ask::Restore | Ask::Redact(_)));
                    prop_assert_eq!(after.revision, run.revision.next());
                    if matches!(command.ask, Ask::Redact(_)) {
                        // What was taken out is another text; there is no more of it, and no less.
                        prop_assert_eq!(after.ending.failure_reason.is_some(), run.ending.failure_reason.is_some());
                        (after.metadata, after.ending) = (run.metadata.clone(), run.ending.clone());
                        after.supervision.clone_from(&run.supervision);
                        after.refinements.clone_from(&run.refinements);
                    } else {
                        prop_assert_eq!(after.archived_at.is_some(), run.archived_at.is_none());
                    }
                    (after.revision, after.updated_at) = (run.revision, run.updated_at);
                    after.archived_at = run.archived_at;
                }
                if matches!(answer, Ok(Verdict::Done(Disposition::RecordedLate, _))) {
                    prop_assert!(run.supervision.presumed && run.supervision.late_report.is_none());
                    prop_assert_eq!(after.revision, run.revision.next());
                    prop_assert!(after.supervision.late_report.take().is_some());
                    (after.revision, after.updated_at) = (run.revision, run.updated_at);
                }
                prop_assert_eq!(&after, run);
            }
        }
        for (key, run) in &model.runs {
            let ends = |event: &&Event| event.key == *key && event.from != Some(event.to) && event.to.is_terminal();
            let ends = model.events.iter().filter(ends).count();
            prop_assert_eq!(ends, usize::from(run.status.is_terminal()));
            prop_assert_eq!(run.completed_at.is_some(), run.status.is_terminal());
            prop_assert!(run.running_at.is_some() || run.status != Status::Running);
        }
    }

    /// Any event applies to any run, also where the decider would never have made it.
    #[test]
    fn evolve_is_total(sent in vec(commands(), 1..40), strangers in vec(commands(), 1..40)) {
        let (mut model, mut other) = (Model::default(), Model::default());
        for (command, stranger) in sent.iter().zip(&strangers) {
            let _answers = (model.ask(command, Time::from_micros(5)), other.ask(stranger, Time::from_micros(3)));
        }
        for event in &other.events {
            for run in model.runs.values().cloned().map(Some).chain([None]) {
                let after = evolve(run, event);
                prop_assert_eq!((after.status, after.revision, after.updated_at), (event.to, event.revision, event.at));
                prop_assert_eq!(after.status.is_terminal() && after.completed_at.is_none(), false);
                let mut again = evolve(Some(after.clone()), event);
                // Links are counted, and each event has other ones.
                let counted = |run: &Run| run.refinements.as_ref().map_or(0, |refinements| refinements.attachments.links);
                prop_assert!(counted(&again) >= counted(&after));
                if let Some(refinements) = &mut again.refinements {
                    refinements.attachments.links = counted(&after);
                }
                prop_assert_eq!(again, after, "applying it again changes nothing");
            }
        }
    }
}
