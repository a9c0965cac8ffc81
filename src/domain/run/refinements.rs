//! The refinements of a run: what it was given, what it left, and the runs that it comes from. A run without any has none
//! of these fields, and pays a pointer for them.

use serde::{Deserialize, Serialize};

use crate::domain::{ContentDigest, Event, EventType, Link, Revision, RunId};

/// The refinements of a run, at most 8 KiB. The things themselves stand in tables of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Refinements {
    /// What the run was given; never changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<ContentDigest>,
    /// What came of the run, so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultDigest>,
    /// The number of links.
    #[serde(skip_serializing_if = "is_zero")]
    pub links: u32,
    /// The run that started this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// The run that this one goes on with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues_run_id: Option<RunId>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RefinementsChange {
    /// Set at creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<ContentDigest>,
    /// The new result. That of a late report stands in the report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ContentDigest>,
    /// The links that were added; of a late report, its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Set at creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// Set at creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues_run_id: Option<RunId>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Refinements {
    /// Folds an event. What a late report brings is shown beside it: see [`LateReport`](super::LateReport).
    pub(in crate::domain) fn fold(refinements: &mut Option<Box<Self>>, event: &Event) {
        let Some(change) = &event.changes.refinements else { return };
        if event.event_type == EventType::LateReported {
            return;
        }
        let RefinementsChange { input, result, links, parent_run_id, continues_run_id } = &**change;
        let mut all = refinements.take().unwrap_or_default();
        all.input = input.or(all.input);
        let revision = event.revision;
        all.result = result.map(|content| ResultDigest { content, revision }).or(all.result);
        all.links += u32::try_from(links.len()).unwrap_or(u32::MAX);
        all.parent_run_id = parent_run_id.clone().or(all.parent_run_id);
        all.continues_run_id = continues_run_id.clone().or(all.continues_run_id);
        Self::keep(refinements, all);
    }

    /// No refinements are none.
    pub(in crate::domain) fn keep(refinements: &mut Option<Box<Self>>, all: Box<Self>) {
        *refinements = Some(all).filter(|all| **all != Self::default());
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        size_of::<Self>() + ids([&self.parent_run_id, &self.continues_run_id])
    }
}

impl RefinementsChange {
    /// The change in a box; none where it changes nothing.
    pub(in crate::domain) fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let links: usize = self.links.iter().map(Link::weight).sum();
        size_of::<Self>() + links + ids([&self.parent_run_id, &self.continues_run_id])
    }
}

fn ids(ids: [&Option<RunId>; 2]) -> usize {
    ids.into_iter().flatten().map(|id| id.len()).sum()
}
