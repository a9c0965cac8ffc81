//! A clock that jumps decides nothing: the same commands, after the same time has passed, have the same answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::Config;
use runledger::domain::batch::decide_batch;
use runledger::domain::decide::AppliedRequest;
use runledger::domain::evolve::evolve;
use runledger::domain::{
    Command, Decide as _, Disposition, Event, HeldLease, LedgerEpoch, Loaded, Refusal, Rules, Run, RunKey, Sides,
    Steady, Time, Verdict,
};

use crate::support::model::loaded_lifecycles;
use crate::support::random::commands;

const SECOND: i64 = 1_000_000;

/// Jumps of the clock, in seconds: none most of the time, a second, a minute, an hour, 400 days.
const JUMPS: [i64; 12] = [0, 0, 0, 0, 1, -1, 60, -60, 3_600, -3_600, 400 * 86_400, -400 * 86_400];

/// Where clocks differ by less than is noted, a deadline is off by as much.
const NEAR: i64 = 3 * SECOND;

/// A ledger of which nothing is stored.
#[derive(Default)]
struct Ledger {
    runs: BTreeMap<RunKey, Run>,
    leases: BTreeMap<RunKey, HeldLease>,
    requests: Vec<(RunKey, String, AppliedRequest)>,
    events: Vec<Event>,
}

impl Ledger {
    fn ask(&mut self, command: &Command, steady: Time, clock: Time) -> Result<Verdict, Refusal> {
        let commands = [Arc::new(command.clone())];
        let runs: Vec<Arc<Run>> = self.runs.get(&command.key).cloned().map(Arc::new).into_iter().collect();
        let lifecycles = loaded_lifecycles(Rules.lifecycles(&commands, &runs));
        let leases = self.leases.iter().map(|(key, lease)| (key.clone(), *lease)).collect();
        let loaded = Loaded {
            last: 0,
            now: clock,
            steady: Steady { now: steady, ahead: 0, since: Time::from_micros(0) }.beside(clock),
            runs,
            requests: self.requests.clone(),
            sides: Sides { lifecycles, leases, acts_from: Some(Time::from_micros(0)), ..Sides::default() },
            ledger_epoch: LedgerEpoch::FIRST,
        };
        let mut decided = decide_batch(&commands, loaded);
        for (key, lease) in decided.sides.leases {
            match lease {
                Some(lease) => drop(self.leases.insert(key, HeldLease::granted(lease, steady))),
                None => drop(self.leases.remove(&key)),
            }
        }
        for write in decided.runs {
            self.runs.insert(write.run.key(), (*write.run).clone());
        }
        for new in decided.events {
            if let Some(request) = &new.request {
                let applied = AppliedRequest { revision: new.event.revision, digest: request.digest };
                self.requests.push((command.key.clone(), request.id.clone(), applied));
            }
            self.events.push(new.event);
        }
        decided.verdicts.remove(0)
    }

    /// Whether any deadline or lease is so near that the next answer may depend on less than is noted.
    fn is_near(&self, steady: Time) -> bool {
        let due = self.runs.values().filter_map(Run::due_at);
        due.chain(self.leases.values().map(|held| held.expires_at)).any(|at| at.since(steady).abs() < NEAR)
    }
}

/// What an answer says, but for its times.
fn said(answer: &Result<Verdict, Refusal>) -> String {
    match answer {
        Ok(Verdict::Done(Disposition::Applied, run)) => format!("applied {} {:?}", run.status, run.ending.reason_code),
        Ok(Verdict::Done(disposition, run)) => format!("{} {}", disposition.name(), run.status),
        Ok(Verdict::Redacted { run, values }) => format!("redacted {} {values}", run.status),
        Ok(Verdict::Replayed { revision, .. }) => format!("replayed {revision:?}"),
        Err(refusal) => refusal.reason().to_owned(),
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(400) })]

    #[test]
    fn no_jump_of_the_clock_changes_an_answer_or_when_a_run_is_due(
        steps in vec((commands(), 0..40_i64, select(&JUMPS[..])), 1..40),
    ) {
        let (mut right, mut jumping) = (Ledger::default(), Ledger::default());
        let (mut passed, mut set_by) = (0, 0);
        for (command, seconds, jump) in steps {
            passed += seconds * 5 * SECOND + 1_000;
            set_by += jump * SECOND;
            let steady = Time::from_micros(1_764_000_000 * SECOND + passed);
            if right.is_near(steady) || jumping.is_near(steady) {
                continue;
            }
            let clock = steady.plus_micros(set_by);
            let (expected, found) = (right.ask(&command, steady, steady), jumping.ask(&command, steady, clock));
            prop_assert_eq!(said(&expected), said(&found), "after {} s, clock off by {} us: {:?}", passed / SECOND, set_by, command);
            for (key, run) in &right.runs {
                let jumped = &jumping.runs[key];
                prop_assert_eq!(run.status, jumped.status);
                let apart = run.due_at().zip(jumped.due_at()).map(|(one, other)| one.since(other).abs());
                prop_assert_eq!(run.due_at().is_some(), jumped.due_at().is_some());
                prop_assert!(apart.is_none_or(|apart| apart < NEAR), "{:?} is due {:?} apart: {:?}", key, apart, jumped);
            }
        }
        // A run is the fold of its events, and none of its times falls.
        let mut folded: BTreeMap<RunKey, Run> = BTreeMap::new();
        for event in &jumping.events {
            let before = folded.remove(&event.key);
            prop_assert!(before.as_ref().is_none_or(|run| run.updated_at <= event.at));
            folded.insert(event.key.clone(), evolve(before, event));
        }
        prop_assert_eq!(&folded, &jumping.runs);
        prop_assert!(right.events.iter().all(|event| event.steady_ahead_micros == 0), "what is no step is not noted");
    }
}
