//! The pure model: what the runs and their history must be, command by command, with no store and no batches.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use runledger::domain::decide::{AppliedRequest, Context, Decision, decide, masked};
use runledger::domain::evolve::evolve;
use runledger::domain::rewriting::{NO_DIGEST, Rewriting};
use runledger::domain::sides::lifecycles;
use runledger::domain::{
    Ask, ClaimKey, Claimed, Command, Declared, Disposition, Event, Found, Hash, HeldLease, LabelValue, Lease,
    LifecycleFound, LifecycleKey, Link, Refusal, Revision, Run, RunId, RunKey, Time, Verdict,
};

use super::lifecycles::{RANDOM, declared};

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) runs: BTreeMap<RunKey, Run>,
    pub(crate) events: Vec<Event>,
    leases: HashMap<RunKey, HeldLease>,
    applied: HashMap<(RunKey, String), AppliedRequest>,
    counted: BTreeMap<LabelValue, Vec<RunId>>,
    claimed: HashMap<ClaimKey, Claimed>,
    /// The links of runs, but for those that were taken out.
    links: HashMap<RunKey, Vec<Link>>,
}

/// The lifecycle that there is for the commands of the model, in every namespace.
static LIFECYCLE: LazyLock<Declared> = LazyLock::new(|| declared(RANDOM, 1));

/// The lifecycle that a command is decided on.
fn lifecycle_of(command: &Command, run: Option<&Run>) -> LifecycleFound<'static> {
    match lifecycles::of(command, run) {
        None => LifecycleFound::NotAsked,
        Some(key) if key.is(&LIFECYCLE) => LifecycleFound::There(&LIFECYCLE),
        Some(_) => LifecycleFound::Missing,
    }
}

/// The lifecycles that commands rest on, as a store would load them.
pub(crate) fn loaded_lifecycles(wanted: BTreeSet<LifecycleKey>) -> Vec<(LifecycleKey, Arc<Declared>)> {
    let there = wanted.into_iter().filter(|key| key.is(&LIFECYCLE));
    there.map(|key| (key, Arc::new(LIFECYCLE.clone()))).collect()
}

impl Model {
    /// Decides one command on the state that the ones before it left.
    pub(crate) fn ask(&mut self, command: &Command, now: Time) -> Result<Verdict, Refusal> {
        let lifecycle = lifecycle_of(command, self.runs.get(&command.key));
        let remembered =
            command.request.as_ref().and_then(|request| self.applied.get(&(command.key.clone(), request.id.clone())));
        let run = self.runs.get(&command.key);
        let lease = self.leases.get(&command.key).copied();
        let limited = run.and_then(|run| LabelValue::limited(run, command));
        let running = limited.as_ref().map_or_else(Vec::new, |value| self.running(value));
        let request = command.ask.brought().claim_request;
        let claim_key = request.map(|request| (command.key.namespace.clone(), request.id.clone()));
        let claimed = claim_key.as_ref().and_then(|key| self.claimed.get(key));
        let links: Vec<Hash> = self.links.get(&command.key).into_iter().flatten().map(Link::key).collect();
        let context = Context {
            applied: remembered,
            sides: Found { lease, running: &running, claimed, links: &links, lifecycle, ..Found::default() },
            ..Context::at(now)
        };
        let command = &*masked(run, command, &context)?;
        match decide(run, command, &context)? {
            Decision::Unchanged => {
                Ok(Verdict::Done(Disposition::Unchanged, Arc::new(run.expect("unchanged, so it exists").clone())))
            }
            Decision::Replayed { revision } => {
                Ok(Verdict::Replayed { revision, current_revision: run.expect("replayed, so it exists").revision })
            }
            Decision::Apply(event, after) => {
                if let Some(request) = &command.request {
                    let applied = AppliedRequest { revision: event.revision, digest: request.digest };
                    self.applied.insert((command.key.clone(), request.id.clone()), applied);
                }
                if let (Some(key), Some(request)) = (claim_key, request) {
                    if matches!(command.ask, Ask::Claim(_)) {
                        let epoch = after.supervision.epoch();
                        let claimed = Claimed { key: command.key.clone(), epoch, digest: request.digest, replays: 0 };
                        self.claimed.insert(key, claimed);
                    } else {
                        self.claimed.remove(&key);
                    }
                }
                if after.is_at_rest() {
                    self.leases.remove(&command.key);
                } else if let Some(Lease { epoch, ttl_ms, .. }) = event.changes.supervision.lease {
                    self.leases.insert(
                        command.key.clone(),
                        HeldLease { epoch, expires_at: now.plus_ms(ttl_ms), renewed: false },
                    );
                }
                if let Some(value) = limited {
                    let counted = self.counted.entry(value).or_default();
                    counted.retain(|run_id| *run_id != command.key.run_id);
                    counted.push(command.key.run_id.clone());
                }
                let disposition = Disposition::of(&event);
                self.take_out(&event);
                let added = event.changes.refinements.iter().flat_map(|change| &change.attachments.links);
                self.links.entry(command.key.clone()).or_default().extend(added.cloned());
                self.events.push(*event);
                self.runs.insert(command.key.clone(), (*after).clone());
                let after = Arc::new(*after);
                Ok(Verdict::Done(disposition, after))
            }
        }
    }

    /// Takes out of the events so far what an event says was taken out.
    fn take_out(&mut self, redacted: &Event) {
        let Some(redaction) = &redacted.changes.redaction else { return };
        if let Some(links) = self.links.get_mut(&redacted.key) {
            links.retain(|link| redaction.of_link(link).is_none());
        }
        let mut rewriting = Rewriting::new(redaction);
        for event in self.events.iter_mut().filter(|event| event.key == redacted.key) {
            // The run's earlier requests are forgotten, whatever they wrote.
            if let Some(request) = &event.request_id {
                let applied = self.applied.get_mut(&(event.key.clone(), request.clone()));
                applied.expect("it was applied").digest = NO_DIGEST;
            }
            if let Some(left) = rewriting.next(event).event {
                *event = left;
            }
        }
    }

    fn running(&self, value: &LabelValue) -> Vec<RunId> {
        let is_running = |run_id: &&RunId| {
            let key = RunKey { namespace: value.namespace.clone(), run_id: (*run_id).clone() };
            self.runs[&key].counts()
        };
        self.counted.get(value).into_iter().flatten().filter(is_running).cloned().collect()
    }

    /// The runs that count towards the limits of commands, as a store with these runs would load them: for runs that
    /// wait for a claim.
    pub(crate) fn running_beside(
        &self,
        commands: &[Arc<Command>],
        stored: &BTreeMap<RunKey, Run>,
    ) -> Vec<(LabelValue, Vec<RunId>)> {
        let limited = |command: &Arc<Command>| LabelValue::limited(stored.get(&command.key)?, command);
        let values: BTreeSet<LabelValue> = commands.iter().filter_map(limited).collect();
        values.into_iter().map(|value| (value.clone(), self.running(&value))).collect()
    }

    /// The leases that were granted, as a store would load them.
    pub(crate) fn leases(&self) -> Vec<(RunKey, HeldLease)> {
        self.leases.iter().map(|(key, lease)| (key.clone(), *lease)).collect()
    }

    /// The claimers' requests that were applied, as a store would load them.
    pub(crate) fn claimed(&self) -> Vec<(ClaimKey, Claimed)> {
        self.claimed.iter().map(|(key, claimed)| (key.clone(), claimed.clone())).collect()
    }

    /// The keys of links, as a store would load them.
    pub(crate) fn links(&self) -> Vec<(RunKey, Hash)> {
        let keys = |(key, links): (&RunKey, &Vec<Link>)| {
            links.iter().map(|link| (key.clone(), link.key())).collect::<Vec<_>>()
        };
        self.links.iter().flat_map(keys).collect()
    }

    /// The requests that were applied, as a store would load them.
    pub(crate) fn requests(&self) -> Vec<(RunKey, String, AppliedRequest)> {
        self.applied.iter().map(|((key, id), applied)| (key.clone(), id.clone(), applied.clone())).collect()
    }
}

/// The runs that events make, each from nothing.
pub(crate) fn folded<'a>(events: impl IntoIterator<Item = &'a Event>) -> BTreeMap<RunKey, Run> {
    let mut runs: BTreeMap<RunKey, Run> = BTreeMap::new();
    for event in events {
        let run = runs.remove(&event.key);
        assert_eq!(
            event.revision,
            run.as_ref().map_or(Revision::FIRST, |run| run.revision.next()),
            "revisions are dense: {event:?}"
        );
        assert_eq!(event.from, run.as_ref().map(|run| run.status), "an event starts where the last one ended");
        let before = run.as_ref().map(|run| run.updated_at);
        assert!(before.is_none_or(|before| before <= event.at), "times in a run never fall: {event:?}");
        runs.insert(event.key.clone(), evolve(run, event));
    }
    runs
}
