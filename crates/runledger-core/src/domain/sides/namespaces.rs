//! Refuses the creation of a run where its namespace is not there or a quota of it is used up. `default` is always
//! there and has no quotas: nothing is read for it.

use std::collections::HashMap;

use super::side::{Applied, Side};
use crate::domain::ids::DEFAULT_NAMESPACE;
use crate::domain::{Basis, Command, Namespace, Refusal, Run, RunWrite};

/// A namespace, as the creation of a run in it is decided on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceRow {
    pub name: Namespace,
    /// The quota of active runs, and their number, which is counted no further than the quota.
    pub active_runs: Option<Used>,
    /// The quota of stored bytes, and the bytes as they were measured last.
    pub stored_bytes: Option<Used>,
}

impl NamespaceRow {
    /// A namespace that has no quota.
    #[must_use]
    pub fn without_quotas(name: Namespace) -> Self {
        Self { name, active_runs: None, stored_bytes: None }
    }
}

/// A quota, and how much of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The quota.
    pub max: u64,
    /// The part that is used.
    pub used: u64,
}

impl Used {
    fn is_full(&self) -> bool {
        self.used >= self.max
    }
}

/// The namespace of a command that may create a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceFound<'a> {
    /// Nothing is decided on it: the command creates no run, or the namespace is `default`.
    #[default]
    NotAsked,
    /// There is no such namespace.
    Missing,
    /// The namespace.
    There(&'a NamespaceRow),
}

impl NamespaceFound<'_> {
    /// Refuses a run in a namespace that is not there.
    pub(in crate::domain) fn is_there(self, command: &Command) -> Result<(), Refusal> {
        match self {
            Self::NotAsked | Self::There(_) => Ok(()),
            Self::Missing => Err(Refusal::NamespaceNotFound { namespace: command.key.namespace.clone() }),
        }
    }

    /// Refuses a run above a quota.
    pub(in crate::domain) fn has_room(self) -> Result<(), Refusal> {
        let Self::There(NamespaceRow { name, active_runs, stored_bytes }) = self else { return Ok(()) };
        let quotas = [("max_active_runs", active_runs), ("max_stored_bytes", stored_bytes)];
        let exceeded =
            quotas.into_iter().find_map(|(quota, used)| used.filter(Used::is_full).map(|used| (quota, used)));
        exceeded.map_or(Ok(()), |(quota, Used { max, used })| {
            Err(Refusal::QuotaExceeded { namespace: name.clone(), quota, limit: max, used })
        })
    }
}

/// The namespace whose row a command is decided on.
#[must_use]
pub fn wanted(command: &Command) -> Option<&Namespace> {
    let namespace = &command.key.namespace;
    (*namespace != DEFAULT_NAMESPACE && command.ask.facts().basis == Basis::RunOrNone).then_some(namespace)
}

/// The namespaces, as the commands of a batch leave them.
#[derive(Debug)]
pub struct Rows {
    rows: HashMap<Namespace, NamespaceRow>,
}

impl Rows {
    pub(super) fn row(&self, command: &Command) -> NamespaceFound<'_> {
        match wanted(command) {
            None => NamespaceFound::NotAsked,
            Some(namespace) => self.rows.get(namespace).map_or(NamespaceFound::Missing, NamespaceFound::There),
        }
    }
}

impl Side for Rows {
    type Key = Namespace;
    /// Invariant: nobody deletes a namespace that was read, and of those that have a quota no other commit creates a
    /// run, until this one has ended.
    type Row = NamespaceRow;
    type Writes = ();

    fn wanted(command: &Command) -> Option<Namespace> {
        wanted(command).cloned()
    }

    /// A store remembers those that have no quota.
    fn is_read_for(_: &Command, _: Option<&Run>) -> bool {
        false
    }

    fn of(rows: Vec<NamespaceRow>) -> Self {
        Self { rows: rows.into_iter().map(|row| (row.name.clone(), row)).collect() }
    }

    /// A run that was created counts. One that ends in the same batch counts for the rest of it: the next batch counts
    /// anew.
    fn apply(&mut self, Applied { command, before, .. }: &Applied<'_>) {
        if before.is_some() {
            return;
        }
        if let Some(row) = self.rows.get_mut(&command.key.namespace)
            && let Some(active) = &mut row.active_runs
        {
            active.used += 1;
        }
    }

    fn writes(self, _: &[RunWrite]) {}
}
