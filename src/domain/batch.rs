//! The commands of one commit, decided in order, each on the state that the one before it left.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::decide::{decide, masked};
use super::decision::{AppliedRequest, Context, Decision};
use super::sides::{self, SideWrites, Sides, Wanted};
use super::{
    Ask, Command, Content, EventType, LedgerEpoch, LifecycleKey, NewEvent, Position, Refusal, Revision, Run, RunKey,
    RunWrite, Steady, Stored, Time,
};

/// The rules that decide commands. A store hands over the rows that it read, and writes the rows that come back: the
/// store knows no rule.
pub trait Decide: Send + Sync {
    /// The rows of the sides that the decisions on these commands may rest on.
    fn wanted(&self, commands: &[Arc<Command>]) -> Wanted;

    /// Whether a command is decided on nothing but its run, and on rows that would be new.
    fn is_only_the_run(&self, command: &Command, run: Option<&Run>) -> bool;

    /// The lifecycles that the decisions on these commands may rest on, once their runs were read.
    fn lifecycles(&self, commands: &[Arc<Command>], runs: &[Arc<Run>]) -> BTreeSet<LifecycleKey>;

    /// Decides a shard's commands and numbers their events, as many as the limit on work allows.
    fn decide(&self, commands: &[Arc<Command>], loaded: Loaded) -> Decided;
}

/// The contract's rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules;

impl Rules {
    /// The rules, for callers that share them.
    #[must_use]
    pub fn shared() -> Arc<dyn Decide> {
        Arc::new(Self)
    }
}

impl Decide for Rules {
    fn wanted(&self, commands: &[Arc<Command>]) -> Wanted {
        Wanted::by(commands.iter().map(|command| &**command))
    }

    fn is_only_the_run(&self, command: &Command, run: Option<&Run>) -> bool {
        Wanted::is_only_the_run(command, run)
    }

    fn lifecycles(&self, commands: &[Arc<Command>], runs: &[Arc<Run>]) -> BTreeSet<LifecycleKey> {
        sides::lifecycles::wanted(commands.iter().map(|command| &**command), runs.iter().map(|run| &**run))
    }

    fn decide(&self, commands: &[Arc<Command>], loaded: Loaded) -> Decided {
        decide_batch(commands, loaded)
    }
}

/// The rows that the store read under the shard's head.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The position of the shard's last event; 0 in an empty shard.
    pub last: Position,
    /// The store's clock, and [after](super::steady::after_all) all events of the present.
    pub now: Time,
    /// The steady clock.
    pub steady: Steady,
    /// The runs that the commands are for, as far as they exist.
    pub runs: Vec<Arc<Run>>,
    /// The commands' `request_id`s that were applied before.
    pub requests: Vec<(RunKey, String, AppliedRequest)>,
    /// The rows that were [wanted](Decide::wanted).
    pub sides: Sides,
    /// See [`Context::ledger_epoch`].
    pub ledger_epoch: LedgerEpoch,
}

/// The results of commands, and the rows to be written.
#[derive(Debug, Default)]
pub struct Decided {
    /// One answer for each command that was decided, in their order. The limit on work allows at least the first; the
    /// commands after the last answer were not looked at. The answers hold once the writes are durable.
    pub verdicts: Vec<Result<Verdict, Refusal>>,
    /// The runs as they are to be stored.
    pub runs: Vec<RunWrite>,
    /// The events to append, by position.
    pub events: Vec<NewEvent>,
    /// The rows of the sides to be written.
    pub sides: SideWrites,
    /// The revision up to which nothing stands in the history at the paths of the redaction, where one is among the
    /// events.
    pub nothing_up_to: Revision,
    /// The number of values that the store took out by the redaction, where one is among the events: the store counts them.
    pub values_redacted: Option<u64>,
    /// The approximate number of bytes of runs that were read and made.
    pub weight: usize,
}

impl Decided {
    /// The answers, in the commands' order. What a redaction took out is known once it was committed.
    #[must_use]
    pub fn into_verdicts(mut self) -> Vec<Result<Verdict, Refusal>> {
        // A redaction is alone in its batch.
        if let (Some(values), Some(Ok(verdict))) = (self.values_redacted, self.verdicts.first_mut())
            && let Verdict::Applied(run) = verdict
        {
            *verdict = Verdict::Redacted { run: Arc::clone(run), values };
        }
        self.verdicts
    }

    /// Whether each command that was looked at made its event.
    #[must_use]
    pub fn all_applied(&self) -> bool {
        self.verdicts.iter().all(|verdict| matches!(verdict, Ok(Verdict::Applied(_) | Verdict::RecordedLate(_))))
    }
}

/// Bytes of metadata, inputs and results that one batch looks at and merges at most, as they lie in memory: the
/// commands above this wait for the next batch. A batch is decided while its shard's head is held, and 512 small
/// patches of one large run are gigabytes.
const MERGED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The effect of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The command made its event; the run right after the event.
    Applied(Arc<Run>),
    /// The command made its event, which keeps a late report; the run right after the event.
    RecordedLate(Arc<Run>),
    /// The command made its event, which took values out; the run right after the event.
    Redacted {
        /// The run.
        run: Arc<Run>,
        /// How many.
        values: u64,
    },
    /// The command was a permitted no-op; the run as it is.
    Unchanged(Arc<Run>),
    /// The command was applied before.
    Replayed {
        /// The revision of the event that the first call made.
        revision: Revision,
        /// The run's revision now.
        current_revision: Revision,
    },
}

struct Slot {
    run: Option<Arc<Run>>,
    before: Option<Stored>,
    metadata_changed: bool,
}

impl Slot {
    fn of(run: Arc<Run>) -> Self {
        Self { before: Some(Stored::of(&run)), run: Some(run), metadata_changed: false }
    }

    fn written(self) -> RunWrite {
        let run = self.run.expect("a written run exists");
        RunWrite { run, before: self.before, metadata_changed: self.metadata_changed }
    }
}

/// Decides a shard's commands and numbers their events, as many as the limit on work allows.
#[must_use]
pub fn decide_batch(commands: &[Arc<Command>], loaded: Loaded) -> Decided {
    let Loaded { last, now, steady, runs, requests, sides, ledger_epoch } = loaded;
    let mut sides = sides::Batch::of(sides);
    let mut position = last;
    let mut slots: HashMap<RunKey, Slot> = runs.into_iter().map(|run| (run.key(), Slot::of(run))).collect();
    let mut applied: HashMap<(RunKey, String), AppliedRequest> =
        requests.into_iter().map(|(key, id, request)| ((key, id), request)).collect();
    let mut written: Vec<RunKey> = Vec::new();
    let read = slots.values().filter_map(|slot| slot.run.as_ref()).map(|run| run.weight()).sum();
    let mut decided = Decided { weight: read, ..Decided::default() };
    let (mut merged, mut is_redacted) = (0, false);

    for command in commands {
        if merged > MERGED_BYTES_MAX {
            break;
        }
        let run = slots.get(&command.key).and_then(|slot| slot.run.as_deref());
        if sides.lack(command, run) && !decided.verdicts.is_empty() {
            break;
        }
        // A redaction rewrites what is in the log, which may take long, and fail: so it is alone in its batch.
        let is_redaction = matches!(command.ask, Ask::Redact(_));
        if is_redacted || is_redaction && !decided.verdicts.is_empty() {
            break;
        }
        let slot =
            slots.entry(command.key.clone()).or_insert(Slot { run: None, before: None, metadata_changed: false });
        let brought = command.ask.brought();
        if let Some(patch) = brought.metadata {
            let stored = slot.run.as_ref().map_or(0, |run| run.metadata.weight());
            merged += stored + patch.weight();
        }
        let sides_found = sides.found(command, slot.run.as_deref());
        merged += [brought.input, brought.result].into_iter().flatten().map(Content::weight).sum::<usize>();
        let remembered =
            command.request.as_ref().and_then(|request| applied.get(&(command.key.clone(), request.id.clone())));
        let context = Context { now, steady, applied: remembered, sides: sides_found, ledger_epoch };
        // A command whose values are masked has another digest than it had when it came.
        let command = match masked(slot.run.as_deref(), command, &context) {
            Ok(command) => command,
            Err(refusal) => {
                decided.verdicts.push(Err(refusal));
                continue;
            }
        };
        let command = &*command;
        let request = command.request.clone();
        let verdict = match decide(slot.run.as_deref(), command, &context) {
            Err(refusal) => Err(refusal),
            Ok(Decision::Unchanged) => {
                Ok(Verdict::Unchanged(slot.run.clone().expect("only an existing run is left unchanged")))
            }
            Ok(Decision::Replayed { revision }) => {
                let current_revision = slot.run.as_ref().map_or(revision, |run| run.revision);
                Ok(Verdict::Replayed { revision, current_revision })
            }
            Ok(Decision::Apply(event, run)) => {
                let run = Arc::new(*run);
                let stored_revision = slot.before.as_ref().map_or(Revision::NONE, |stored| stored.revision);
                if slot.run.as_ref().map_or(Revision::NONE, |run| run.revision) == stored_revision {
                    written.push(command.key.clone());
                }
                is_redacted = is_redaction;
                decided.nothing_up_to = command.prepared.nothing_up_to(ledger_epoch);
                sides.apply(command, slot.run.as_deref(), &event, &run, steady.now);
                slot.metadata_changed |= !event.changes.metadata.is_empty() || event.changes.redaction.is_some();
                slot.run = Some(run.clone());
                if let Some(request) = &request {
                    let remembered = AppliedRequest { revision: event.revision, digest: request.digest };
                    applied.insert((command.key.clone(), request.id.clone()), remembered);
                }
                position += 1;
                let keyframe = event.revision.has_keyframe().then(|| run.clone());
                let late = event.event_type == EventType::LateReported;
                decided.events.push(NewEvent { position, event: *event, request, keyframe });
                Ok(if late { Verdict::RecordedLate(run) } else { Verdict::Applied(run) })
            }
        };
        decided.verdicts.push(verdict);
    }
    decided.weight += merged;
    decided.runs =
        written.into_iter().map(|key| slots.remove(&key).expect("a written run has a slot").written()).collect();
    decided.sides = sides.writes(&decided.runs);
    decided
}
