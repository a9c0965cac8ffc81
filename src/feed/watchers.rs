//! The sessions that watch many runs, and an index by which a change finds those that it may be for.
//!
//! Sessions with the same namespace and filter are a group, whose filter is tested once for all of them. A group whose
//! filter asks for one value of a field is found by that value, so that the cost of a change is the number of groups
//! that may match it, and not that of all.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use tokio::sync::Notify;

use super::Change;
use crate::domain::{Filter, LedgerEpoch, Namespace, Run};

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
    group: Arc<GroupKey>,
    /// Notified when an entry may be for the session.
    wake: Arc<Notify>,
    /// Notified when the session has looked at every entry.
    looked: Arc<Notify>,
    /// The ledger's epoch when the session began.
    pub(super) epoch: LedgerEpoch,
}

impl Watcher {
    pub(super) fn shows(&self, change: &Change) -> Option<bool> {
        change.shown_to(&self.group.namespace, &self.group.filter)
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

/// The sessions with one namespace and filter.
#[derive(Default)]
struct Group {
    members: usize,
    /// The members that no change waits for.
    idle: HashSet<u64>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Watchers {
    by_id: HashMap<u64, Watcher>,
    groups: HashMap<Arc<GroupKey>, Group>,
    /// The groups whose filters ask for a value of a field, by a hash of the field and the value. Two values with the
    /// same hash cost a test.
    by_value: HashMap<u64, Vec<Arc<GroupKey>>>,
    /// The groups whose filters ask for no such value.
    others: Vec<Arc<GroupKey>>,
    hashes: RandomState,
}

/// A field of which a filter may ask for one value, and the value.
#[derive(Hash)]
enum Value<'a> {
    TaskThread(&'a str),
    AuditSession(&'a str),
    Workflow(&'a str),
    Agent(&'a str),
    Label(&'a str, &'a str),
}

/// The value that a filter asks for: of the fields, the one that surely has the most values.
fn asked(filter: &Filter) -> Option<Value<'_>> {
    let Filter { task_thread_id, audit_session_id, workflow_id, agent_id, labels, .. } = filter;
    let label = || labels.iter().next().map(|(key, value)| Value::Label(key, value));
    let of = |text: &'_ Option<String>| text.is_some();
    if of(task_thread_id) {
        task_thread_id.as_deref().map(Value::TaskThread)
    } else if of(audit_session_id) {
        audit_session_id.as_deref().map(Value::AuditSession)
    } else if of(workflow_id) {
        workflow_id.as_deref().map(Value::Workflow)
    } else if of(agent_id) {
        agent_id.as_deref().map(Value::Agent)
    } else {
        label()
    }
}

/// The values that a run has.
fn had(run: &Run) -> impl Iterator<Item = Value<'_>> {
    let thread = Some(Value::TaskThread(&run.task_thread_id));
    let audit_session = run.links.audit_session_id.as_deref().map(Value::AuditSession);
    let workflow = run.links.workflow_id.as_deref().map(Value::Workflow);
    let agent = run.agent_id.as_deref().map(Value::Agent);
    let labels = run.labels.iter().map(|(key, value)| Value::Label(key, value));
    [thread, audit_session, workflow, agent].into_iter().flatten().chain(labels)
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
        let key = if let Some((known, _)) = self.groups.get_key_value(&key) {
            known.clone()
        } else {
            self.indexed(&key).push(key.clone());
            key
        };
        self.groups.entry(key.clone()).or_default().members += 1;
        let (wake, looked) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let told = (wake.clone(), looked.clone());
        self.by_id.insert(id, Watcher { pending: 0, looked_since: None, group: key, wake, looked, epoch });
        told
    }

    pub(super) fn dismiss(&mut self, id: u64) {
        let Some(Watcher { group: key, .. }) = self.by_id.remove(&id) else { return };
        let Some(group) = self.groups.get_mut(&key) else { return };
        group.idle.remove(&id);
        group.members -= 1;
        if group.members == 0 {
            self.groups.remove(&key);
            let place = self.indexed(&key);
            place.retain(|known| *known != key);
            if place.is_empty()
                && let Some(value) = asked(&key.filter)
            {
                self.by_value.remove(&self.hashes.hash_one((&key.namespace, value)));
            }
        }
    }

    /// The place of a group in the index.
    fn indexed(&mut self, key: &GroupKey) -> &mut Vec<Arc<GroupKey>> {
        match asked(&key.filter) {
            Some(value) => self.by_value.entry(self.hashes.hash_one((&key.namespace, value))).or_default(),
            None => &mut self.others,
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
    pub(super) fn tell(&mut self, change: &Change, number: u64) {
        let Self { by_id, groups, by_value, others, hashes } = self;
        let mut values: Vec<u64> = Vec::new();
        if !by_value.is_empty() {
            let namespace = &change.key.namespace;
            let runs = change.filtered.before.iter().chain([&change.filtered.after]);
            values.extend(runs.flat_map(|run| had(run)).map(|value| hashes.hash_one((namespace, value))));
            values.sort_unstable();
            values.dedup();
        }
        let of_values = values.iter().filter_map(|value| by_value.get(value)).flatten();
        for key in of_values.chain(&*others) {
            let Some(group) = groups.get_mut(key).filter(|group| !group.idle.is_empty()) else { continue };
            if change.shown_to(&key.namespace, &key.filter).is_some() {
                for id in group.idle.drain() {
                    if let Some(watcher) = by_id.get_mut(&id) {
                        watcher.pending = number;
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
        let texts = |filter: &Filter| {
            let Filter { task_thread_id, audit_session_id, workflow_id, agent_id, labels, .. } = filter;
            let texts =
                [task_thread_id, audit_session_id, workflow_id, agent_id].into_iter().flatten().map(String::len);
            texts.sum::<usize>() + labels.iter().map(|(key, value)| 64 + key.len() + value.len()).sum::<usize>()
        };
        let of_group = |key: &Arc<GroupKey>| size_of::<(GroupKey, Group, Filter)>() + 2 * texts(&key.filter);
        self.groups.keys().map(of_group).sum::<usize>() + self.by_id.len() * SESSION_BYTES
    }
}

#[cfg(test)]
mod tests;
