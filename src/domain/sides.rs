//! The sides of a decision: rows besides the run that it rests on. A store reads and locks them under the shard's head,
//! and writes them with the events. The store handles each kind alike and knows the meaning of none.
//!
//! A side has a file of its own. The file says on which row a command is decided, how the events of a batch change the
//! rows, and which rows are to be written.

pub mod claims;
pub mod contents;
mod leases;
pub mod lifecycles;
pub mod max_running;
pub mod namespaces;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::claims::{ClaimKey, Claimed, Claims};
use self::contents::{ContentRow, Contents};
use self::leases::Leases;
use self::lifecycles::{Declared, LifecycleFound, LifecycleKey, Lifecycles};
use self::max_running::{Counted, LabelValue};
use self::namespaces::{NamespaceFound, NamespaceRow, Namespaces};
use super::{Command, Event, Hash, HeldLease, Lease, Namespace, Rest, Run, RunId, RunKey, RunWrite, Time};

/// The rows that the decisions on some commands may rest on.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The leases of these runs.
    pub leases: BTreeSet<RunKey>,
    /// The runs that count for the values which these runs have of these labels.
    pub max_running: BTreeSet<(RunKey, String)>,
    /// The claims of these claim requests.
    pub claims: BTreeSet<ClaimKey>,
    /// The namespaces in which runs may be created.
    pub namespaces: BTreeSet<Namespace>,
    /// The links of these runs.
    pub links: BTreeSet<RunKey>,
    /// The time from which deadlines of people are acted upon.
    pub acts_from: bool,
}

impl Wanted {
    /// The rows that are wanted by commands on runs that are not known yet.
    #[must_use]
    pub fn by<'a>(commands: impl IntoIterator<Item = &'a Command>) -> Self {
        let mut wanted = Self::default();
        for command in commands {
            if leases::is_wanted(command, None) {
                wanted.leases.insert(command.key.clone());
            }
            let max_running = command.ask.brought().terms.max_running;
            wanted.max_running.extend(max_running.map(|max| (command.key.clone(), max.label.clone())));
            wanted.claims.extend(claims::key(command));
            wanted.namespaces.extend(namespaces::wanted(command).cloned());
            wanted.links.extend(contents::wanted(command).cloned());
            wanted.acts_from |= matches!(command.ask, super::Ask::Sweep);
        }
        wanted
    }

    /// Whether a command is decided only on its run, and on a claim request that is new.
    #[must_use]
    pub fn is_only_the_run(command: &Command, run: Option<&Run>) -> bool {
        // A command that gives a claim back rests on the row of its claim request.
        let brought = command.ask.brought();
        let gives_back = brought.given_back.is_some() && brought.claim_request.is_some();
        !leases::is_wanted(command, run)
            && !gives_back
            && brought.terms.max_running.is_none()
            && contents::wanted(command).is_none()
    }
}

/// The rows as they were read, as far as they are there.
#[derive(Clone, Debug, Default)]
pub struct Sides {
    /// The leases of runs.
    pub leases: Vec<(RunKey, HeldLease)>,
    /// The runs that count, of each value whose row was read, also where none counts. Invariant: no other commit
    /// changes such a row until this one has ended.
    pub max_running: Vec<(LabelValue, Vec<RunId>)>,
    /// The claims of claim requests. Invariant: no other commit changes such a row until this one has ended.
    pub claims: Vec<(ClaimKey, Claimed)>,
    /// The namespaces that are there. Invariant: nobody deletes one, and of those that have a quota no other commit
    /// creates a run, until this one has ended.
    pub namespaces: Vec<NamespaceRow>,
    /// The [keys](super::Link::key) of links, for each run that has some.
    pub links: Vec<(RunKey, Hash)>,
    /// The lifecycles that were [wanted](lifecycles::wanted), as far as they are there.
    pub lifecycles: Vec<(LifecycleKey, Arc<Declared>)>,
    /// The time from which deadlines of people are acted upon: a while after the authority was last away.
    pub acts_from: Option<Time>,
}

/// The rows of the sides to be written, in the order of their keys.
#[derive(Clone, Debug, Default)]
pub struct SideWrites {
    /// Leases that begin, or begin anew; none: the row is deleted. The other rows are left to their renewals.
    pub leases: Vec<(RunKey, Option<Lease>)>,
    /// Runs that are at rest from now on, or rest otherwise; none: the row is deleted.
    pub rests: Vec<(RunKey, Option<Rest>)>,
    /// The runs that count from now on towards `max_running`, by value.
    pub max_running: Vec<(LabelValue, Vec<RunId>)>,
    /// Claim requests that are to be remembered; none: to be forgotten.
    pub claims: Vec<(ClaimKey, Option<Claimed>)>,
    /// Rows that are new: inputs, results, links. None where no event has [refinements](super::RefinementsChange): only where
    /// one has may a run name other runs as well.
    pub contents: Option<Vec<ContentRow>>,
}

/// The rows of the sides that one decision rests on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'a> {
    /// The run's lease as it is kept; none where the command is not decided on it.
    pub lease: Option<HeldLease>,
    /// The runs that count towards the command's [`MaxRunning`](max_running::MaxRunning).
    pub running: &'a [RunId],
    /// The claim of the command's [claim request](crate::domain::ask::Brought::claim_request).
    pub claimed: Option<&'a Claimed>,
    /// The command's namespace, where it may create a run.
    pub namespace: NamespaceFound<'a>,
    /// The keys of the run's links, where the command adds some.
    pub links: &'a [Hash],
    /// The lifecycle that the run is pinned to, or is to be.
    pub lifecycle: LifecycleFound<'a>,
    /// The time from which deadlines of people are acted upon; none where the command is not decided on it.
    pub acts_from: Option<Time>,
}

/// The rows, as the commands of a batch leave them.
#[derive(Debug)]
pub(super) struct Batch {
    leases: Leases,
    max_running: Counted,
    claims: Claims,
    namespaces: Namespaces,
    contents: Contents,
    lifecycles: Lifecycles,
    acts_from: Option<Time>,
}

impl Batch {
    pub(super) fn of(sides: Sides) -> Self {
        let Sides { leases, max_running, claims, namespaces, links, lifecycles, acts_from } = sides;
        Self {
            leases: Leases::of(leases),
            max_running: Counted::of(max_running),
            claims: Claims::of(claims),
            namespaces: Namespaces::of(namespaces),
            contents: Contents::of(links),
            lifecycles: Lifecycles::of(lifecycles),
            acts_from,
        }
    }

    /// Whether the batch has not read, and so not locked, a row that the command is decided on. The next batch reads
    /// it.
    pub(super) fn lack(&self, command: &Command, run: Option<&Run>) -> bool {
        self.max_running.lack(command, run)
    }

    pub(super) fn found(&self, command: &Command, run: Option<&Run>) -> Found<'_> {
        Found {
            lease: self.leases.row(command),
            running: self.max_running.row(command, run),
            claimed: self.claims.row(command),
            namespace: self.namespaces.row(command),
            links: self.contents.links(command),
            lifecycle: self.lifecycles.row(command, run),
            acts_from: self.acts_from,
        }
    }

    pub(super) fn apply(&mut self, command: &Command, before: Option<&Run>, event: &Event, run: &Run, steady: Time) {
        self.leases.apply(command, event, run, steady);
        self.max_running.apply(command, before, run);
        self.claims.apply(command, run);
        self.namespaces.apply(command, before);
        self.contents.apply(command, event, run);
    }

    pub(super) fn writes(self, runs: &[RunWrite]) -> SideWrites {
        let mut leases: Vec<_> = runs.iter().filter_map(leases::write).collect();
        leases.sort_by(|(one, _), (other, _)| one.cmp(other));
        let rests = runs.iter().filter_map(RunWrite::rest).collect();
        let contents = self.contents.writes();
        let (max_running, claims) = (self.max_running.writes(), self.claims.writes());
        SideWrites { leases, rests, max_running, claims, contents }
    }
}
