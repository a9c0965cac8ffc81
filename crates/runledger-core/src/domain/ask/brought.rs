//! What an ask brings, whichever it is: whoever reads one thing of all asks names no ask.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{
    Ask, Claim, Complete, End, GiveBack, Release, RequestAbort, Resume, Start, Suspend, SuspensionTerms, Update,
};
use crate::domain::parts::labels;
use crate::domain::{
    BindingsChange, Content, Ending, Labels, LeaseEpoch, Link, MaxRunning, Metadata, Origin, PositionAsk, Priority,
    Redaction, Request,
};

/// What an ask brings: a thing that several bring stands at one place. What it does not bring is none, or empty.
///
/// What is serialized is in each request's [digest](crate::domain::Command::digest): names and order never change, and a
/// field that comes later is left out where it is none.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Brought<'a> {
    /// What it says of leases and time.
    #[serde(skip)]
    pub terms: Terms<'a>,
    /// The orchestration task that the run belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_thread_id: Option<&'a str>,
    /// The agent that is to own the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<&'a str>,
    /// What the run is bound to outside the ledger.
    #[serde(flatten)]
    pub bindings: Option<&'a BindingsChange>,
    /// The reason for which the run is to end.
    #[serde(flatten)]
    pub why: Option<&'a Ending>,
    /// The reason of what does not end the run.
    #[serde(rename = "failureReason", skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// Labels to set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<&'a Labels>,
    /// Keys of labels to drop.
    #[serde(rename = "removeLabels", skip_serializing_if = "Option::is_none")]
    pub labels_dropped: Option<&'a BTreeSet<String>>,
    /// The merge patch on the metadata, unless it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<&'a Metadata>,
    /// What is to be taken out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redaction: Option<&'a Redaction>,
    /// What the run is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<&'a Content>,
    /// What came of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<&'a Content>,
    /// Links to be added.
    #[serde(rename = "addedLinks", skip_serializing_if = "<[Link]>::is_empty")]
    pub added: &'a [Link],
    /// The runs that the run comes from.
    #[serde(flatten)]
    pub origin: Option<&'a Origin>,
    /// Where the run is to stand.
    #[serde(flatten)]
    pub position: Option<&'a PositionAsk>,
    /// The run's priority among those that wait for a claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// How many attempts at the run there may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The kind of thing that the run waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'a str>,
    /// What is said of the suspension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspension: Option<&'a SuspensionTerms>,
    /// The claimer's own request, by which a claim is remembered apart from any run: a claim notes it, and a claim that
    /// is given back forgets it. It has a digest of its own.
    #[serde(skip)]
    pub claim_request: Option<&'a Request>,
    /// The lease of a claim that is given back for its claimer.
    #[serde(skip)]
    pub given_back: Option<LeaseEpoch>,
}

/// What an ask says of leases and time, which are in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Terms<'a> {
    /// The lease that the caller holds; of a claim, the one that it follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_epoch: Option<LeaseEpoch>,
    /// The duration of the lease that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ttl_ms: Option<u64>,
    /// The time that the new run may be pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout_ms: Option<u64>,
    /// The time that the run may be running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// The time that a run may go on which is to be aborted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// The limit on running runs with the run's value of a label, for the lease that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running: Option<&'a MaxRunning>,
    /// The claim was not begun.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub not_begun: bool,
    /// The time that the run may be ready after its suspension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_timeout_ms: Option<u64>,
    /// The suspended run counts towards `max_running` all the same.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_slot: bool,
    /// The time that one attempt may be running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_timeout_ms: Option<u64>,
    /// No further attempt is made.
    #[serde(rename = "final", skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
}

impl Ask {
    /// What it brings. Each field of each ask is named here, so that none is forgotten.
    #[must_use]
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "whoever reads one field of it pays for a match, and not for 400 bytes")]
    pub fn brought(&self) -> Brought<'_> {
        let nothing = Brought::default();
        match self {
            Self::Start(start) => start.brought(),
            Self::Update(update) => update.brought(),
            Self::Complete(Complete { lease_epoch, metadata, result, added, position }) => Brought {
                terms: Terms { lease_epoch: *lease_epoch, ..nothing.terms },
                metadata: patch(metadata),
                result: result.as_ref(),
                added,
                position: Some(position),
                ..nothing
            },
            Self::Abort(End { lease_epoch, why, result, position, is_final })
            | Self::Fail(End { lease_epoch, why, result, position, is_final }) => Brought {
                terms: Terms { lease_epoch: *lease_epoch, is_final: *is_final, ..nothing.terms },
                why: Some(why),
                result: result.as_ref(),
                position: Some(position),
                ..nothing
            },
            Self::Claim(Claim { expected_epoch, lease_ttl_ms, max_running, only: _, request }) => {
                let (lease_ttl_ms, max_running) = (Some(*lease_ttl_ms), max_running.as_ref());
                let terms = Terms { lease_epoch: *expected_epoch, lease_ttl_ms, max_running, ..nothing.terms };
                Brought { terms, claim_request: request.as_ref(), ..nothing }
            }
            Self::Release(Release { lease_epoch, not_begun }) => {
                let terms = Terms { lease_epoch: *lease_epoch, not_begun: *not_begun, ..nothing.terms };
                Brought { terms, ..nothing }
            }
            Self::GiveBack(GiveBack { lease_epoch, request, replays: _ }) => {
                Brought { claim_request: request.as_ref(), given_back: Some(*lease_epoch), ..nothing }
            }
            Self::RequestAbort(RequestAbort { reason, grace_ms }) => {
                let terms = Terms { grace_ms: *grace_ms, ..nothing.terms };
                Brought { terms, reason: reason.as_deref(), ..nothing }
            }
            Self::Suspend(Suspend { lease_epoch, kind, terms: suspension, ready_timeout_ms, keep_slot, position }) => {
                let (ready_timeout_ms, keep_slot) = (*ready_timeout_ms, *keep_slot);
                let terms = Terms { lease_epoch: *lease_epoch, ready_timeout_ms, keep_slot, ..nothing.terms };
                let (kind, suspension) = (Some(kind.as_str()), Some(suspension));
                Brought { terms, kind, suspension, position: Some(position), ..nothing }
            }
            Self::Resume(Resume { reason, position, lease_ttl_ms, max_running }) => {
                let (lease_ttl_ms, max_running) = (*lease_ttl_ms, max_running.as_ref());
                let terms = Terms { lease_ttl_ms, max_running, ..nothing.terms };
                Brought { terms, reason: reason.as_deref(), position: Some(position), ..nothing }
            }
            Self::Redact(redaction) => Brought { redaction: Some(redaction), ..nothing },
            Self::Sweep | Self::Archive | Self::Restore => nothing,
        }
    }

    /// Puts masked values in the place of those that the ask [brought](Self::brought).
    pub(in crate::domain) fn replace(
        &mut self,
        metadata: Option<Metadata>,
        input: Option<Content>,
        result: Option<Content>,
    ) {
        let (kept, given, came) = match self {
            Self::Start(start) => (Some(&mut start.metadata), Some(&mut start.input), None),
            Self::Update(update) => (Some(&mut update.metadata), None, Some(&mut update.result)),
            Self::Complete(complete) => (Some(&mut complete.metadata), None, Some(&mut complete.result)),
            Self::Abort(end) | Self::Fail(end) => (None, None, Some(&mut end.result)),
            Self::Claim(_)
            | Self::Suspend(_)
            | Self::Resume(_)
            | Self::Release(_)
            | Self::GiveBack(_)
            | Self::RequestAbort(_)
            | Self::Sweep
            | Self::Archive
            | Self::Restore
            | Self::Redact(_) => return,
        };
        if let Some((kept, metadata)) = kept.zip(metadata) {
            *kept = metadata;
        }
        for (place, content) in [(given, input), (came, result)] {
            if let Some((place, content)) = place.zip(content) {
                *place = Some(content);
            }
        }
    }

    /// About how many bytes it takes in memory, beside its own size.
    pub(in crate::domain) fn weight(&self) -> usize {
        let Brought {
            task_thread_id,
            agent_id,
            bindings,
            why,
            reason,
            labels,
            metadata,
            redaction,
            input,
            result,
            added,
            origin,
            position,
            kind,
            suspension,
            terms: _,
            labels_dropped: _,
            priority: _,
            max_attempts: _,
            claim_request: _,
            given_back: _,
        } = self.brought();
        [task_thread_id, agent_id, reason, kind].into_iter().flatten().map(str::len).sum::<usize>()
            + [input, result].into_iter().flatten().map(Content::weight).sum::<usize>()
            + added.iter().map(Link::weight).sum::<usize>()
            + metadata.map_or(0, Metadata::weight)
            + bindings.map_or(0, BindingsChange::weight)
            + labels.map_or(0, labels::weight)
            + why.map_or(0, Ending::weight)
            + origin.map_or(0, Origin::weight)
            + position.map_or(0, PositionAsk::weight)
            + suspension.map_or(0, SuspensionTerms::weight)
            + redaction.map_or(0, Redaction::weight)
    }
}

impl<'a> Brought<'a> {
    /// The phase that the run is to be in.
    #[must_use]
    pub fn phase(&self) -> Option<&'a str> {
        self.position?.phase.as_deref()
    }
}

impl Start {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `Ask::brought`")]
    fn brought(&self) -> Brought<'_> {
        let Self {
            deferred: _,
            task_thread_id,
            agent_id,
            bindings,
            labels,
            metadata,
            lease_ttl_ms,
            start_timeout_ms,
            run_timeout_ms,
            input,
            origin,
            position,
            priority,
            max_attempts,
            attempt_timeout_ms,
        } = self;
        let (lease_ttl_ms, start_timeout_ms, run_timeout_ms) = (*lease_ttl_ms, *start_timeout_ms, *run_timeout_ms);
        let attempt_timeout_ms = *attempt_timeout_ms;
        Brought {
            terms: Terms { lease_ttl_ms, start_timeout_ms, run_timeout_ms, attempt_timeout_ms, ..Terms::default() },
            max_attempts: *max_attempts,
            task_thread_id: Some(task_thread_id),
            agent_id: agent_id.as_deref(),
            bindings: Some(bindings),
            labels: Some(labels).filter(|labels| !labels.is_empty()),
            metadata: patch(metadata),
            input: input.as_ref(),
            origin: Some(origin),
            position: Some(position),
            priority: *priority,
            ..Brought::default()
        }
    }
}

impl Update {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `Ask::brought`")]
    fn brought(&self) -> Brought<'_> {
        let Self { lease_epoch, bindings, labels, metadata, result, added, position, suspension, priority } = self;
        Brought {
            terms: Terms { lease_epoch: *lease_epoch, ..Terms::default() },
            bindings: Some(bindings),
            labels: Some(&labels.set).filter(|set| !set.is_empty()),
            labels_dropped: Some(&labels.remove).filter(|keys| !keys.is_empty()),
            metadata: patch(metadata),
            result: result.as_ref(),
            added,
            position: Some(position),
            suspension: Some(suspension).filter(|terms| !terms.is_empty()),
            priority: *priority,
            ..Brought::default()
        }
    }
}

fn patch(metadata: &Metadata) -> Option<&Metadata> {
    Some(metadata).filter(|metadata| !metadata.is_empty())
}
