//! Lists and counts of runs: the questions, the answers, and which index leads to the runs.
//!
//! Invariant: a list or a count walks one index in its order, and looks at a bounded number of runs, whatever its
//! filter is. The conditions that the index does not cover are tested on the entries that were looked at, and a page
//! that has looked at its limit ends there. Every index that leads to runs has their place in the list as its last
//! columns, so that a page begins where the last one ended.

mod by;
pub(super) mod filter;
pub(super) mod page;

use std::collections::BTreeMap;

pub use self::by::By;
pub(super) use self::by::Table;
use super::PAGE_BYTES_MAX;
use crate::domain::{Filter, Namespace, Priority, Run, RunId, Status, Time};

/// How far a list or a count looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// So far that the read takes a few milliseconds at most.
    Short,
    /// As far as one call may.
    Long,
}

impl Reach {
    /// Runs that one page of a list looks at.
    #[must_use]
    pub const fn list_runs_max(self) -> usize {
        match self {
            Self::Short => 512,
            Self::Long => 10_000,
        }
    }

    /// Runs that one count looks at.
    #[must_use]
    pub const fn count_runs_max(self) -> usize {
        match self {
            Self::Short => 512,
            Self::Long => 100_000,
        }
    }

    /// Ready runs that one count looks at beside.
    #[must_use]
    pub const fn ready_runs_max(self) -> usize {
        match self {
            Self::Short => READY_RUNS_MAX,
            Self::Long => 100_000,
        }
    }

    /// About the bytes of a page of a list, as stored.
    #[must_use]
    pub const fn page_bytes_max(self) -> usize {
        match self {
            Self::Short => 512 << 10,
            Self::Long => PAGE_BYTES_MAX,
        }
    }
}

/// Ready runs that one read is to bring at most: without their metadata, they are three megabytes at the most.
pub const READY_RUNS_MAX: usize = 256;

/// Which of the ready runs are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyOf {
    /// Those whose claim was not begun; else those that go on after a suspension.
    pub not_begun: bool,
    /// Those of this priority.
    pub priority: Priority,
}

/// A question for a list of runs.
#[derive(Clone, Debug)]
pub struct RunQuery {
    /// The namespace of the runs.
    pub namespace: Namespace,
    /// The conditions on the runs.
    pub filter: Filter,
    /// The order of the runs.
    pub order: Order,
    /// The place to go on from: only runs that come after it, whether its run still matches or not.
    pub after: Option<Place>,
    /// The number of runs at most, at least one.
    pub limit: usize,
    /// The bytes at most as stored, about, but at least one run if there is one.
    pub bytes_max: usize,
    /// Whether runs come with their metadata; without, it is empty and not read.
    pub metadata: bool,
    /// How many runs are looked at.
    pub reach: Reach,
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
    pub run_id: RunId,
}

/// A run's place among those that wait for a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimPlace {
    /// The priority, counted down: what comes first is the smallest.
    rank: i16,
    /// The place among the runs of that priority.
    pub within: Place,
}

impl ClaimPlace {
    /// The place of a run.
    #[must_use]
    pub fn new(run: &Run) -> Self {
        Self::at(run.priority(), Place::of(run))
    }

    /// A place among the runs of a priority.
    #[must_use]
    pub fn at(priority: Priority, within: Place) -> Self {
        Self { rank: -priority.get(), within }
    }

    /// The same run's place, with another priority.
    #[must_use]
    pub fn with(&self, priority: Priority) -> Self {
        Self::at(priority, self.within.clone())
    }

    /// The priority; none for the place before every run and the place after every run.
    #[must_use]
    pub fn priority(&self) -> Option<Priority> {
        Priority::of(-i32::from(self.rank))
    }

    /// The place before every run.
    #[must_use]
    pub fn start() -> Self {
        Self { rank: i16::MIN + 1, within: Place::start() }
    }

    /// The place before this run, and after every run of the same priority and an earlier time.
    #[must_use]
    pub fn before(&self) -> Self {
        Self { rank: self.rank, within: self.within.before() }
    }

    /// The place after every run.
    #[must_use]
    pub fn end() -> Self {
        Self { rank: i16::MAX, within: Place::end() }
    }
}

/// A page of the runs that wait for a claim, in their order.
#[derive(Debug, Default)]
pub struct ClaimPage {
    pub runs: Vec<Run>,
    /// The place to go on from; none at the end.
    pub next: Option<ClaimPlace>,
}

/// A page of a list.
#[derive(Debug, Default)]
pub struct RunPage {
    /// The runs, in the order that was asked for; none where the store has looked at its limit of runs and none
    /// matched.
    pub runs: Vec<Run>,
    /// The place to go on from; none at the end. A page that ended early names a place even where nothing follows.
    pub next: Option<Place>,
}

/// What runs are counted by, beside their status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountBy {
    /// Their phase.
    pub phase: bool,
    /// The kind of their suspension.
    pub suspension: bool,
}

impl CountBy {
    /// Their status alone.
    pub const STATUS: Self = Self { phase: false, suspension: false };
}

/// The number of runs that match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// The number for each status that occurs among the runs that match.
    pub counts: BTreeMap<Status, u64>,
    /// The number for each phase that occurs, where runs are counted by it; empty: in none.
    pub phases: BTreeMap<String, u64>,
    /// The number of suspended ones for each kind that occurs, where runs are counted by it.
    pub suspensions: BTreeMap<String, u64>,
    /// There are more runs than [the walk](Reach::count_runs_max) looks at: those counted are the newest.
    pub truncated: bool,
}

impl RunPage {
    /// A page of runs that all match, as many as there are or as were asked for.
    pub(super) fn new(runs: Vec<Run>, limit: usize) -> Self {
        let next = runs.last().filter(|_| runs.len() >= limit).map(Place::of);
        Self { runs, next }
    }
}

impl Place {
    /// The place of a run.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        Self { started_at: run.started_at, run_id: run.run_id.clone() }
    }

    /// The place before every run.
    #[must_use]
    pub fn start() -> Self {
        Self::at(Time::from_micros(i64::MIN))
    }

    /// The place before this run, and after every run of an earlier time.
    #[must_use]
    pub fn before(&self) -> Self {
        Self::at(self.started_at)
    }

    /// The place before every run of that time, for no run id is empty.
    fn at(started_at: Time) -> Self {
        Self { started_at, run_id: RunId::default() }
    }

    /// The place after every run.
    #[must_use]
    pub fn end() -> Self {
        Self { started_at: Time::from_micros(i64::MAX), run_id: char::MAX.to_string().into() }
    }
}

/// The places between which a list or a count looks, neither included. One pair of bounds for all that narrows the
/// range: of two on one side, a database may walk from the looser one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// The range has only runs after this place.
    pub(super) after: Place,
    /// The range has only runs before this place.
    pub(super) before: Place,
}

impl Range {
    /// The range of a filter's bounds on the start.
    pub(super) fn of(filter: &Filter) -> Self {
        Self {
            after: filter.started_from.map_or_else(Place::start, Place::at),
            before: filter.started_before.map_or_else(Place::end, Place::at),
        }
    }

    /// The range of a count.
    pub(super) fn of_count(filter: &Filter, before: Option<Place>) -> Self {
        let range = Self::of(filter);
        Self { before: before.into_iter().fold(range.before, Place::min), ..range }
    }

    /// The range of a page.
    pub(super) fn of_page(query: &RunQuery) -> Self {
        let Self { after, before } = Self::of(&query.filter);
        match (query.order, query.after.clone()) {
            (_, None) => Self { after, before },
            (Order::NewestFirst, Some(shown)) => Self { after, before: before.min(shown) },
            (Order::OldestFirst, Some(shown)) => Self { after: after.max(shown), before },
        }
    }
}

impl Order {
    /// The order in SQL.
    pub(super) fn sql(self) -> &'static str {
        match self {
            Self::NewestFirst => "desc",
            Self::OldestFirst => "asc",
        }
    }

    /// The order of a walk, by columns of `table`.
    pub(super) fn of(self, table: &str) -> String {
        let direction = self.sql();
        format!("{table}started_at {direction}, {table}run_id {direction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(micros: i64, run_id: &str) -> Place {
        Place { started_at: Time::from_micros(micros), run_id: run_id.into() }
    }

    fn query(order: Order, after: Option<Place>, filter: Filter) -> RunQuery {
        let namespace = "default".into();
        RunQuery { namespace, filter, order, after, limit: 1, bytes_max: 1, metadata: false, reach: Reach::Long }
    }

    #[test]
    fn the_index_that_leads_to_the_fewest_others_serves_a_filter() {
        let text = || Some("x".to_owned());
        let mut filter = Filter { labels: [("k".to_owned(), "v".to_owned())].into(), ..Filter::default() };
        assert_eq!(By::new(&filter), By::Start);
        filter.statuses = [Status::Pending, Status::Failed].into();
        assert_eq!(By::new(&filter), By::Start, "terminal runs are not in `active`");
        filter.workflow_id = text();
        assert_eq!(By::new(&filter), By::Workflow);
        filter.agent_id = text();
        assert_eq!(By::new(&filter), By::Agent);
        filter.statuses = [Status::Pending].into();
        assert_eq!(By::new(&filter), By::Active);
        filter.audit_session_id = text();
        assert_eq!(By::new(&filter), By::AuditSession);
        filter.task_thread_id = text();
        assert_eq!(By::new(&filter), By::TaskThread);
        filter.parent_run_id = Some("x".into());
        assert_eq!(By::new(&filter), By::Parent);
        filter.continues_run_id = Some("x".into());
        assert_eq!(By::new(&filter), By::Continued);
        for by in By::ALL {
            let is_of_a_text = by.column().is_some_and(|column| column != "priority");
            assert_eq!(is_of_a_text, by.value(&filter).is_some(), "{by:?}");
        }
        let pending: Filter = Filter { statuses: [Status::Pending].into(), agent_id: text(), ..Filter::default() };
        for (priority, by) in [(Some(Priority::NONE), By::Unprioritised), (Priority::of(7), By::Priority)] {
            assert_eq!(By::new(&Filter { priority, ..pending.clone() }), by);
        }
        for filter in [
            Filter { suspended: Some(true), ..pending.clone() },
            Filter { ready: Some(true), ..pending.clone() },
            Filter { suspension_kind: text(), ..pending },
        ] {
            assert_eq!(By::new(&filter), By::Suspended);
        }
    }

    #[test]
    fn one_pair_of_bounds_says_all_that_narrows_the_range() {
        let time = |micros| Some(Time::from_micros(micros));
        let filter = Filter { started_from: time(10), started_before: time(20), ..Filter::default() };
        for (order, shown, after, before) in [
            (Order::NewestFirst, None, place(10, ""), place(20, "")),
            (Order::NewestFirst, Some(place(15, "b")), place(10, ""), place(15, "b")),
            (Order::NewestFirst, Some(place(25, "b")), place(10, ""), place(20, "")),
            (Order::OldestFirst, Some(place(15, "b")), place(15, "b"), place(20, "")),
            (Order::OldestFirst, Some(place(10, "b")), place(10, "b"), place(20, "")),
            (Order::OldestFirst, Some(place(5, "b")), place(10, ""), place(20, "")),
        ] {
            let range = Range::of_page(&query(order, shown, filter.clone()));
            assert_eq!(range, Range { after, before }, "{order:?}");
        }
        let Range { after, before } = Range::of(&Filter::default());
        for run in [place(i64::MIN, "0"), place(0, "~"), place(i64::MAX, "~~")] {
            assert!(after < run && run < before, "{run:?}");
        }
    }
}
