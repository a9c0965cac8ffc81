//! Where a run stands within its status: its phase, its iteration, its word, and what it has of that which its completion
//! requires.

use std::collections::BTreeSet;

use serde::Serialize;

use super::texts::{self, set};
use crate::domain::Time;
use crate::domain::form::form;
use crate::domain::happened::Happened;
use crate::domain::lifecycle::{LifecycleName, LifecyclePin, LimitThen, Requirement};

/// Where a run stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunPosition {
    /// The lifecycle that it is pinned to; never changes.
    pub lifecycle: Option<LifecyclePin>,
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
}

form!(RunPosition {
    lifecycle: "lifecycle",
    phase: "phase",
    phase_started_at: "phaseStartedAt",
    ended_in: "endedIn",
    iteration: "iteration",
    max_iterations: "maxIterations",
    max_iterations_then: "maxIterationsThen",
    word: "word",
    met: "met"
});

/// The change of where a run stands, by an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PositionChange {
    /// Set at creation.
    pub lifecycle: Option<LifecyclePin>,
    /// The new phase.
    pub phase: Option<String>,
    /// See [`RunPosition::ended_in`].
    pub ended_in: Option<String>,
    /// The new iteration.
    pub iteration: Option<u32>,
    /// Set at creation; a resumption may raise it.
    pub max_iterations: Option<u32>,
    /// Set at creation.
    pub max_iterations_then: Option<LimitThen>,
    /// The new word; empty: the name of the run's status from now on.
    pub word: Option<String>,
    /// What the event newly brought of that which the run's completion requires.
    pub met: BTreeSet<Requirement>,
}

form!(PositionChange {
    lifecycle: "lifecycle",
    phase: "phase",
    ended_in: "endedIn",
    iteration: "iteration",
    max_iterations: "maxIterations",
    max_iterations_then: "maxIterationsThen",
    word: "word",
    met: "met"
});

/// What an ask says of where its run is to stand. Each ask says some of it; a request's digest has what is said, in this
/// order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PositionAsk {
    /// The lifecycle that the run is to be pinned to, as it was sent: a retry means the same whatever was put meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<LifecycleName>,
    /// The phase that the run is to be in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The iteration that the run has come to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u32>,
    /// The highest iteration that the run may come to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    /// What happens to the run above that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_iterations_then: Option<LimitThen>,
}

impl PositionAsk {
    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { lifecycle, phase, iteration: _, max_iterations: _, max_iterations_then: _ } = self;
        lifecycle.as_ref().map_or(0, |lifecycle| lifecycle.name.len()) + texts::weight([phase])
    }
}

impl RunPosition {
    pub(in crate::domain) fn fold(&mut self, change: &PositionChange, Happened { at, .. }: Happened<'_>) {
        let PositionChange { lifecycle, phase, ended_in, iteration, max_iterations, max_iterations_then, word, met } =
            change;
        if lifecycle.is_some() {
            self.lifecycle.clone_from(lifecycle);
        }
        if phase.is_some() {
            self.phase.clone_from(phase);
            self.phase_started_at = Some(at);
        }
        if ended_in.is_some() {
            self.ended_in.clone_from(ended_in);
        }
        self.iteration = iteration.unwrap_or(self.iteration);
        self.max_iterations = max_iterations.or(self.max_iterations);
        self.max_iterations_then = max_iterations_then.or(self.max_iterations_then);
        set(&mut self.word, word.as_ref());
        self.met.extend(met.iter().cloned());
    }

    /// What the completion requires is to be brought anew by a run that goes on.
    pub(in crate::domain) fn goes_on(&mut self) {
        self.met.clear();
    }

    /// What a later start says of it, beside what was settled at the run's creation.
    pub(in crate::domain) fn beside(&self, asked: &PositionAsk) -> [(&'static str, Option<String>, Option<String>); 3] {
        let Self { lifecycle, max_iterations, max_iterations_then, .. } = self;
        // The newest version of a name is whichever the run is pinned to.
        let pinned = |pin: &LifecyclePin| match &asked.lifecycle {
            Some(name) if name.is(&pin.id) => name.to_string(),
            Some(_) | None => pin.id.to_string(),
        };
        let (max, then) = (|max: u32| max.to_string(), |then: LimitThen| then.name().to_owned());
        [
            ("lifecycle", asked.lifecycle.as_ref().map(ToString::to_string), lifecycle.as_ref().map(pinned)),
            ("max_iterations", asked.max_iterations.map(max), max_iterations.map(max)),
            (
                "max_iterations_then",
                asked.max_iterations_then.map(then),
                Some(then(max_iterations_then.unwrap_or_default())),
            ),
        ]
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let Self {
            lifecycle,
            phase,
            ended_in,
            word,
            met,
            phase_started_at: _,
            iteration: _,
            max_iterations: _,
            max_iterations_then: _,
        } = self;
        weight(lifecycle.as_ref(), [phase, ended_in, word], met)
    }
}

impl PositionChange {
    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { lifecycle, phase, ended_in, word, met, iteration: _, max_iterations: _, max_iterations_then: _ } =
            self;
        weight(lifecycle.as_ref(), [phase, ended_in, word], met)
    }
}

/// Each of a few requirements lies in a node of a tree of its own, about.
fn weight(pin: Option<&LifecyclePin>, texts: [&Option<String>; 3], met: &BTreeSet<Requirement>) -> usize {
    pin.map_or(0, |pin| pin.id.name.len()) + texts::weight(texts) + met.len() * 128
}
