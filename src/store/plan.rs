//! The steps that a migration would take, looked up without a change of anything.

use super::migrations::{MIN_RELEASE, Migration, later};

/// What [`migrate`](super::open::migrate) would do to a database as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The last migration that was applied; 0 where there is no ledger yet.
    pub at: u32,
    /// The oldest release that may work on the database now; none where there is no ledger yet.
    pub min_release: Option<String>,
    /// The steps that are missing, in order.
    pub steps: &'static [Migration],
}

impl Plan {
    /// The plan for a place where no ledger is: one would be made, by all steps.
    #[must_use]
    pub fn of_nothing(steps: &'static [Migration]) -> Self {
        Self { at: 0, min_release: None, steps }
    }

    /// The plan for a ledger, of all steps of its store.
    #[must_use]
    pub fn of(at: u32, min_release: String, steps: &'static [Migration]) -> Self {
        let taken = steps.iter().take_while(|step| step.number <= at).count();
        Self { at, min_release: Some(min_release), steps: &steps[taken..] }
    }

    /// The release that the steps would raise `min_release` to: binaries of earlier ones are refused from then on.
    #[must_use]
    pub fn raises_to(&self) -> Option<&'static str> {
        let stated = self.min_release.as_deref()?;
        (!self.steps.is_empty() && later(stated, MIN_RELEASE) != stated).then_some(MIN_RELEASE)
    }
}

/// The steps on Postgres that callers notice while servers serve, and what they notice. All others take a moment.
const NOTICED: &[(u32, &str)] = &[
    (3, "nobody writes while the indexes of lists are made, some seconds for a million runs"),
    (8, "commits wait for it; behind a longer transaction it gives up after 2 s, and is to be tried again"),
    (9, "commits wait for it; behind a longer transaction it gives up after 2 s, and is to be tried again"),
    (10, "the log is read once and nobody writes meanwhile, some seconds for ten million events"),
    (14, "commits wait for it; behind a longer transaction it gives up after 2 s, and is to be tried again"),
    (15, "nobody writes while two indexes of lists are made, a few seconds for ten million runs"),
];

/// What callers notice of a step on Postgres while servers serve.
#[must_use]
pub fn noticed(step: &Migration) -> Option<&'static str> {
    NOTICED.iter().find(|(number, _)| *number == step.number).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::migrations::SQLITE;

    #[test]
    fn min_release_rises_with_a_step_and_never_without_one() {
        let newest = u32::try_from(SQLITE.len()).unwrap();
        assert_eq!(Plan::of_nothing(SQLITE).raises_to(), None, "no older binary works on it");
        assert_eq!(Plan::of(newest - 1, "0.0.1".to_owned(), SQLITE).raises_to(), Some(MIN_RELEASE));
        assert_eq!(Plan::of(newest, "0.0.1".to_owned(), SQLITE).raises_to(), None);
        assert_eq!(Plan::of(newest - 1, MIN_RELEASE.to_owned(), SQLITE).raises_to(), None);
        assert_eq!(Plan::of(newest - 1, "999.0.0".to_owned(), SQLITE).raises_to(), None);
        assert_eq!(Plan::of(newest + 9, "0.0.1".to_owned(), SQLITE).steps, []);
        assert!(NOTICED.iter().all(|(number, _)| *number <= newest));
    }
}
