//! Namespaces: the rules by which they are made, changed and deleted. A namespace is a wall round its runs: a run of
//! another namespace does not exist for a caller.
//!
//! A namespace is deleted only when it has no run, and no tombstone of one. So no event was ever made in a namespace
//! that is gone, and a later one of the same name shares no past with it: cursors and page tokens of the former lead
//! to nothing that it had, and are not told apart.
//!
//! Invariants:
//!
//! - The namespace is part of every key: of runs, requests, claims, values of `max_running`, cursors and page tokens.
//!   So no statement that looks for a run finds one of another namespace, and the caller is answered as for a run that
//!   never was.
//! - A run comes into being only in a namespace that exists. The commit reads the namespace's row under the shard's
//!   head, and a deletion takes every head before it looks whether the namespace has a run. `default` always exists,
//!   and no row is read for it.
//! - A quota is set here, and held on the same row: for runs in [`sides::namespaces`](super::sides::namespaces)
//!   (`has_room`), for lifecycles in [`lifecycle::put`](super::lifecycle::put). The row of a namespace with a quota of
//!   active runs is the mutex of all creations in it.

use super::ids::DEFAULT_NAMESPACE;
use super::limits::{NAMESPACE_BYTES_MAX, NAMESPACES_MAX};
use super::{Namespace, Retention, Revision, Time};

/// The rule of names, for people.
pub const NAME_RULE: &str = "must be 1 to 63 characters of [a-z0-9-], with a letter or digit at both ends";

/// Whether a text is a name for a namespace: a DNS label, as Kubernetes has it.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let (first, last) = (text.as_bytes().first(), text.as_bytes().last());
    (1..=NAMESPACE_BYTES_MAX).contains(&text.len())
        && text.bytes().all(inner)
        && [first, last].iter().all(|end| end.is_some_and(|byte| *byte != b'-'))
}

/// A namespace's own limits. None: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Runs that are not terminal.
    pub max_active_runs: Option<u64>,
    /// Bytes that the events take.
    pub max_stored_bytes: Option<u64>,
}

/// The part of a namespace that an admin sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceSettings {
    /// What the namespace is for, for people.
    pub description: String,
    /// See [`Quotas`].
    pub quotas: Quotas,
    /// See [`Retention`].
    pub retention: Retention,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceRecord {
    pub name: Namespace,
    /// What an admin has set.
    pub settings: NamespaceSettings,
    /// The bytes that the events take, as they were measured last; none where nobody measures them.
    pub stored_bytes: Option<u64>,
    /// The number of changes, the creation included.
    pub revision: Revision,
    /// The time of the creation.
    pub created_at: Time,
    /// The time of the last change.
    pub updated_at: Time,
}

/// The change of a namespace that a call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceAsk {
    /// Make it.
    Create(NamespaceSettings),
    /// Set what is there, and leave the rest.
    Update {
        description: Option<String>,
        /// The quota of active runs; `Some(None)` takes it away.
        max_active_runs: Option<Option<u64>>,
        /// The quota of stored bytes, likewise.
        max_stored_bytes: Option<Option<u64>>,
        /// How long runs are kept, as a whole.
        retention: Option<Retention>,
    },
    /// Delete it, if it has no run.
    Delete,
}

/// A change of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceCommand {
    /// The namespace's name.
    pub name: Namespace,
    /// The change.
    pub ask: NamespaceAsk,
    /// The revision that the namespace must have.
    pub expected_revision: Option<Revision>,
}

/// The facts that the change of a namespace is decided on. Invariant: nobody else changes them until it is written.
#[derive(Clone, Copy, Debug)]
pub struct NamespaceFacts<'a> {
    /// The namespace as it is; none: there is no such namespace.
    pub record: Option<&'a NamespaceRecord>,
    /// Whether the namespace has a run, of any status. Read for a deletion only.
    pub has_runs: bool,
    /// The number of all namespaces. Read for a creation only.
    pub namespaces: u64,
    /// The store's clock.
    pub now: Time,
}

/// The effect of a change that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceDecision {
    /// The namespace is made.
    Create(NamespaceRecord),
    /// The namespace has these settings from now on.
    Update(NamespaceRecord),
    /// The namespace is as it was asked to be.
    Unchanged(NamespaceRecord),
    /// The namespace is deleted.
    Delete,
}

/// The reason for which a namespace was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceRefusal {
    /// There is no such namespace.
    NotFound,
    /// There is one of this name, with other settings.
    Exists,
    /// The namespace has runs.
    NotEmpty,
    /// The namespace has another revision.
    RevisionMismatch {
        /// The revision that was expected.
        expected: Revision,
        /// The revision that it has.
        actual: Revision,
    },
    /// There are as many namespaces as there may be.
    TooMany,
}

/// Decides the change of a namespace. The boundary refuses the deletion of `default`, and quotas of it.
///
/// # Errors
///
/// The refusal.
pub fn decide(command: &NamespaceCommand, facts: &NamespaceFacts<'_>) -> Result<NamespaceDecision, NamespaceRefusal> {
    let now = facts.now;
    match (&command.ask, facts.record) {
        // Whoever repeats a creation whose answer was lost finds the namespace as it asked for it.
        (NamespaceAsk::Create(settings), Some(record)) if record.settings == *settings => {
            Ok(NamespaceDecision::Unchanged(record.clone()))
        }
        (NamespaceAsk::Create(_), Some(_)) => Err(NamespaceRefusal::Exists),
        (NamespaceAsk::Create(_), None) if facts.namespaces >= NAMESPACES_MAX => Err(NamespaceRefusal::TooMany),
        (NamespaceAsk::Create(settings), None) => Ok(NamespaceDecision::Create(NamespaceRecord {
            name: command.name.clone(),
            settings: settings.clone(),
            stored_bytes: None,
            revision: Revision::FIRST,
            created_at: now,
            updated_at: now,
        })),
        (NamespaceAsk::Update { .. } | NamespaceAsk::Delete, None) => Err(NamespaceRefusal::NotFound),
        (NamespaceAsk::Update { description, max_active_runs, max_stored_bytes, retention }, Some(record)) => {
            at_revision(command, record)?;
            let before = record.settings.quotas;
            let settings = NamespaceSettings {
                description: description.clone().unwrap_or_else(|| record.settings.description.clone()),
                quotas: Quotas {
                    max_active_runs: max_active_runs.unwrap_or(before.max_active_runs),
                    max_stored_bytes: max_stored_bytes.unwrap_or(before.max_stored_bytes),
                },
                retention: retention.unwrap_or(record.settings.retention),
            };
            if settings == record.settings {
                return Ok(NamespaceDecision::Unchanged(record.clone()));
            }
            let updated_at = now.max(record.updated_at);
            let revision = record.revision.next();
            Ok(NamespaceDecision::Update(NamespaceRecord { settings, revision, updated_at, ..record.clone() }))
        }
        (NamespaceAsk::Delete, Some(record)) => {
            at_revision(command, record)?;
            if facts.has_runs || record.name == DEFAULT_NAMESPACE {
                return Err(NamespaceRefusal::NotEmpty);
            }
            Ok(NamespaceDecision::Delete)
        }
    }
}

fn at_revision(command: &NamespaceCommand, record: &NamespaceRecord) -> Result<(), NamespaceRefusal> {
    match command.expected_revision {
        Some(expected) if expected != record.revision => {
            Err(NamespaceRefusal::RevisionMismatch { expected, actual: record.revision })
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_dns_label() {
        for name in ["a", "0", "team-a", "a--b", "x9", &"a".repeat(63)] {
            assert!(is_name(name), "{name}");
        }
        for text in ["", "-", "a-", "-a", "A", "a_b", "a.b", "a b", "ä", "a\0", &"a".repeat(64)] {
            assert!(!is_name(text), "{text:?}");
        }
    }

    fn facts(record: Option<&NamespaceRecord>) -> NamespaceFacts<'_> {
        NamespaceFacts { record, has_runs: false, namespaces: 1, now: Time::from_micros(7) }
    }

    fn asked(ask: NamespaceAsk) -> NamespaceCommand {
        NamespaceCommand { name: "team-a".into(), ask, expected_revision: None }
    }

    fn made() -> NamespaceRecord {
        match decide(&asked(NamespaceAsk::Create(NamespaceSettings::default())), &facts(None)) {
            Ok(NamespaceDecision::Create(record)) => record,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_repeated_creation_is_unchanged_and_another_one_is_refused() {
        let record = made();
        let again = asked(NamespaceAsk::Create(NamespaceSettings::default()));
        assert_eq!(decide(&again, &facts(Some(&record))), Ok(NamespaceDecision::Unchanged(record.clone())));
        let quotas = Quotas { max_active_runs: Some(1), ..Quotas::default() };
        let other = asked(NamespaceAsk::Create(NamespaceSettings { quotas, ..NamespaceSettings::default() }));
        assert_eq!(decide(&other, &facts(Some(&record))), Err(NamespaceRefusal::Exists));
        let full = NamespaceFacts { namespaces: NAMESPACES_MAX, ..facts(None) };
        assert_eq!(decide(&again, &full), Err(NamespaceRefusal::TooMany));
    }

    #[test]
    fn an_update_sets_what_it_names_and_a_deletion_wants_no_run() {
        let record = made();
        let quota = asked(NamespaceAsk::Update {
            description: None,
            max_active_runs: Some(Some(5)),
            max_stored_bytes: None,
            retention: None,
        });
        let Ok(NamespaceDecision::Update(updated)) = decide(&quota, &facts(Some(&record))) else { panic!() };
        assert_eq!((updated.revision.get(), updated.settings.quotas.max_active_runs), (2, Some(5)));
        assert_eq!(decide(&quota, &facts(Some(&updated))), Ok(NamespaceDecision::Unchanged(updated.clone())));
        let stale = NamespaceCommand { expected_revision: Some(Revision::FIRST), ..asked(NamespaceAsk::Delete) };
        let mismatch = NamespaceRefusal::RevisionMismatch { expected: Revision::FIRST, actual: updated.revision };
        assert_eq!(decide(&stale, &facts(Some(&updated))), Err(mismatch));
        let delete = asked(NamespaceAsk::Delete);
        assert_eq!(decide(&delete, &facts(Some(&updated))), Ok(NamespaceDecision::Delete));
        let occupied = NamespaceFacts { has_runs: true, ..facts(Some(&updated)) };
        assert_eq!(decide(&delete, &occupied), Err(NamespaceRefusal::NotEmpty));
        assert_eq!(decide(&delete, &facts(None)), Err(NamespaceRefusal::NotFound));
    }
}
