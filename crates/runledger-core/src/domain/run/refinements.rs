//! The refinements of a run: the parts that most runs have nothing of. A run without any has none of their fields, and pays
//! a pointer for them.

use crate::domain::form::object;
use crate::domain::happened::Happened;
use crate::domain::parts::attachments::{Attachments, AttachmentsChange};
use crate::domain::parts::attempts::{Attempts, AttemptsChange};
use crate::domain::parts::origin::Origin;
use crate::domain::parts::position::{PositionChange, RunPosition};
use crate::domain::parts::rest::{Suspensions, SuspensionsChange};
use crate::domain::{EventType, Priority, Redaction};

/// The refinements of a run, at most 8 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refinements {
    /// What belongs to it and stands beside it.
    pub attachments: Attachments,
    /// The priority among the runs that wait for a claim.
    pub priority: Priority,
    /// The runs that it comes from.
    pub origin: Origin,
    /// Where it stands within its status.
    pub position: RunPosition,
    /// What it waits for, or last waited for.
    pub rest: Suspensions,
    /// The attempts at it; none: it is attempted once.
    pub attempts: Option<Box<Attempts>>,
}

object!(Refinements { attachments, priority: "priority", origin, position, rest, attempts: "attempts" });

/// The changes of refinements by an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefinementsChange {
    /// See [`Refinements::attachments`].
    pub attachments: AttachmentsChange,
    /// Set at creation.
    pub origin: Origin,
    /// See [`Refinements::position`].
    pub position: PositionChange,
    /// See [`Refinements::rest`].
    pub rest: SuspensionsChange,
    /// The new priority.
    pub priority: Option<Priority>,
    /// See [`Refinements::attempts`].
    pub attempts: Option<Box<AttemptsChange>>,
}

object!(RefinementsChange { attachments, origin, position, rest, priority: "priority", attempts: "attempts" });

impl Refinements {
    /// Folds a change. What a late report brings is shown beside it: see [`LateReport`](crate::domain::LateReport).
    pub(in crate::domain) fn fold(
        refinements: &mut Option<Box<Self>>,
        change: Option<&RefinementsChange>,
        happened: Happened<'_>,
    ) {
        let Happened { event_type, to, .. } = happened;
        let is_over = to.is_terminal();
        let ends = is_over || matches!(event_type, EventType::Resumed | EventType::Claimed);
        if ends && let Some(mut all) = refinements.take() {
            let said = change.and_then(|change| change.rest.resumption.as_deref());
            if all.rest.end(said, is_over) {
                all.position.goes_on();
            }
            Self::keep(refinements, all);
        }
        let Some(change) = change.filter(|_| event_type != EventType::LateReported) else { return };
        let mut all = refinements.take().unwrap_or_default();
        let RefinementsChange { attachments, origin, position, rest, priority, attempts } = change;
        all.attachments.fold(attachments, happened);
        all.origin.fold(origin);
        all.position.fold(position, happened);
        all.priority = priority.unwrap_or(all.priority);
        all.rest.fold(rest, event_type);
        if let Some(attempts) = attempts {
            Attempts::fold(&mut all.attempts, attempts);
        }
        Self::keep(refinements, all);
    }

    /// No refinements are none.
    fn keep(refinements: &mut Option<Box<Self>>, all: Box<Self>) {
        *refinements = Some(all).filter(|all| **all != Self::default());
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { attachments: _, priority: _, origin, position, rest, attempts } = self;
        let attempts = attempts.as_ref().map_or(0, |attempts| attempts.weight());
        size_of::<Self>() + origin.weight() + position.weight() + rest.weight() + attempts
    }

    pub(in crate::domain) fn take_out(refinements: &mut Option<Box<Self>>, redaction: &Redaction) {
        let Some(mut all) = refinements.take() else { return };
        let Self { attachments, rest, attempts, priority: _, origin: _, position: _ } = &mut *all;
        attachments.take_out(redaction);
        rest.take_out(redaction);
        if let Some(attempts) = attempts {
            attempts.take_out(redaction);
        }
        Self::keep(refinements, all);
    }
}

impl RefinementsChange {
    /// Whether it says that something stands beside the run, or which runs the run comes from: these have tables and
    /// columns of their own.
    pub(in crate::domain) fn has_rows(&self) -> bool {
        !self.attachments.is_empty() || !self.origin.is_empty()
    }

    /// The change in a box; none where it changes nothing.
    pub(in crate::domain) fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { attachments, origin, position, rest, attempts, priority: _ } = self;
        let attempts = attempts.as_ref().map_or(0, |attempts| attempts.weight());
        size_of::<Self>() + attachments.weight() + origin.weight() + position.weight() + rest.weight() + attempts
    }

    pub(in crate::domain) fn take_out(change: &mut Option<Box<Self>>, redaction: &Redaction) -> u64 {
        let Some(mut all) = change.take() else { return 0 };
        let Self { attachments, rest, attempts, origin: _, position: _, priority: _ } = &mut *all;
        attachments.take_out(redaction);
        let values = rest.take_out(redaction) + attempts.as_mut().map_or(0, |attempts| attempts.take_out(redaction));
        *change = Some(all).filter(|all| **all != Self::default());
        values
    }
}
