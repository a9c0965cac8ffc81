//! Where a run stands within its status: its phase, its iteration, its word; and what its lifecycle says of its end.

use std::collections::BTreeSet;

use super::effect::Cx;
use crate::domain::context::Context;
use crate::domain::lifecycle::{LifecycleName, LimitThen, Requirement};
use crate::domain::sides::lifecycles;
use crate::domain::{
    Command, Declared, Event, EventType, LifecycleFound, Link, PositionAsk, PositionChange, Refusal, Resumption, Run,
    RunKey, Violation,
};

/// What a late completion lacks that comes in a phase where its run may not complete, as the report says it.
const PHASE: &str = "PHASE";

/// The refusal of a command that cannot be decided without a lifecycle which is not there.
fn not_found(run: Option<&Run>, command: &Command) -> Refusal {
    let key = lifecycles::of(command, run).map(|key| key.name());
    let lifecycle = key.unwrap_or_else(|| LifecycleName { name: String::new(), version: None });
    Refusal::LifecycleNotFound { key: command.key.clone(), lifecycle, is_pinned: run.is_some() }
}

/// Refuses a start with a lifecycle that is not there, or that this release cannot enforce wholly; and what cannot be
/// decided without the lifecycle of its run where somebody deleted that by hand. A run can be ended without it.
pub(super) fn has_lifecycle(run: Option<&Run>, command: &Command, context: &Context<'_>) -> Result<(), Refusal> {
    match context.sides.lifecycle {
        LifecycleFound::There(declared) if run.is_none() => {
            let fields = declared.lifecycle.not_enforced();
            if fields.is_empty() {
                return Ok(());
            }
            Err(Refusal::LifecycleUnsupported { lifecycle: declared.pin.id.clone(), fields })
        }
        LifecycleFound::Missing if command.ask.facts().needs_lifecycle || command.ask.brought().phase().is_some() => {
            Err(not_found(run, command))
        }
        LifecycleFound::NotAsked | LifecycleFound::There(_) | LifecycleFound::Missing => Ok(()),
    }
}

/// What a command says of where its run is to stand.
#[derive(Clone, Copy, Default)]
pub(super) struct Said<'a> {
    pub(super) phase: Option<&'a str>,
    pub(super) iteration: Option<u32>,
    /// The limit of iterations, where the command raises it.
    pub(super) max_iterations: Option<u32>,
}

impl<'a> Said<'a> {
    pub(super) fn of(position: &'a PositionAsk) -> Self {
        let PositionAsk { lifecycle: _, phase, iteration, max_iterations, max_iterations_then: _ } = position;
        Self { phase: phase.as_deref(), iteration: *iteration, max_iterations: *max_iterations }
    }
}

/// The step of a run from one phase and iteration to another.
#[derive(Clone, Copy, Default)]
pub(super) struct PhaseStep<'a> {
    /// The phase that the run comes to, where it is not in it.
    pub(super) to: Option<&'a str>,
    /// The iteration after it, where it is another.
    pub(super) iteration: Option<u32>,
    /// Whether the command names a phase, be it the one that the run is in.
    pub(super) is_named: bool,
    /// The limit that the step is above, and what that leads to.
    pub(super) above: Option<(u32, LimitThen)>,
}

impl<'a> Cx<'a> {
    /// The step that a command makes by what it says, where the lifecycle that it needs is there.
    pub(super) fn step(self, said: Said<'a>) -> Result<PhaseStep<'a>, Refusal> {
        has_lifecycle(Some(self.run), self.command, self.context)?;
        PhaseStep::new(Some(self.run), said, self.declared(), &self.command.key)
    }
}

impl<'a> PhaseStep<'a> {
    pub(super) fn new(
        run: Option<&Run>,
        said: Said<'a>,
        declared: Option<&Declared>,
        key: &RunKey,
    ) -> Result<Self, Refusal> {
        let stands = run.and_then(Run::position);
        let from = stands.and_then(|stands| stands.phase.as_deref());
        let to = said.phase.filter(|to| Some(*to) != from);
        if let (Some(declared), Some(to)) = (declared, to)
            && !declared.lifecycle.allowed(from).any(|allowed| allowed == to)
        {
            return Err(invalid_phase(declared, key, run, to, false));
        }
        let iteration = stands.map_or(0, |stands| stands.iteration);
        let iterates = declared.is_some_and(|declared| declared.lifecycle.iterates.is_some());
        let refused = |description: String| Refusal::InvalidFields(vec![Violation::new("iteration", description)]);
        let next = match said.iteration {
            Some(_) if iterates => {
                return Err(refused("must be absent: the run's lifecycle counts its iterations".to_owned()));
            }
            Some(named) if named < iteration => {
                return Err(refused(format!("is {named}, and the run has come to {iteration}: it only grows")));
            }
            Some(named) => named,
            None => {
                let again = declared.zip(to).is_some_and(|(declared, to)| declared.lifecycle.iterates(from, to));
                iteration.saturating_add(u32::from(again))
            }
        };
        let above = stands.and_then(|stands| {
            let max = said.max_iterations.or(stands.max_iterations).filter(|max| next > *max && next != iteration)?;
            Some((max, stands.max_iterations_then.unwrap_or_default()))
        });
        Ok(Self { to, iteration: Some(next).filter(|next| *next != iteration), is_named: said.phase.is_some(), above })
    }

    /// The step to a phase, without another iteration.
    pub(super) fn to(phase: &'a str, cx: Cx<'_>) -> Self {
        Self { to: Some(phase).filter(|to| cx.phase() != Some(*to)), ..Self::default() }
    }

    /// The kind of suspension that the step's phase is.
    pub(super) fn suspends(&self, declared: Option<&'a Declared>) -> Option<&'a str> {
        declared?.lifecycle.suspends(self.to?)
    }

    /// The step of a run that goes on: above its limit it makes none.
    pub(super) fn goes_on(self, run: &Run) -> Result<Self, Refusal> {
        let Some((max_iterations, _)) = self.above else { return Ok(self) };
        let iteration = self.iteration.unwrap_or(max_iterations);
        Err(Refusal::IterationLimit { iteration, max_iterations, run: run.summary() })
    }

    /// The step of a run that ends with it, or is suspended. Where a limit aborts or suspends the run, that happens in any
    /// case: by the caller's word, which comes first, or by the limit. The run stays where it stands.
    pub(super) fn stays(self, run: &Run) -> Result<Self, Refusal> {
        match self.above {
            None => Ok(self),
            Some((_, LimitThen::Refuse)) => self.goes_on(run),
            Some((_, LimitThen::Abort | LimitThen::Suspend)) => Ok(Self::default()),
        }
    }

    /// Adds the step to an event's changes.
    pub(super) fn put(&self, change: &mut PositionChange) {
        change.iteration = self.iteration;
        if let Some(to) = self.to {
            change.phase = Some(to.to_owned());
        }
    }

    /// Adds the step of a run that ends: to the phase that was named, or to the one that its lifecycle has at the end.
    /// `presumed`: only what the authority concluded is reported late, and judged by the phase before.
    pub(super) fn ends(&self, cx: Cx<'_>, presumed: bool, change: &mut PositionChange) {
        self.put(change);
        let Some(declared) = cx.declared().filter(|_| !self.is_named) else { return };
        let at_end = declared.lifecycle.at_end.as_deref();
        change.phase = at_end.filter(|at_end| Some(*at_end) != cx.phase()).map(str::to_owned);
        change.ended_in = cx.phase().filter(|_| at_end.is_some() && presumed).map(str::to_owned);
    }
}

/// A claim of a ready run applies what was said when it was made ready, and checked then.
pub(super) fn given(resumption: &Resumption, cx: Cx<'_>) -> PositionChange {
    let mut change = PositionChange { max_iterations: resumption.max_iterations, ..PositionChange::default() };
    if let Some(to) = resumption.phase.clone().filter(|to| Some(to.as_str()) != cx.phase()) {
        if cx.declared().is_some_and(|declared| declared.lifecycle.iterates(cx.phase(), &to)) {
            change.iteration = cx.run.position().map(|stands| stands.iteration.saturating_add(1));
        }
        change.phase = Some(to);
    }
    change
}

/// Where a new run stands. One with a lifecycle begins in its initial phase, unless the start names one. A start may set
/// limits where its lifecycle sets none, and may set lower ones.
pub(super) fn created(start: &PositionAsk, declared: Option<&Declared>) -> Result<PositionChange, Refusal> {
    let mut change = PositionChange {
        max_iterations: start.max_iterations,
        max_iterations_then: start.max_iterations_then,
        ..PositionChange::default()
    };
    let Some(Declared { pin, lifecycle, .. }) = declared else { return Ok(change) };
    change.lifecycle = Some(pin.clone());
    change.phase = lifecycle.initial().map(str::to_owned);
    change.max_iterations = start.max_iterations.or(lifecycle.max_iterations);
    change.max_iterations_then = start.max_iterations_then.or(lifecycle.max_iterations_then);
    let mut violations = Vec::new();
    if let (Some(asked), Some(max)) = (start.max_iterations, lifecycle.max_iterations)
        && asked > max
    {
        violations.push(Violation::new("max_iterations", format!("is {asked}; {} allows {max}", pin.id)));
    }
    if let (Some(asked), Some(then)) = (start.max_iterations_then, lifecycle.max_iterations_then)
        && asked != then
    {
        let (asked, then) = (asked.name(), then.name());
        violations.push(Violation::new("max_iterations_then", format!("is {asked}; {} says {then}", pin.id)));
    }
    if violations.is_empty() { Ok(change) } else { Err(Refusal::InvalidFields(violations)) }
}

/// What the links of an ask bring of that which the completion requires, and the run does not have. A link that the run
/// has is brought anew by whoever names it: it may have as many as it can.
pub(super) fn met(cx: Cx<'_>, added: &[Link]) -> BTreeSet<Requirement> {
    let Some(declared) = cx.declared() else { return BTreeSet::new() };
    let brings = |wanted: &Requirement| match wanted {
        Requirement::Report => false,
        Requirement::Link(rel) => added.iter().any(|link| link.rel == *rel),
    };
    lacking(declared, cx.run, &BTreeSet::new()).filter(|wanted| brings(wanted)).cloned().collect()
}

/// Refuses a completion in a phase where the run may not complete, or without what its lifecycle requires.
pub(super) fn is_complete(step: &PhaseStep<'_>, cx: Cx<'_>, brought: &BTreeSet<Requirement>) -> Result<(), Refusal> {
    let (Some(declared), run) = (cx.declared(), cx.run) else { return Ok(()) };
    may_complete(declared, run, step.to)?;
    let missing: Vec<_> = lacking(declared, run, brought).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let went_on = run.refinements.as_ref().is_some_and(|all| all.rest.resumed_from.is_some());
    Err(Refusal::CompletionIncomplete { lifecycle: declared.pin.id.clone(), missing, went_on, run: run.summary() })
}

fn may_complete(declared: &Declared, run: &Run, to: Option<&str>) -> Result<(), Refusal> {
    let phase = to.or_else(|| run.position()?.phase.as_deref()).unwrap_or_default();
    match declared.lifecycle.completes_in() {
        Some(phases) if !phases.contains(&phase) => Err(invalid_phase(declared, &run.key(), Some(run), phase, true)),
        Some(_) | None => Ok(()),
    }
}

/// What a late completion lacks, which is taken all the same: what is true is kept, and is no outcome.
pub(super) fn lacks(named: Option<&str>, added: &[Link], cx: Cx<'_>) -> Vec<String> {
    let Some(declared) = cx.declared() else { return Vec::new() };
    let phase = Some(PHASE.to_owned()).filter(|_| !was_to_complete(declared, named, cx));
    let brought = met(cx, added);
    let missing = lacking(declared, cx.run, &brought).map(|wanted| String::from(wanted.clone()));
    phase.into_iter().chain(missing).collect()
}

/// Whether a run that is reported as completed could have been, by the phase in which it ended. Where the end moved it and
/// an earlier release did not note from which phase, nobody knows it: then no phase is taken for one that may complete.
fn was_to_complete(declared: &Declared, named: Option<&str>, cx: Cx<'_>) -> bool {
    let ended_in = cx.run.position().and_then(|stands| stands.ended_in.clone());
    let is_moved = cx.phase().is_some() && cx.phase() == declared.lifecycle.at_end.as_deref();
    if is_moved && ended_in.is_none() {
        return declared.lifecycle.completes_in().is_none() && named.is_none();
    }
    let mut before = cx.run.clone();
    if let Some(all) = before.refinements.as_mut().filter(|_| ended_in.is_some()) {
        all.position.phase = ended_in;
    }
    let step = PhaseStep::new(Some(&before), Said { phase: named, ..Said::default() }, Some(declared), &cx.command.key);
    step.is_ok_and(|step| may_complete(declared, &before, step.to).is_ok())
}

/// What the completion requires, and the run does not have, nor the call brings.
fn lacking<'a>(
    declared: &'a Declared,
    run: &'a Run,
    brought: &'a BTreeSet<Requirement>,
) -> impl Iterator<Item = &'a Requirement> {
    let has = |wanted: &Requirement| {
        brought.contains(wanted) || run.position().is_some_and(|stands| stands.met.contains(wanted))
    };
    declared.lifecycle.completion_requires.iter().filter(move |wanted| !has(wanted))
}

/// The refusal of a resumption that does not leave the phase which suspends its run.
pub(super) fn invalid_resumption(declared: &Declared, to: Option<&str>, cx: Cx<'_>) -> Refusal {
    let Declared { pin, lifecycle, .. } = declared;
    let allowed = lifecycle.allowed(cx.phase()).filter(|phase| lifecycle.suspends(phase).is_none());
    Refusal::InvalidPhase {
        key: cx.command.key.clone(),
        lifecycle: pin.id.clone(),
        from: cx.phase().map(str::to_owned),
        to: to.unwrap_or_default().to_owned(),
        completes: false,
        resumes: true,
        allowed: allowed.map(str::to_owned).collect(),
        run: Some(cx.run.summary()),
    }
}

fn invalid_phase(declared: &Declared, key: &RunKey, run: Option<&Run>, to: &str, completes: bool) -> Refusal {
    let from = run.and_then(|run| run.position()?.phase.clone());
    let allowed: Vec<String> = if completes {
        declared.lifecycle.completes_in().unwrap_or_default().into_iter().map(str::to_owned).collect()
    } else {
        declared.lifecycle.allowed(from.as_deref()).map(str::to_owned).collect()
    };
    let (lifecycle, run) = (declared.pin.id.clone(), run.map(Run::summary));
    let (key, to) = (key.clone(), to.to_owned());
    Refusal::InvalidPhase { key, lifecycle, from, to, completes, resumes: false, allowed, run }
}

/// Adds to an event the word for the run right after it, where that is another one than before.
pub(super) fn name(event: &mut Event, run: &mut Run, lifecycle: LifecycleFound<'_>) {
    // A late report changes no other field of its run.
    if event.event_type == EventType::LateReported {
        return;
    }
    let word = match lifecycle {
        LifecycleFound::NotAsked => return,
        // Nobody knows its word any more: once it has another status, it is called by that.
        LifecycleFound::Missing if event.from == Some(event.to) => return,
        LifecycleFound::Missing => None,
        LifecycleFound::There(declared) => declared.lifecycle.word(run),
    };
    let stands = &mut run.refinements.get_or_insert_default().position;
    if stands.word == word {
        return;
    }
    event.changes.refinements.get_or_insert_default().position.word = Some(word.clone().unwrap_or_default());
    stands.word = word;
}
