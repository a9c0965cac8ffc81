//! Lists and counts of runs: what is asked of a store, and what it answers.

use std::collections::BTreeMap;

use crate::domain::{Filter, Run, Status, Time};

/// Runs that one count looks at.
pub const COUNT_RUNS_MAX: usize = 100_000;

/// A question for a list of runs.
#[derive(Clone, Debug)]
pub struct RunQuery {
    /// The namespace that they live in.
    pub namespace: String,
    /// Which of them.
    pub filter: Filter,
    /// In which order.
    pub order: Order,
    /// Where to go on: only runs that come after it, whether it still matches or not.
    pub after: Option<Place>,
    /// How many at most.
    pub limit: usize,
    /// About how many bytes at most as stored, but at least one run if there is one.
    pub bytes_max: usize,
    /// With their metadata; without, it is empty and not read.
    pub metadata: bool,
}

/// The order of a list: by (`started_at`, `run_id`), which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The latest first.
    NewestFirst,
    /// The earliest first.
    OldestFirst,
}

/// A run's place in a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// [`Run::started_at`].
    pub started_at: Time,
    /// [`Run::run_id`].
    pub run_id: String,
}

/// A page of a list.
#[derive(Debug, Default)]
pub struct RunPage {
    /// The runs, in the order that was asked for; none where the store has looked at its limit of runs and none matched.
    pub runs: Vec<Run>,
    /// Where to go on; none at the end.
    pub next: Option<Place>,
}

/// How many runs match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// For each status that occurs.
    pub counts: BTreeMap<Status, u64>,
    /// There are more runs than [`COUNT_RUNS_MAX`] to look at: those counted are the newest.
    pub truncated: bool,
}
