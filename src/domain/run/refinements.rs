//! The refinements of a run: what it was given, what it left, the runs that it comes from, and where it stands within
//! its status. A run without any has none of these fields, and pays a pointer for them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Resumption, Suspension, set};
use crate::domain::form::object;
use crate::domain::lifecycle::{LifecyclePin, LimitThen, Requirement};
use crate::domain::{ContentDigest, Event, EventType, Link, Priority, Revision, RunId, Time};

/// The refinements of a run, at most 8 KiB. The things themselves stand in tables of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refinements {
    /// What the run was given; never changes.
    pub input: Option<ContentDigest>,
    /// What came of the run, so far.
    pub result: Option<ResultDigest>,
    /// The number of links.
    pub links: u32,
    /// The priority among the runs that wait for a claim.
    pub priority: Priority,
    /// The run that started this one.
    pub parent_run_id: Option<RunId>,
    /// The run that this one goes on with.
    pub continues_run_id: Option<RunId>,
    /// The lifecycle that it is pinned to; never changes.
    pub lifecycle: Option<LifecyclePin>,
    /// The phase that it is in.
    pub phase: Option<String>,
    /// The time since which it is in that phase.
    pub phase_started_at: Option<Time>,
    /// The phase that it was in when the authority ended it by a conclusion, where its lifecycle moves it at its end: a late
    /// completion is judged by this one. Runs that an earlier release ended have none.
    pub ended_in: Option<String>,
    /// The number of times that it began anew.
    pub iteration: u32,
    /// The highest iteration that it may come to; none: there is no bound.
    pub max_iterations: Option<u32>,
    /// What happens to it above that.
    pub max_iterations_then: Option<LimitThen>,
    /// The word for its state; none: the name of its status.
    pub word: Option<String>,
    /// What it has of that which its completion requires.
    pub met: BTreeSet<Requirement>,
    /// The run waits, and nobody executes it.
    pub suspension: Option<Box<Suspension>>,
    /// The suspension that it last went on from, with what was said then.
    pub resumed_from: Option<Box<Suspension>>,
}

/// A result as the run has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResultDigest {
    /// Its digest.
    pub content: ContentDigest,
    /// The revision that set it.
    pub revision: Revision,
}

/// The changes of refinements by an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefinementsChange {
    /// Set at creation.
    pub input: Option<ContentDigest>,
    /// The new result. That of a late report stands in the report.
    pub result: Option<ContentDigest>,
    /// The links that were added; of a late report, its own.
    pub links: Vec<Link>,
    /// Set at creation.
    pub parent_run_id: Option<RunId>,
    /// Set at creation.
    pub continues_run_id: Option<RunId>,
    /// Set at creation.
    pub lifecycle: Option<LifecyclePin>,
    /// The new phase.
    pub phase: Option<String>,
    /// See [`Refinements::ended_in`].
    pub ended_in: Option<String>,
    /// The new iteration.
    pub iteration: Option<u32>,
    /// Set at creation.
    pub max_iterations: Option<u32>,
    /// Set at creation.
    pub max_iterations_then: Option<LimitThen>,
    /// The new word; empty: the name of the run's status from now on.
    pub word: Option<String>,
    /// What the event newly brought of that which the run's completion requires.
    pub met: BTreeSet<Requirement>,
    /// The run was suspended.
    pub suspension: Option<Box<Suspension>>,
    /// What was said with the call that let the run go on, or made it ready.
    pub resumption: Option<Box<Resumption>>,
    /// The new priority.
    pub priority: Option<Priority>,
}

object!(Refinements {
    input: "input",
    result: "result",
    links: "links",
    priority: "priority",
    parent_run_id: "parentRunId",
    continues_run_id: "continuesRunId",
    lifecycle: "lifecycle",
    phase: "phase",
    phase_started_at: "phaseStartedAt",
    ended_in: "endedIn",
    iteration: "iteration",
    max_iterations: "maxIterations",
    max_iterations_then: "maxIterationsThen",
    word: "word",
    met: "met",
    suspension: "suspension",
    resumed_from: "resumedFrom"
});

object!(RefinementsChange {
    input: "input",
    result: "result",
    links: "links",
    parent_run_id: "parentRunId",
    continues_run_id: "continuesRunId",
    lifecycle: "lifecycle",
    phase: "phase",
    ended_in: "endedIn",
    iteration: "iteration",
    max_iterations: "maxIterations",
    max_iterations_then: "maxIterationsThen",
    word: "word",
    met: "met",
    suspension: "suspension",
    resumption: "resumption",
    priority: "priority"
});

impl Refinements {
    /// Folds an event. What a late report brings is shown beside it: see [`LateReport`](super::LateReport).
    pub(in crate::domain) fn fold(refinements: &mut Option<Box<Self>>, event: &Event) {
        if ends_suspension(event)
            && let Some(mut all) = refinements.take()
        {
            all.end_suspension(event);
            Self::keep(refinements, all);
        }
        let Some(change) = &event.changes.refinements else { return };
        if event.event_type == EventType::LateReported {
            return;
        }
        let RefinementsChange {
            input,
            result,
            links,
            parent_run_id,
            continues_run_id,
            lifecycle,
            phase,
            ended_in,
            iteration,
            max_iterations,
            max_iterations_then,
            word,
            met,
            suspension,
            resumption,
            priority,
        } = &**change;
        let mut all = refinements.take().unwrap_or_default();
        all.input = input.or(all.input);
        let revision = event.revision;
        all.result = result.map(|content| ResultDigest { content, revision }).or(all.result);
        all.links += u32::try_from(links.len()).unwrap_or(u32::MAX);
        all.parent_run_id = parent_run_id.clone().or(all.parent_run_id);
        all.continues_run_id = continues_run_id.clone().or(all.continues_run_id);
        all.lifecycle = lifecycle.clone().or(all.lifecycle);
        if phase.is_some() {
            all.phase.clone_from(phase);
            all.phase_started_at = Some(event.at);
        }
        all.ended_in = ended_in.clone().or(all.ended_in);
        all.iteration = iteration.unwrap_or(all.iteration);
        all.max_iterations = max_iterations.or(all.max_iterations);
        all.max_iterations_then = max_iterations_then.or(all.max_iterations_then);
        set(&mut all.word, word.as_ref());
        all.met.extend(met.iter().cloned());
        all.priority = priority.unwrap_or(all.priority);
        if suspension.is_some() {
            all.suspension.clone_from(suspension);
            all.resumed_from = None;
        }
        if let (EventType::Ready, Some(suspension)) = (event.event_type, &mut all.suspension) {
            suspension.deadline = None;
            suspension.resumption.clone_from(resumption);
        }
        Self::keep(refinements, all);
    }

    /// What the completion requires is to be brought anew by a run that goes on.
    fn end_suspension(&mut self, event: &Event) {
        let ended = self.suspension.take();
        if event.to.is_terminal() {
            self.resumed_from = None;
            return;
        }
        if let Some(mut ended) = ended {
            self.met.clear();
            let said = event.changes.refinements.as_ref().and_then(|change| change.resumption.clone());
            ended.resumption = said.or(ended.resumption);
            ended.deadline = None;
            self.resumed_from = Some(ended);
        }
    }

    /// Keeps a suspension's deadline where it is by the [steady clock](crate::domain::steady).
    pub(in crate::domain) fn reckon_anew(refinements: &mut Option<Box<Self>>, shift: i64) {
        let suspension = refinements.as_mut().filter(|_| shift != 0).and_then(|all| all.suspension.as_mut());
        if let Some(deadline) = suspension.and_then(|suspension| suspension.deadline.as_mut()) {
            *deadline = deadline.plus_micros(shift);
        }
    }

    /// No refinements are none.
    pub(in crate::domain) fn keep(refinements: &mut Option<Box<Self>>, all: Box<Self>) {
        *refinements = Some(all).filter(|all| **all != Self::default());
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        size_of::<Self>()
            + ids([&self.parent_run_id, &self.continues_run_id])
            + self.lifecycle.as_ref().map_or(0, |pin| pin.id.name.len())
            + [&self.phase, &self.ended_in, &self.word].into_iter().flatten().map(String::len).sum::<usize>()
            + met(&self.met)
            + [&self.suspension, &self.resumed_from].into_iter().flatten().map(|it| it.weight()).sum::<usize>()
    }
}

/// Whether a suspended run goes on with an event, or ends.
fn ends_suspension(event: &Event) -> bool {
    event.to.is_terminal() || matches!(event.event_type, EventType::Resumed | EventType::Claimed)
}

impl RefinementsChange {
    /// Whether it says that something stands beside the run, or which runs the run comes from: these have tables and
    /// columns of their own.
    pub(in crate::domain) fn has_rows(&self) -> bool {
        self.input.is_some()
            || self.result.is_some()
            || !self.links.is_empty()
            || self.parent_run_id.is_some()
            || self.continues_run_id.is_some()
    }

    /// The change in a box; none where it changes nothing.
    pub(in crate::domain) fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let links: usize = self.links.iter().map(Link::weight).sum();
        size_of::<Self>()
            + links
            + ids([&self.parent_run_id, &self.continues_run_id])
            + self.lifecycle.as_ref().map_or(0, |pin| pin.id.name.len())
            + [&self.phase, &self.ended_in, &self.word].into_iter().flatten().map(String::len).sum::<usize>()
            + met(&self.met)
            + self.suspension.as_ref().map_or(0, |suspension| suspension.weight())
            + self.resumption.as_ref().map_or(0, |resumption| resumption.weight())
    }
}

fn ids(ids: [&Option<RunId>; 2]) -> usize {
    ids.into_iter().flatten().map(|id| id.len()).sum()
}

/// Each of a few requirements lies in a node of a tree of its own, about.
fn met(met: &BTreeSet<Requirement>) -> usize {
    met.len() * 128
}
