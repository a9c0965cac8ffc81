//! Hints of namespaces: which of them are there, and have no quota. Runs that are created in these are decided without
//! a read; the statement that writes looks under the head whether they are still there and without a quota.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::domain::sides::namespaces::wanted;
use crate::domain::{Command, Namespace, NamespaceRow};

/// Namespaces that are remembered at most. When there are more, all are forgotten, and learned again.
const NAMESPACES_MAX: usize = 1_024;

/// See the module.
#[derive(Default)]
pub(in crate::store::postgres) struct HintedNamespaces(Mutex<HashSet<Namespace>>);

impl HintedNamespaces {
    /// Notes namespaces as they were read under a head.
    pub(in crate::store::postgres) fn note(&self, rows: &[NamespaceRow]) {
        if rows.is_empty() {
            return;
        }
        let mut known = self.0.lock();
        for row in rows {
            if row.active_runs.is_some() || row.stored_bytes.is_some() {
                known.remove(&row.name);
                continue;
            }
            if known.len() >= NAMESPACES_MAX {
                known.clear();
            }
            known.insert(row.name.clone());
        }
    }

    /// Forgets the namespaces of these commands, one of which may be gone or have a quota by now.
    pub(in crate::store::postgres) fn were_wrong(&self, commands: &[Arc<Command>]) {
        let mut named = commands.iter().filter_map(|command| wanted(command)).peekable();
        if named.peek().is_some() {
            let mut known = self.0.lock();
            for namespace in named {
                known.remove(namespace);
            }
        }
    }

    pub(super) fn forget(&self) {
        self.0.lock().clear();
    }

    /// The namespaces in which these commands may create runs; none where one is not remembered.
    pub(super) fn of(&self, commands: &[Arc<Command>]) -> Option<Vec<NamespaceRow>> {
        let mut named = commands.iter().filter_map(|command| wanted(command)).peekable();
        // Most ledgers have `default` alone, and take no lock here.
        if named.peek().is_none() {
            return Some(Vec::new());
        }
        let named: HashSet<&Namespace> = named.collect();
        let known = self.0.lock();
        named.into_iter().map(|name| known.contains(name).then(|| NamespaceRow::without_quotas(name.clone()))).collect()
    }
}
