//! The commands of one commit, decided in order, each on the state that the one before it left.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::decide::{AppliedRequest, Context, Decision, decide};
use super::limits::KEYFRAME_EVENTS;
use super::{
    Ask, Claimed, Command, Event, EventType, HeldLease, LabelValue, Lease, Position, Refusal, Request, Run, RunKey,
    Status, Time,
};

/// What the store read under the shard's head lock.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The shard's last event: its position and time; none in an empty shard.
    pub last: Option<(Position, Time)>,
    /// The store's clock, and not before the last event of any shard.
    pub now: Time,
    /// The store's clock as it is.
    pub clock: Time,
    /// The runs that the commands are for, as far as they exist.
    pub runs: Vec<Arc<Run>>,
    /// The commands' `request_id`s that were applied before.
    pub requests: Vec<(RunKey, String, AppliedRequest)>,
    /// The leases of those runs whose command looks at them, as far as there are any.
    pub leases: Vec<(RunKey, HeldLease)>,
    /// The runs that count towards what claims allow of a label's value: of each value that a command limits whose run is
    /// there and pending, also where none counts. Until the commit has ended, nobody else's claim changes it.
    pub running: Vec<(LabelValue, Vec<String>)>,
    /// What is remembered of the commands' claim requests, as far as they were applied before. Until the commit has ended,
    /// nobody else changes it.
    pub claimed: Vec<(ClaimKey, Claimed)>,
    /// See [`Context::ledger_epoch`].
    pub ledger_epoch: u64,
}

/// Where a claim request is remembered: its namespace and its id.
pub type ClaimKey = (String, String);

/// What the commands came to, and what is to be written.
#[derive(Debug, Default)]
pub struct Decided {
    /// One answer for each command, in their order, of as many as the limit on work allowed: at least the first. The
    /// others were not looked at. Holds once the writes are durable.
    pub verdicts: Vec<Result<Verdict, Refusal>>,
    /// The runs as they are to be stored.
    pub runs: Vec<RunWrite>,
    /// The events to append, by position.
    pub events: Vec<NewEvent>,
    /// The runs that count from now on towards what claims allow of a label's value.
    pub counted: Vec<(LabelValue, Vec<String>)>,
    /// Claim requests that are to be remembered; none: to be forgotten.
    pub claimed: Vec<(ClaimKey, Option<Claimed>)>,
    /// About how many bytes of runs were read and made.
    pub weight: usize,
}

impl Decided {
    /// Whether each command that was looked at made its event.
    #[must_use]
    pub fn all_applied(&self) -> bool {
        self.verdicts.iter().all(|verdict| matches!(verdict, Ok(Verdict::Applied(_) | Verdict::RecordedLate(_))))
    }
}

/// Bytes of metadata that one batch merges at most, as they lie in memory: what is above waits for the next batch. A
/// batch is decided while its shard's head is held, and 512 small patches of one large run are gigabytes.
const MERGED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a command did.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It made its event; the run right after it.
    Applied(Arc<Run>),
    /// It made its event, which keeps what was reported late; the run right after it.
    RecordedLate(Arc<Run>),
    /// It was a permitted no-op; the run as it is.
    Unchanged(Arc<Run>),
    /// It was applied before.
    Replayed {
        /// The revision of the event that the first call made.
        revision: u64,
        /// The run's revision now.
        current_revision: u64,
    },
}

/// A run to be stored.
#[derive(Clone, Debug)]
pub struct RunWrite {
    /// The run after the commit.
    pub run: Arc<Run>,
    /// What is stored before the commit; none: the run is new.
    pub before: Option<Stored>,
    /// Whether the metadata differs from what is stored.
    pub metadata_changed: bool,
}

/// What of a stored run a writer needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its revision.
    pub revision: u64,
    /// Its status.
    pub status: Status,
    /// See [`Run::due_at`].
    pub due_at: Option<Time>,
    /// The epoch of its lease; 0: it never had one.
    pub epoch: u64,
    /// Whether it is [ready](Run::is_ready).
    pub ready: bool,
}

impl Stored {
    fn of(run: &Run) -> Self {
        let epoch = run.supervision.epoch();
        Self { revision: run.revision, status: run.status, due_at: run.due_at(), epoch, ready: run.is_ready() }
    }
}

/// What becomes of the row that keeps a run's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseWrite {
    /// It is left to its renewals; or there is none.
    Keep,
    /// It begins, or begins anew.
    Grant(Lease),
    /// It goes: the run has ended, or nobody holds it.
    End,
}

/// What becomes of the row that a run has while it is [ready](Run::is_ready).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyWrite {
    /// It stays as it is; or there is none.
    Keep,
    /// It comes.
    Begin,
    /// It goes.
    End,
}

impl RunWrite {
    /// What becomes of the run's lease.
    #[must_use]
    pub fn lease(&self) -> LeaseWrite {
        let stored = self.before.map_or(0, |before| before.epoch);
        let has_row = self.before.is_some_and(|before| !before.status.is_terminal() && stored > 0 && !before.ready);
        match self.run.supervision.lease {
            Some(_) | None if self.run.status.is_terminal() || self.run.is_ready() => {
                if has_row {
                    LeaseWrite::End
                } else {
                    LeaseWrite::Keep
                }
            }
            Some(lease) if lease.epoch != stored => LeaseWrite::Grant(lease),
            Some(_) | None => LeaseWrite::Keep,
        }
    }

    /// What becomes of the row that tells that the run is ready.
    #[must_use]
    pub fn ready(&self) -> ReadyWrite {
        match (self.before.is_some_and(|before| before.ready), self.run.is_ready()) {
            (false, true) => ReadyWrite::Begin,
            (true, false) => ReadyWrite::End,
            (true, true) | (false, false) => ReadyWrite::Keep,
        }
    }
}

/// An event to be appended.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Its place in the shard.
    pub position: Position,
    /// The event.
    pub event: Event,
    /// The request that made it.
    pub request: Option<Request>,
    /// The run right after it, where the log is to carry the whole run.
    pub keyframe: Option<Arc<Run>>,
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
    let Loaded { last, now, clock, runs, requests, leases, running, claimed, ledger_epoch } = loaded;
    let mut leases: HashMap<RunKey, HeldLease> = leases.into_iter().collect();
    let mut running: HashMap<LabelValue, Vec<String>> = running.into_iter().collect();
    let mut counted: BTreeMap<LabelValue, Vec<String>> = BTreeMap::new();
    let mut claims: BTreeMap<ClaimKey, Option<Claimed>> =
        claimed.into_iter().map(|(key, claimed)| (key, Some(claimed))).collect();
    let mut claimed = BTreeSet::new();
    let now = last.map_or(now, |(_, at)| now.max(at));
    let mut position = last.map_or(0, |(position, _)| position);
    let mut slots: HashMap<RunKey, Slot> = runs.into_iter().map(|run| (run.key(), Slot::of(run))).collect();
    let mut applied: HashMap<(RunKey, String), AppliedRequest> =
        requests.into_iter().map(|(key, id, request)| ((key, id), request)).collect();
    let mut written: Vec<RunKey> = Vec::new();
    let read = slots.values().filter_map(|slot| slot.run.as_ref()).map(|run| run.weight()).sum();
    let mut decided = Decided { weight: read, ..Decided::default() };
    let mut merged = 0;

    for command in commands {
        if merged > MERGED_BYTES_MAX {
            break;
        }
        let limited = command.max_running().and_then(|_| slots.get(&command.key));
        let limited = limited.and_then(|slot| LabelValue::limited(slot.run.as_deref()?, command));
        if limited.as_ref().is_some_and(|value| !running.contains_key(value)) && !decided.verdicts.is_empty() {
            // The run came to be in this batch: nobody has looked yet at what else counts. The next batch does.
            break;
        }
        let slot =
            slots.entry(command.key.clone()).or_insert(Slot { run: None, before: None, metadata_changed: false });
        if let Some(patch) = command.ask.metadata() {
            let stored = slot.run.as_ref().map_or(0, |run| run.metadata.weight());
            merged += stored + patch.weight();
        }
        let request = command.request.clone();
        let remembered = request.as_ref().and_then(|request| applied.get(&(command.key.clone(), request.id.clone())));
        let lease = leases.get(&command.key).copied();
        let counts = limited.as_ref().and_then(|value| running.get(value)).map_or(&[][..], Vec::as_slice);
        let claim = command.claim_request().map(|request| (command.key.namespace.clone(), request));
        let claim_key = claim.as_ref().map(|(namespace, request)| (namespace.clone(), request.id.clone()));
        let before = claim_key.as_ref().and_then(|key| claims.get(key)?.as_ref());
        let context =
            Context { now, applied: remembered, lease, clock, running: counts, claimed: before, ledger_epoch };
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
                let stored_revision = slot.before.map_or(0, |stored| stored.revision);
                if slot.run.as_ref().map_or(0, |run| run.revision) == stored_revision {
                    written.push(command.key.clone());
                }
                if let (Some(key), Some((_, request))) = (claim_key, claim) {
                    let now_claimed = matches!(command.ask, Ask::Claim(_)).then(|| Claimed {
                        key: command.key.clone(),
                        epoch: run.supervision.epoch(),
                        digest: request.digest,
                        replays: 0,
                    });
                    claims.insert(key.clone(), now_claimed);
                    claimed.insert(key);
                }
                if run.is_ready() {
                    leases.remove(&command.key);
                } else if let Some(lease) = event.changes.supervision.lease {
                    leases.insert(command.key.clone(), HeldLease::granted(lease, clock));
                }
                // Only a claim states a limit.
                if let Some(value) = limited {
                    running.entry(value.clone()).or_default().push(command.key.run_id.clone());
                    counted.entry(value).or_default().push(command.key.run_id.clone());
                }
                if (run.status.is_terminal() || run.is_ready()) && !running.is_empty() {
                    let namespace = &command.key.namespace;
                    let of_namespace = running.iter_mut().filter(|(value, _)| value.namespace == *namespace);
                    of_namespace.for_each(|(_, counts)| counts.retain(|run_id| *run_id != command.key.run_id));
                }
                slot.metadata_changed |= !event.changes.metadata.is_empty();
                slot.run = Some(run.clone());
                if let Some(request) = &request {
                    let remembered = AppliedRequest { revision: event.revision, digest: request.digest };
                    applied.insert((command.key.clone(), request.id.clone()), remembered);
                }
                position += 1;
                let keyframe = event.revision.is_multiple_of(KEYFRAME_EVENTS).then(|| run.clone());
                let late = event.event_type == EventType::LateReported;
                decided.events.push(NewEvent { position, event: *event, request, keyframe });
                Ok(if late { Verdict::RecordedLate(run) } else { Verdict::Applied(run) })
            }
        };
        decided.verdicts.push(verdict);
    }
    decided.weight += merged;
    decided.counted = counted.into_iter().collect();
    decided.claimed = claimed.into_iter().map(|key| (key.clone(), claims.remove(&key).flatten())).collect();
    decided.runs =
        written.into_iter().map(|key| slots.remove(&key).expect("a written run has a slot").written()).collect();
    decided
}
