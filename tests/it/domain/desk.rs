//! Runs that have lifecycles, without a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use runledger::domain::batch::decide_batch;
use runledger::domain::decide::AppliedRequest;
use runledger::domain::{
    Command, Decide as _, Declared, Disposition, Event, HeldLease, Lease, LedgerEpoch, Lifecycle, LifecycleId, Loaded,
    Refinements, Refusal, Rules, Run, RunPosition, Sides, Steady, Time, Verdict,
};

use crate::support::lifecycles::declared;

/// One run after the other, decided as a store without any other run would.
#[derive(Default)]
pub(super) struct Desk {
    pub(super) runs: BTreeMap<String, Run>,
    pub(super) lifecycles: Vec<Declared>,
    requests: Vec<(runledger::domain::RunKey, String, AppliedRequest)>,
    pub(super) events: Vec<Event>,
    pub(super) now: i64,
    /// The time from which deadlines of people are acted upon.
    pub(super) acts_from: i64,
}

impl Desk {
    pub(super) fn with(source: &str) -> Self {
        Self { lifecycles: vec![declared(source, 1)], ..Self::default() }
    }

    pub(super) fn of(lifecycle: Lifecycle) -> Self {
        let id = LifecycleId { name: lifecycle.name.clone(), version: 1 };
        Self { lifecycles: vec![Declared::new(id, lifecycle)], ..Self::default() }
    }

    pub(super) fn ask(&mut self, command: Command) -> Result<Verdict, Refusal> {
        self.now += 1_000;
        let id = command.key.run_id.to_string();
        let runs: Vec<Arc<Run>> = self.runs.get(&id).cloned().map(Arc::new).into_iter().collect();
        let commands = [Arc::new(command)];
        let newest = |key: &runledger::domain::LifecycleKey| {
            self.lifecycles.iter().rev().find(|declared| key.is(declared)).cloned().map(Arc::new)
        };
        let wanted = Rules.lifecycles(&commands, &runs).into_iter();
        let lifecycles = wanted.filter_map(|key| Some((key.clone(), newest(&key)?))).collect();
        let at = Time::from_micros(self.now);
        let leases = self.runs.values().filter_map(|run| {
            let Lease { epoch, ttl_ms, .. } = run.supervision.lease?;
            Some((run.key(), HeldLease { epoch, expires_at: run.updated_at.plus_ms(ttl_ms), renewed: false }))
        });
        let leases = leases.collect();
        let mut decided = decide_batch(
            &commands,
            Loaded {
                last: 0,
                now: at,
                steady: Steady::always(at),
                runs,
                requests: self.requests.clone(),
                sides: Sides {
                    lifecycles,
                    leases,
                    acts_from: Some(Time::from_micros(self.acts_from)),
                    ..Sides::default()
                },
                ledger_epoch: LedgerEpoch::FIRST,
            },
        );
        for write in decided.runs {
            self.runs.insert(id.clone(), (*write.run).clone());
        }
        for new in decided.events {
            if let Some(request) = &new.request {
                let applied = AppliedRequest { revision: new.event.revision, digest: request.digest };
                self.requests.push((commands[0].key.clone(), request.id.clone(), applied));
            }
            self.events.push(new.event);
        }
        decided.verdicts.remove(0)
    }

    pub(super) fn apply(&mut self, command: Command) -> Run {
        match self.ask(command) {
            Ok(Verdict::Done(Disposition::Applied, run)) => (*run).clone(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn refused(&mut self, command: Command) -> Refusal {
        let events = self.events.len();
        let refusal = self.ask(command).expect_err("a refusal");
        assert_eq!(self.events.len(), events, "a refused command changes nothing");
        refusal
    }

    pub(super) fn last(&self) -> &Event {
        self.events.last().unwrap()
    }
}

pub(super) fn refined(run: &Run) -> Refinements {
    run.refinements.as_deref().cloned().unwrap_or_default()
}

pub(super) fn stands(run: &Run) -> RunPosition {
    refined(run).position
}

pub(super) fn phase(run: &Run) -> String {
    stands(run).phase.unwrap_or_default()
}
