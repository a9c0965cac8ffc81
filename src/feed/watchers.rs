//! The sessions that watch many runs, and an index by which a change finds those that it may be for.
//!
//! Sessions with the same namespace and filter are a group, whose filter is tested once for all of them. A group whose
//! filter asks for values of fields is found by one of them, so that the cost of a change is the number of groups that
//! may match it, and not that of all. That one is the value which the fewest other groups were found by when the group
//! came: a value that many filters ask for tells nothing.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use tokio::sync::Notify;

use super::Change;
use crate::domain::{Filter, LedgerEpoch, Namespace, Route, Run};

/// No change waits for a watcher.
const NONE: u64 = u64::MAX;

/// About what a session takes, with its place here: measured on thousands.
const SESSION_BYTES: usize = 1536;

/// A session that watches many runs.
pub(super) struct Watcher {
    /// The oldest entry of the ring that the session has not looked at and that may be for it. Invariant: no earlier
    /// entry is for it that it has not looked at.
    pending: u64,
    /// The ring's beginning in which the session has looked at every entry, as of `pending`.
    looked_since: Option<u64>,
    group: u64,
    filter: Arc<GroupKey>,
    /// Notified when an entry may be for the session.
    wake: Arc<Notify>,
    /// Notified when the session has looked at every entry.
    looked: Arc<Notify>,
    /// The ledger's epoch when the session began.
    pub(super) epoch: LedgerEpoch,
}

impl Watcher {
    pub(super) fn shows(&self, change: &Change) -> Option<bool> {
        self.filter.shows(change)
    }

    /// The oldest entry to look at, at most `end`.
    pub(super) fn pending(&self, end: u64) -> u64 {
        self.pending.min(end)
    }

    /// Whether the session has looked at every entry since this beginning.
    pub(super) fn has_looked_since(&self, beginning: u64) -> bool {
        self.pending == NONE && self.looked_since == Some(beginning)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct GroupKey {
    namespace: Namespace,
    filter: Arc<Filter>,
}

impl GroupKey {
    fn shows(&self, change: &Change) -> Option<bool> {
        change.shown_to(&self.namespace, &self.filter)
    }

    /// About the bytes that a group with this key takes.
    fn weight(&self) -> usize {
        let Filter {
            task_thread_id,
            audit_session_id,
            workflow_id,
            agent_id,
            parent_run_id,
            continues_run_id,
            labels,
            phase,
            lifecycle,
            suspension_kind: kind,
            ..
        } = &*self.filter;
        let texts = [task_thread_id, audit_session_id, workflow_id, agent_id, phase, lifecycle, kind];
        let texts = texts.into_iter().flatten().map(String::len);
        let runs = [parent_run_id, continues_run_id].into_iter().flatten().map(|run_id| run_id.len()).sum::<usize>();
        let labels = labels.iter().map(|(key, value)| 64 + key.len() + value.len());
        size_of::<(Self, Group, Filter)>() + 2 * (texts.sum::<usize>() + runs + labels.sum::<usize>())
    }
}

/// The sessions with one namespace and filter.
struct Group {
    key: Arc<GroupKey>,
    /// The hash of the value by which the group is found.
    found_by: u64,
    members: usize,
    /// The members that no change waits for.
    idle: HashSet<u64>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Watchers {
    by_id: HashMap<u64, Watcher>,
    /// The groups' numbers, for sessions that come and leave.
    numbers: HashMap<Arc<GroupKey>, u64>,
    last_number: u64,
    groups: HashMap<u64, Group>,
    /// The groups by a hash of their namespace and the value. Two values with the same hash cost a test.
    by_value: HashMap<u64, HashSet<u64>>,
    hashes: RandomState,
    /// See [`GroupKey::weight`].
    groups_bytes: usize,
}

/// A field of which a filter may ask for one value, and the value.
#[derive(Hash)]
enum Value<'a> {
    TaskThread(&'a str),
    AuditSession(&'a str),
    Workflow(&'a str),
    Agent(&'a str),
    Label(&'a str, &'a str),
    Route(Route),
    Parent(&'a str),
    Continued(&'a str),
    /// What every run has.
    Any,
}

/// The values that a filter asks for, and [`Value::Any`] as the last one.
fn asked(filter: &Filter) -> impl Iterator<Item = Value<'_>> {
    let thread = filter.task_thread_id.as_deref().map(Value::TaskThread);
    let audit_session = filter.audit_session_id.as_deref().map(Value::AuditSession);
    let workflow = filter.workflow_id.as_deref().map(Value::Workflow);
    let agent = filter.agent_id.as_deref().map(Value::Agent);
    let labels = filter.labels.iter().map(|(key, value)| Value::Label(key, value));
    let route = filter.route.map(Value::Route);
    let parent = filter.parent_run_id.as_deref().map(Value::Parent);
    let continued = filter.continues_run_id.as_deref().map(Value::Continued);
    [continued, parent, thread, audit_session, workflow, agent]
        .into_iter()
        .flatten()
        .chain(labels)
        .chain(route)
        .chain([Value::Any])
}

/// The values that a run has.
fn had(run: &Run) -> impl Iterator<Item = Value<'_>> {
    let thread = Some(Value::TaskThread(&run.task_thread_id));
    let audit_session = run.bindings.audit_session_id.as_deref().map(Value::AuditSession);
    let workflow = run.bindings.workflow_id.as_deref().map(Value::Workflow);
    let agent = run.agent_id.as_deref().map(Value::Agent);
    let labels = run.labels.iter().map(|(key, value)| Value::Label(key, value));
    let route = run.bindings.route.map(Value::Route);
    let refinements = run.refinements.as_deref();
    let parent = refinements.and_then(|refinements| refinements.origin.parent_run_id.as_deref()).map(Value::Parent);
    let continued =
        refinements.and_then(|refinements| refinements.origin.continues_run_id.as_deref()).map(Value::Continued);
    [continued, parent, thread, audit_session, workflow, agent]
        .into_iter()
        .flatten()
        .chain(labels)
        .chain(route)
        .chain([Value::Any])
}

impl Watchers {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn get(&self, id: u64) -> Option<&Watcher> {
        self.by_id.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Watcher> {
        self.by_id.values()
    }

    /// Admits a session, for which any entry of the ring may be. Returns its signals: an entry may be for it; it has
    /// looked at every entry.
    pub(super) fn admit(
        &mut self,
        id: u64,
        namespace: Namespace,
        filter: Arc<Filter>,
        epoch: LedgerEpoch,
    ) -> (Arc<Notify>, Arc<Notify>) {
        let key = Arc::new(GroupKey { namespace, filter });
        let group = self.numbers.get(&key).copied().unwrap_or_else(|| self.begin_group(key.clone()));
        let filter = match self.groups.get_mut(&group) {
            Some(group) => {
                group.members += 1;
                group.key.clone()
            }
            None => key,
        };
        let (wake, looked) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let told = (wake.clone(), looked.clone());
        self.by_id.insert(id, Watcher { pending: 0, looked_since: None, group, filter, wake, looked, epoch });
        told
    }

    /// The number of a new group.
    fn begin_group(&mut self, key: Arc<GroupKey>) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        let hashes = asked(&key.filter).map(|value| self.hashes.hash_one((&key.namespace, value)));
        let others = |hash: &u64| self.by_value.get(hash).map_or(0, HashSet::len);
        // `Any` is the last resort, however few groups are found by it. Of values that tell the same, the first counts.
        let hashes: Vec<u64> = hashes.collect();
        let (any, values) = hashes.split_last().expect("every filter asks for `Any`");
        let found_by = *values.iter().min_by_key(|hash| others(hash)).unwrap_or(any);
        self.by_value.entry(found_by).or_default().insert(number);
        self.groups_bytes += key.weight();
        self.groups.insert(number, Group { key: key.clone(), found_by, members: 0, idle: HashSet::new() });
        self.numbers.insert(key, number);
        number
    }

    pub(super) fn dismiss(&mut self, id: u64) {
        let Some(Watcher { group: number, .. }) = self.by_id.remove(&id) else { return };
        let Some(group) = self.groups.get_mut(&number) else { return };
        group.idle.remove(&id);
        group.members -= 1;
        if group.members == 0
            && let Some(Group { key, found_by, .. }) = self.groups.remove(&number)
        {
            self.groups_bytes -= key.weight();
            self.numbers.remove(&key);
            if let Some(place) = self.by_value.get_mut(&found_by) {
                place.remove(&number);
                if place.is_empty() {
                    self.by_value.remove(&found_by);
                }
            }
        }
    }

    /// A session has looked at every entry since this beginning.
    pub(super) fn has_looked(&mut self, id: u64, beginning: u64) {
        let Some(watcher) = self.by_id.get_mut(&id) else { return };
        watcher.pending = NONE;
        watcher.looked_since = Some(beginning);
        watcher.looked.notify_waiters();
        if let Some(group) = self.groups.get_mut(&watcher.group) {
            group.idle.insert(id);
        }
    }

    /// Wakes the sessions that wait and that show this change, which is the entry of this number.
    pub(super) fn tell(&mut self, change: &Change, entry: u64) {
        let Self { by_id, groups, by_value, hashes, .. } = self;
        if by_value.is_empty() {
            return;
        }
        let namespace = &change.key.namespace;
        let runs = change.filtered.before.iter().chain([&change.filtered.after]);
        let values = runs.flat_map(|run| had(run)).map(|value| hashes.hash_one((namespace, value)));
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        values.dedup();
        for number in values.iter().filter_map(|value| by_value.get(value)).flatten() {
            let Some(group) = groups.get_mut(number).filter(|group| !group.idle.is_empty()) else { continue };
            if group.key.shows(change).is_some() {
                for id in group.idle.drain() {
                    if let Some(watcher) = by_id.get_mut(&id) {
                        watcher.pending = entry;
                        watcher.wake.notify_one();
                    }
                }
            }
        }
    }

    /// Wakes these sessions.
    pub(super) fn wake(&self, which: impl Fn(&Watcher) -> bool) {
        self.iter().filter(|watcher| which(watcher)).for_each(|watcher| watcher.wake.notify_one());
    }

    /// About the bytes that the sessions' places and filters take.
    pub(super) fn bytes(&self) -> usize {
        self.groups_bytes + self.by_id.len() * SESSION_BYTES
    }
}

#[cfg(test)]
mod tests;
