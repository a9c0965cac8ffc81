//! The rules by which a version of a lifecycle is put.

use super::{Lifecycle, LifecycleId};
use crate::domain::limits::{LIFECYCLE_PUTS_MAX, LIFECYCLE_VERSIONS_MAX, LIFECYCLES_MAX};
use crate::domain::{Namespace, Principal, Used};

/// A declaration that is to be the newest version of its name.
#[derive(Clone, Debug, PartialEq)]
pub struct PutLifecycle {
    /// The namespace that it belongs to.
    pub namespace: Namespace,
    /// What is declared.
    pub lifecycle: Lifecycle,
    /// The declaration as it was written, YAML or JSON.
    pub source: String,
    /// Who puts it.
    pub by: Principal,
    /// Only where the namespace has no lifecycle of this name: what is built in, and exempt from limits.
    pub only_new: bool,
}

/// The facts that a put is decided on. Invariant: nobody else changes them until it is written.
#[derive(Clone, Debug, Default)]
pub struct PutFacts {
    /// Whether the namespace is there.
    pub has_namespace: bool,
    /// The newest version of the name; none: there is no such name.
    pub newest: Option<(u32, Lifecycle)>,
    /// The number of names in the namespace.
    pub names: u64,
    /// The versions that were put in the namespace within the last minute.
    pub puts: u64,
    /// The quota of stored bytes of the namespace, where it has one.
    pub stored_bytes: Option<Used>,
}

/// The effect of a put that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// It is this version.
    Applied(LifecycleId),
    /// The newest version says the same.
    Unchanged(LifecycleId),
}

impl PutOutcome {
    /// The version.
    #[must_use]
    pub fn id(&self) -> &LifecycleId {
        match self {
            Self::Applied(id) | Self::Unchanged(id) => id,
        }
    }
}

/// The reason for which a version was not put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutRefusal {
    /// There is no such namespace.
    NamespaceNotFound,
    /// As many names as there may be.
    TooManyNames,
    /// As many versions of the name as there may be.
    TooManyVersions,
    /// As many puts within a minute as there may be.
    TooOften,
    /// The namespace has no room for more bytes.
    TooManyBytes {
        /// Its quota.
        limit: u64,
        /// The part of it that is used.
        used: u64,
    },
}

/// Decides a put.
///
/// # Errors
///
/// The refusal.
pub fn decide(put: &PutLifecycle, facts: &PutFacts) -> Result<PutOutcome, PutRefusal> {
    let of = |version| LifecycleId { name: put.lifecycle.name.clone(), version };
    if !facts.has_namespace {
        return Err(PutRefusal::NamespaceNotFound);
    }
    let newest = match &facts.newest {
        Some((version, newest)) if *newest == put.lifecycle || put.only_new => {
            return Ok(PutOutcome::Unchanged(of(*version)));
        }
        Some((version, _)) => *version,
        // What is built in is little, and put when a run needs it.
        None if put.only_new => 0,
        None if facts.names >= LIFECYCLES_MAX => return Err(PutRefusal::TooManyNames),
        None => 0,
    };
    if newest >= LIFECYCLE_VERSIONS_MAX {
        return Err(PutRefusal::TooManyVersions);
    }
    if let Some(Used { max, used }) = facts.stored_bytes.filter(|used| used.used >= used.max) {
        return Err(PutRefusal::TooManyBytes { limit: max, used });
    }
    if facts.puts >= LIFECYCLE_PUTS_MAX && !put.only_new {
        return Err(PutRefusal::TooOften);
    }
    Ok(PutOutcome::Applied(of(newest + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(at_end: &str) -> PutLifecycle {
        let lifecycle = Lifecycle { name: "a".into(), at_end: Some(at_end.into()), ..Lifecycle::default() };
        let by = Principal::anonymous();
        PutLifecycle { namespace: Namespace::default(), lifecycle, source: String::new(), by, only_new: false }
    }

    fn facts(newest: Option<(u32, &str)>) -> PutFacts {
        let newest = newest.map(|(version, at_end)| (version, put(at_end).lifecycle));
        PutFacts { has_namespace: true, newest, ..PutFacts::default() }
    }

    #[test]
    fn a_put_that_equals_the_newest_version_is_unchanged_and_any_other_is_the_next() {
        let of = |version| LifecycleId { name: "a".into(), version };
        assert_eq!(decide(&put("a"), &facts(None)), Ok(PutOutcome::Applied(of(1))));
        assert_eq!(decide(&put("a"), &facts(Some((1, "a")))), Ok(PutOutcome::Unchanged(of(1))));
        assert_eq!(decide(&put("b"), &facts(Some((1, "a")))), Ok(PutOutcome::Applied(of(2))));
        assert_eq!(decide(&put("a"), &facts(Some((2, "b")))), Ok(PutOutcome::Applied(of(3))));
        let only_new = PutLifecycle { only_new: true, ..put("a") };
        assert_eq!(decide(&only_new, &facts(Some((2, "b")))), Ok(PutOutcome::Unchanged(of(2))));
    }

    #[test]
    fn each_limit_has_its_refusal() {
        let missing = PutFacts { has_namespace: false, ..facts(None) };
        assert_eq!(decide(&put("a"), &missing), Err(PutRefusal::NamespaceNotFound));
        let full = |newest| PutFacts { names: LIFECYCLES_MAX, ..facts(newest) };
        assert_eq!(decide(&put("a"), &full(None)), Err(PutRefusal::TooManyNames));
        assert!(decide(&put("a"), &full(Some((1, "b")))).is_ok());
        let last = facts(Some((LIFECYCLE_VERSIONS_MAX, "b")));
        assert_eq!(decide(&put("a"), &last), Err(PutRefusal::TooManyVersions));
        let used = Used { max: 10, used: 10 };
        let stored = PutFacts { stored_bytes: Some(used), ..facts(None) };
        assert_eq!(decide(&put("a"), &stored), Err(PutRefusal::TooManyBytes { limit: 10, used: 10 }));
        let built_in = PutLifecycle { only_new: true, ..put("a") };
        let crowded = PutFacts { names: LIFECYCLES_MAX, puts: LIFECYCLE_PUTS_MAX, ..facts(None) };
        assert!(decide(&built_in, &crowded).is_ok(), "no put of somebody else keeps a run from starting");
        let often = |newest| PutFacts { puts: LIFECYCLE_PUTS_MAX, ..facts(newest) };
        assert_eq!(decide(&put("a"), &often(None)), Err(PutRefusal::TooOften));
        assert!(decide(&put("a"), &often(Some((1, "a")))).is_ok(), "what changes nothing is no put");
    }
}
