//! The commands of one commit, decided in order, each on the state that the one before it left.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::context::{AppliedRequest, Context};
use super::decide::{decide, masked};
use super::decision::Decision;
use super::sides::{self, Applied, SideWrites, Sides, Wanted};
use super::{
    Basis, Command, Content, Disposition, Event, LedgerEpoch, LifecycleKey, Metadata, NewEvent, Position, Refusal,
    Request, Revision, Run, RunKey, RunWrite, Steady, Stored, Time,
};

/// The rules that decide commands. A store hands over the rows that it read, and writes the rows that come back: the
/// store knows no rule.
pub trait Decide: Send + Sync {
    /// The rows of the sides that the decisions on these commands may rest on.
    fn wanted(&self, commands: &[Arc<Command>]) -> Wanted;

    /// What a command is decided on besides the sides: a store may not have remembered a run that is to be created, nor
    /// what the log has.
    fn basis(&self, command: &Command) -> Basis;

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

    fn basis(&self, command: &Command) -> Basis {
        command.ask.facts().basis
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
            && let Verdict::Done(Disposition::Applied, run) = verdict
        {
            *verdict = Verdict::Redacted { run: Arc::clone(run), values };
        }
        self.verdicts
    }

    /// Whether an event has [refinements](super::RefinementsChange): only where one has may a run name other runs.
    #[must_use]
    pub fn is_refined(&self) -> bool {
        self.sides.contents.is_some()
    }

    /// Whether each command that was looked at made its event.
    #[must_use]
    pub fn all_applied(&self) -> bool {
        let made = |verdict: &Verdict| match verdict {
            Verdict::Done(disposition, _) => *disposition != Disposition::Unchanged,
            Verdict::Redacted { .. } => true,
            Verdict::Replayed { .. } => false,
        };
        self.verdicts.iter().all(|verdict| verdict.as_ref().is_ok_and(made))
    }
}

/// Bytes of metadata, inputs and results that one batch looks at and merges at most, as they lie in memory: the
/// commands above this wait for the next batch. A batch is decided while its shard's head is held, and 512 small
/// patches of one large run are gigabytes.
const MERGED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The answer to a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The command made its event, or changed nothing; the run after that. Never of one that was replayed.
    Done(Disposition, Arc<Run>),
    /// The command made its event, which took values out; the run right after the event.
    Redacted {
        run: Arc<Run>,
        /// How many.
        values: u64,
    },
    /// The command was applied before.
    Replayed {
        /// The revision of the event that the first call made.
        revision: Revision,
        /// The run's revision now.
        current_revision: Revision,
    },
}

/// A run, as the commands of a batch before left it.
struct Slot {
    run: Arc<Run>,
    /// The run as it is stored; none: it is new.
    before: Option<Stored>,
    is_written: bool,
    metadata_changed: bool,
}

/// The runs of a batch, and the calls that were applied to them.
struct Runs {
    slots: HashMap<RunKey, Slot>,
    applied: HashMap<(RunKey, String), AppliedRequest>,
    /// Those that events were made of, in the order of the first.
    written: Vec<RunKey>,
}

impl Runs {
    fn new(runs: Vec<Arc<Run>>, requests: Vec<(RunKey, String, AppliedRequest)>) -> Self {
        let slot = |run: Arc<Run>| {
            let before = Some(Stored::new(&run));
            (run.key(), Slot { run, before, is_written: false, metadata_changed: false })
        };
        Self {
            slots: runs.into_iter().map(slot).collect(),
            applied: requests.into_iter().map(|(key, id, request)| ((key, id), request)).collect(),
            written: Vec::new(),
        }
    }

    fn weight(&self) -> usize {
        self.slots.values().map(|slot| slot.run.weight()).sum()
    }

    fn get(&self, key: &RunKey) -> Option<&Arc<Run>> {
        self.slots.get(key).map(|slot| &slot.run)
    }

    /// The call that was applied to the command's run under its `request_id`.
    fn applied(&self, Command { key, request, .. }: &Command) -> Option<&AppliedRequest> {
        self.applied.get(&(key.clone(), request.as_ref()?.id.clone()))
    }

    fn apply(&mut self, Command { key, request, .. }: &Command, event: &Event, run: &Arc<Run>) {
        let new = || Slot { run: Arc::clone(run), before: None, is_written: false, metadata_changed: false };
        let slot = self.slots.entry(key.clone()).or_insert_with(new);
        slot.metadata_changed |= !event.changes.metadata.is_empty() || event.changes.redaction.is_some();
        slot.run = Arc::clone(run);
        if !std::mem::replace(&mut slot.is_written, true) {
            self.written.push(key.clone());
        }
        if let Some(Request { id, digest }) = request {
            let applied = AppliedRequest { revision: event.revision, digest: *digest };
            self.applied.insert((key.clone(), id.clone()), applied);
        }
    }

    fn into_writes(mut self) -> Vec<RunWrite> {
        let slots = self.written.into_iter().filter_map(|key| self.slots.remove(&key));
        slots.map(|Slot { run, before, metadata_changed, .. }| RunWrite { run, before, metadata_changed }).collect()
    }
}

/// The bytes of values that a command looks at and merges, as they lie in memory.
fn merged(command: &Command, run: Option<&Run>) -> usize {
    let brought = command.ask.brought();
    let patched = |patch: &Metadata| run.map_or(0, |run| run.metadata.weight()) + patch.weight();
    brought.metadata.map_or(0, patched)
        + [brought.input, brought.result].into_iter().flatten().map(Content::weight).sum::<usize>()
}

/// Decides a shard's commands and numbers their events, as many as the limit on work allows.
#[must_use]
pub fn decide_batch(commands: &[Arc<Command>], loaded: Loaded) -> Decided {
    let Loaded { last, now, steady, runs, requests, sides, ledger_epoch } = loaded;
    let mut sides = sides::Batch::of(sides);
    let mut position = last;
    let mut runs = Runs::new(runs, requests);
    let mut decided = Decided { weight: runs.weight(), ..Decided::default() };
    let (mut looked_at, mut was_alone) = (0, false);

    for command in commands {
        if looked_at > MERGED_BYTES_MAX {
            break;
        }
        let before = runs.get(&command.key);
        let run = before.map(|run| &**run);
        if sides.lacks(command, run) && !decided.verdicts.is_empty() {
            break;
        }
        let is_alone = command.ask.facts().basis == Basis::Log;
        if was_alone || is_alone && !decided.verdicts.is_empty() {
            break;
        }
        looked_at += merged(command, run);
        let (applied, sides_found) = (runs.applied(command), sides.found(command, run));
        let context = Context { now, steady, applied, sides: sides_found, ledger_epoch };
        // A command whose values are masked has another digest than it had when it came.
        let command = match masked(run, command, &context) {
            Ok(command) => command,
            Err(refusal) => {
                decided.verdicts.push(Err(refusal));
                continue;
            }
        };
        let verdict = match decide(run, &command, &context) {
            Err(refusal) => Err(refusal),
            Ok(Decision::Unchanged) => {
                let run = before.cloned().expect("only an existing run is left unchanged");
                Ok(Verdict::Done(Disposition::Unchanged, run))
            }
            Ok(Decision::Replayed { revision }) => {
                Ok(Verdict::Replayed { revision, current_revision: run.map_or(revision, |run| run.revision) })
            }
            Ok(Decision::Apply(event, next)) => {
                let next = Arc::new(*next);
                was_alone = is_alone;
                decided.nothing_up_to = command.prepared.nothing_up_to(ledger_epoch);
                sides.apply(&Applied { command: &command, before: run, event: &event, run: &next, steady: steady.now });
                runs.apply(&command, &event, &next);
                position += 1;
                let disposition = Disposition::of(&event);
                let keyframe = event.revision.has_keyframe().then(|| next.clone());
                decided.events.push(NewEvent { position, event: *event, request: command.request.clone(), keyframe });
                Ok(Verdict::Done(disposition, next))
            }
        };
        decided.verdicts.push(verdict);
    }
    decided.weight += looked_at;
    decided.runs = runs.into_writes();
    decided.sides = sides.writes(&decided.runs);
    decided
}
