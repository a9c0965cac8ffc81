//! Where a run stands within its status: its phase, its iteration, its word; and what its lifecycle says of its end.

use std::collections::BTreeSet;

use super::suspension::{self, leaves, starts_in};
use crate::domain::decision::Context;
use crate::domain::lifecycle::{LifecycleName, LimitThen, Requirement};
use crate::domain::sides::lifecycles;
use crate::domain::{
    Ask, Brought, Changes, Command, Declared, Event, EventType, LifecycleFound, Refinements, RefinementsChange,
    Refusal, Run, RunKey, Start, Status, Violation,
};

/// The `reason_code` of a run that was aborted because it would have begun one iteration too many.
pub(in crate::domain) const ITERATION_LIMIT: &str = "ITERATION_LIMIT";

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
        LifecycleFound::Missing if command.ask.facts().needs_lifecycle || command.ask.brought().phase.is_some() => {
            Err(not_found(run, command))
        }
        LifecycleFound::NotAsked | LifecycleFound::There(_) | LifecycleFound::Missing => Ok(()),
    }
}

/// The step of a run from one phase and iteration to another.
#[derive(Default)]
pub(super) struct Step<'a> {
    /// The phase that the command names, where the run is not in it.
    to: Option<&'a str>,
    /// The iteration after it, where it is another.
    iteration: Option<u32>,
    /// The limit of iterations, where the command raises it.
    raised: Option<u32>,
}

impl<'a> Step<'a> {
    pub(super) fn of(run: Option<&Run>, command: &'a Command, context: &Context<'a>) -> Result<Self, Refusal> {
        let declared = context.sides.lifecycle.declared();
        let stands = run.and_then(|run| run.refinements.as_deref());
        let from = stands.and_then(|stands| stands.phase.as_deref());
        let brought = command.ask.brought();
        let to = brought.phase.filter(|to| Some(*to) != from);
        if let (Some(declared), Some(to)) = (declared, to)
            && !declared.lifecycle.allowed(from).any(|allowed| allowed == to)
        {
            return Err(invalid_phase(declared, &command.key, run, to, false));
        }
        let iteration = stands.map_or(0, |stands| stands.iteration);
        let iterates = declared.is_some_and(|declared| declared.lifecycle.iterates.is_some());
        let refused = |description: String| Refusal::InvalidFields(vec![Violation::new("iteration", description)]);
        let next = match brought.iteration {
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
        let raised = if let Ask::Resume(resume) = &command.ask { resume.max_iterations } else { None };
        Ok(Self { to, iteration: Some(next).filter(|next| *next != iteration), raised })
    }

    /// The kind of suspension that the step's phase is.
    pub(super) fn suspends(&self, context: &Context<'a>) -> Option<&'a str> {
        let declared = context.sides.lifecycle.declared()?;
        declared.lifecycle.phase(self.to?)?.suspends.as_deref()
    }

    /// The limit that the step is above, and what that leads to.
    pub(super) fn above(&self, run: Option<&Run>) -> Option<(u32, LimitThen)> {
        let stands = run?.refinements.as_deref()?;
        let max = self.raised.or(stands.max_iterations).filter(|max| self.iteration.is_some_and(|next| next > *max))?;
        Some((max, stands.max_iterations_then.unwrap_or_default()))
    }
}

/// Whether a command says something of phases and iterations: most do not.
fn says_where_its_run_stands(ask: &Ask) -> bool {
    let Brought { phase, iteration, max_iterations, max_iterations_then, .. } = ask.brought();
    phase.is_some() || iteration.is_some() || max_iterations.is_some() || max_iterations_then.is_some()
}

/// Adds to an event's changes where the run stands after it.
pub(super) fn add(
    run: Option<&Run>,
    command: &Command,
    context: &Context<'_>,
    event_type: EventType,
    changes: &mut Changes,
) -> Result<(), Refusal> {
    if event_type == EventType::LateReported {
        reported_late(run, command, context, changes);
    }
    let facts = event_type.facts();
    if !facts.moves {
        return Ok(());
    }
    let ends = facts.leads_to.is_some_and(Status::is_terminal);
    if let (EventType::Resumed, Ask::Claim(_), Some(run)) = (event_type, &command.ask, run) {
        given(run, context, changes);
        return Ok(());
    }
    has_lifecycle(run, command, context)?;
    let declared = context.sides.lifecycle.declared();
    if declared.is_none() && !says_where_its_run_stands(&command.ask) {
        return Ok(());
    }
    let mut change = changes.refinements.take().map(|change| *change).unwrap_or_default();
    if let (None, Ask::Start(start)) = (run, &command.ask) {
        created(start, declared, &mut change)?;
    }
    // Where the lifecycle says which phase such a suspension leads to, what the call says of one is dropped.
    let is_moved = matches!(&command.ask, Ask::Suspend(suspend)
        if declared.is_some_and(|declared| declared.lifecycle.on_suspend.contains_key(&suspend.kind)));
    let mut step = if is_moved { Step::default() } else { Step::of(run, command, context)? };
    let mut is_named = !is_moved && command.ask.brought().phase.is_some();
    let suspends = event_type == EventType::Suspended;
    let to = if suspends { moved(run, command, context, &step) } else { None };
    if let (Some((max_iterations, then)), Some(run)) = (step.above(run), run) {
        // Where that aborts or suspends the run, it ends in any case: by the caller's word, which comes first, or by
        // this. It stays where it stands.
        if !(ends || suspends) || then == LimitThen::Refuse {
            let iteration = step.iteration.unwrap_or(max_iterations);
            return Err(Refusal::IterationLimit { iteration, max_iterations, run: run.summary() });
        }
        (step, is_named) = (Step::default(), false);
    }
    if let Some(to) = to {
        let stands = run.and_then(|run| run.refinements.as_ref()?.phase.as_deref());
        step = Step { to: Some(to).filter(|to| Some(*to) != stands), ..Step::default() };
    }
    match (&command.ask, run) {
        (Ask::Start(_), _) => starts_in(&step, context)?,
        (Ask::Resume(resume), Some(run)) => {
            leaves(run, resume, command, context)?;
            change.max_iterations = resume.max_iterations;
        }
        _ => {}
    }
    if let (Some(declared), Some(run)) = (declared, run)
        && event_type != EventType::Resumed
    {
        change.met = met(declared, run, &command.ask);
        if event_type == EventType::Completed {
            may_complete(declared, run, step.to)?;
            is_complete(declared, run, &change.met)?;
        }
    }
    change.iteration = step.iteration;
    change.phase = step.to.map(str::to_owned).or(change.phase);
    if let (true, false, Some(declared)) = (ends, is_named, declared) {
        let stands = run.and_then(|run| run.refinements.as_ref()?.phase.as_ref());
        let at_end = declared.lifecycle.at_end.as_ref();
        change.phase = at_end.cloned().filter(|at_end| Some(at_end) != stands);
        // Only what the authority concluded is reported late.
        change.ended_in = stands.cloned().filter(|_| at_end.is_some() && changes.supervision.presumed);
    }
    changes.refinements = change.boxed();
    Ok(())
}

/// The phase that a suspension moves its run to, from every phase; none: it leaves the run where it is.
fn moved<'a>(run: Option<&Run>, command: &'a Command, context: &Context<'a>, step: &Step<'a>) -> Option<&'a str> {
    let declared = context.sides.lifecycle.declared()?;
    let kind = suspension::kind(run?, command, context, step)?;
    declared.lifecycle.on_suspend.get(kind).map(String::as_str)
}

/// A claim of a ready run applies what was said when it was made ready, and checked then.
fn given(run: &Run, context: &Context<'_>, changes: &mut Changes) {
    let Some(resumption) = suspension::given(run) else { return };
    let stands = run.refinements.as_deref();
    let from = stands.and_then(|stands| stands.phase.as_deref());
    let mut change = changes.refinements.take().map(|change| *change).unwrap_or_default();
    change.max_iterations = resumption.max_iterations;
    if let Some(to) = resumption.phase.clone().filter(|to| Some(to.as_str()) != from) {
        let declared = context.sides.lifecycle.declared();
        if declared.is_some_and(|declared| declared.lifecycle.iterates(from, &to)) {
            change.iteration = stands.map(|stands| stands.iteration.saturating_add(1));
        }
        change.phase = Some(to);
    }
    changes.refinements = change.boxed();
}

/// A run begins in the initial phase, or where there is no lifecycle in the one that is named.
/// A start may set limits where its lifecycle sets none, and may set lower ones.
fn created(start: &Start, declared: Option<&Declared>, change: &mut RefinementsChange) -> Result<(), Refusal> {
    change.max_iterations = start.max_iterations;
    change.max_iterations_then = start.max_iterations_then;
    if let Some(Declared { pin, lifecycle, .. }) = declared {
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
        if !violations.is_empty() {
            return Err(Refusal::InvalidFields(violations));
        }
    }
    Ok(())
}

/// What the links of an ask bring of that which the completion requires, and the run does not have. A link that the run
/// has is brought anew by whoever names it: it may have as many as it can.
fn met(declared: &Declared, run: &Run, ask: &Ask) -> BTreeSet<Requirement> {
    let has = |wanted: &Requirement| run.refinements.as_ref().is_some_and(|stands| stands.met.contains(wanted));
    let brings = |wanted: &Requirement| match wanted {
        Requirement::Report => false,
        Requirement::Link(rel) => ask.brought().added.iter().any(|link| link.rel == *rel),
    };
    let requires = declared.lifecycle.completion_requires.iter();
    requires.filter(|wanted| !has(wanted) && brings(wanted)).cloned().collect()
}

fn may_complete(declared: &Declared, run: &Run, to: Option<&str>) -> Result<(), Refusal> {
    let phase = to.or_else(|| run.refinements.as_ref()?.phase.as_deref()).unwrap_or_default();
    match declared.lifecycle.completes_in() {
        Some(phases) if !phases.contains(&phase) => Err(invalid_phase(declared, &run.key(), Some(run), phase, true)),
        Some(_) | None => Ok(()),
    }
}

fn is_complete(declared: &Declared, run: &Run, brought: &BTreeSet<Requirement>) -> Result<(), Refusal> {
    let missing: Vec<_> = lacking(declared, run, brought).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let went_on = run.refinements.as_ref().is_some_and(|stands| stands.resumed_from.is_some());
    Err(Refusal::CompletionIncomplete { lifecycle: declared.pin.id.clone(), missing, went_on, run: run.summary() })
}

/// Notes what a late completion lacks, which is taken all the same: what is true is kept, and is no outcome.
fn reported_late(run: Option<&Run>, command: &Command, context: &Context<'_>, changes: &mut Changes) {
    let (Some(run), Some(declared), Ask::Complete(_)) = (run, context.sides.lifecycle.declared(), &command.ask) else {
        return;
    };
    let Some(report) = &mut changes.supervision.late_report else { return };
    let mut missing = Vec::new();
    if !was_to_complete(declared, run, command, context) {
        missing.push(PHASE.to_owned());
    }
    let brought = met(declared, run, &command.ask);
    missing.extend(lacking(declared, run, &brought).map(|wanted| String::from(wanted.clone())));
    report.lacks(&missing);
}

/// Whether a run that is reported as completed could have been, by the phase in which it ended. Where the end moved it and
/// an earlier release did not note from which phase, nobody knows it: then no phase is taken for one that may complete.
fn was_to_complete(declared: &Declared, run: &Run, command: &Command, context: &Context<'_>) -> bool {
    let stands = run.refinements.as_deref();
    let phase = stands.and_then(|stands| stands.phase.as_ref());
    let ended_in = stands.and_then(|stands| stands.ended_in.clone());
    let is_moved = phase.is_some() && phase == declared.lifecycle.at_end.as_ref();
    if is_moved && ended_in.is_none() {
        return declared.lifecycle.completes_in().is_none() && command.ask.brought().phase.is_none();
    }
    let mut before = run.clone();
    if let Some(stands) = before.refinements.as_mut().filter(|_| ended_in.is_some()) {
        stands.phase = ended_in;
    }
    Step::of(Some(&before), command, context).is_ok_and(|step| may_complete(declared, &before, step.to).is_ok())
}

/// What the completion requires, and the run does not have, nor the call brings.
fn lacking<'a>(
    declared: &'a Declared,
    run: &'a Run,
    brought: &'a BTreeSet<Requirement>,
) -> impl Iterator<Item = &'a Requirement> {
    let has = |wanted: &Requirement| {
        brought.contains(wanted) || run.refinements.as_ref().is_some_and(|stands| stands.met.contains(wanted))
    };
    declared.lifecycle.completion_requires.iter().filter(move |wanted| !has(wanted))
}

/// The refusal of a resumption that does not leave the phase which suspends its run.
pub(super) fn invalid_resumption(declared: &Declared, key: &RunKey, run: &Run, to: Option<&str>) -> Refusal {
    let from = run.refinements.as_ref().and_then(|stands| stands.phase.clone());
    let suspends = |phase: &str| declared.lifecycle.phase(phase).is_some_and(|phase| phase.suspends.is_some());
    let allowed = declared.lifecycle.allowed(from.as_deref()).filter(|phase| !suspends(phase)).map(str::to_owned);
    Refusal::InvalidPhase {
        key: key.clone(),
        lifecycle: declared.pin.id.clone(),
        from: from.clone(),
        to: to.unwrap_or_default().to_owned(),
        completes: false,
        resumes: true,
        allowed: allowed.collect(),
        run: Some(run.summary()),
    }
}

fn invalid_phase(declared: &Declared, key: &RunKey, run: Option<&Run>, to: &str, completes: bool) -> Refusal {
    let from = run.and_then(|run| run.refinements.as_ref()?.phase.clone());
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
    let stands: &mut Refinements = run.refinements.get_or_insert_default();
    if stands.word == word {
        return;
    }
    event.changes.refinements.get_or_insert_default().word = Some(word.clone().unwrap_or_default());
    stands.word = word;
}
