//! Reads of one run: its state, with the rows beside it that it is shown with, and the result that a call on it would
//! have.

use super::lists::Reached;
use super::{Authority, Call, kept, run_not_found, unreadable};
use crate::domain::check::{check_matrix, check_run, next_phases};
use crate::domain::{ContentRow, LabelValue, LifecycleFound, LifecycleKey, Run, RunKey};
use crate::fairness::CallerKey;
use crate::store::attached::Attached;
use crate::store::contents::Beside;
use crate::store::query::ClaimPlace;
use crate::store::{RunAsKept, StoreError};
use crate::telemetry::traces;
use crate::wire::from_domain::{FromDomain as _, IntoMessage as _};
use crate::wire::parts::attachments;
use crate::wire::parts::lease::progress;
use crate::wire::problem::{self, Problem};
use crate::wire::query::{self, RunAsked};
use crate::wire::request::{self, TransitionQuestion};
use crate::wire::scalars::timestamp;
use runledger_proto::v1;

impl Authority {
    /// Answers a `GetRun`.
    ///
    /// # Errors
    ///
    /// The run cannot be read, or is not there.
    pub async fn get_run(&self, call: Call<v1::GetRunRequest>) -> Result<v1::GetRunResponse, Problem> {
        let caller = call.key;
        let RunAsked { key, queue_label, view } =
            query::get_run(call.message, &call.caller).map_err(problem::invalid)?;
        traces::current_run(&key.namespace, &key.run_id);
        match self.reads.run(caller, &key).await {
            Ok(Some(read)) => {
                kept(&read.run)?;
                let queue = match queue_label {
                    Some(label) => self.place(caller, &key, &read.run, &label).await?,
                    None => None,
                };
                let mut shown = shown(&read);
                if view == v1::RunView::Basic {
                    shown.metadata = None;
                }
                let mut answer = v1::GetRunResponse { run: Some(shown), queue, ..v1::GetRunResponse::default() };
                let asked = Beside::of(&read.run);
                if view == v1::RunView::Whole && !asked.is_nothing() {
                    let unreadable = |error| unreadable("GetRun", &key, &error);
                    let (rows, _turn) = self.beside(caller, &key, &asked).await?.map_err(unreadable)?;
                    attachments::whole(&read.run, &rows, &mut answer).map_err(unreadable)?;
                }
                Ok(answer)
            }
            Ok(None) => Err(run_not_found(key)),
            Err(error) => Err(unreadable("GetRun", &key, &error)),
        }
    }

    /// Answers a `ListLinks`.
    ///
    /// # Errors
    ///
    /// The run cannot be read, or is not there.
    pub async fn list_links(&self, call: Call<v1::ListLinksRequest>) -> Result<v1::ListLinksResponse, Problem> {
        let (key, rel) = query::list_links(call.message, &call.caller).map_err(problem::invalid)?;
        traces::current_run(&key.namespace, &key.run_id);
        let unreadable = |error| unreadable("ListLinks", &key, &error);
        let Some(read) = self.reads.run(call.key, &key).await.map_err(unreadable)? else {
            return Err(run_not_found(key));
        };
        kept(&read.run)?;
        let asked = Beside::links_of(&read.run);
        if asked.is_nothing() {
            return Ok(v1::ListLinksResponse::default());
        }
        let (rows, _turn) = self.beside(call.key, &key, &asked).await?.map_err(unreadable)?;
        let links = rows.iter().map(|row| attachments::link(&read.run, row)).collect::<Result<Vec<_>, _>>();
        let links = links.map_err(unreadable)?.into_iter();
        Ok(v1::ListLinksResponse {
            links: links.filter(|link| rel.as_ref().is_none_or(|rel| *rel == link.rel)).collect(),
        })
    }

    /// Answers a `CheckTransition`.
    ///
    /// # Errors
    ///
    /// The run cannot be read.
    pub async fn check_transition(
        &self,
        call: Call<v1::CheckTransitionRequest>,
    ) -> Result<v1::CheckTransitionResponse, Problem> {
        let question = request::check_transition(call.message, &call.caller).map_err(problem::invalid)?;
        let mut allowed_phases = Vec::new();
        let check = match question {
            TransitionQuestion::Matrix { from, to } => check_matrix(from, to),
            TransitionQuestion::Run { key, transition } => {
                let unreadable = |error| unreadable("CheckTransition", &key, &error);
                let read = self.reads.run(call.key, &key).await.map_err(unreadable)?;
                let run = read.as_ref().map(|read| &read.run);
                let pinned = run.and_then(|run| run.position()?.lifecycle.as_ref());
                let declared = match pinned {
                    None => None,
                    Some(pin) => {
                        let lifecycle = LifecycleKey::Pinned(key.namespace.clone(), pin.clone());
                        Some(self.store.declared(&lifecycle).await.map_err(unreadable)?)
                    }
                };
                let lifecycle = match &declared {
                    None => LifecycleFound::NotAsked,
                    Some(None) => LifecycleFound::Missing,
                    Some(Some(declared)) => LifecycleFound::There(declared),
                };
                if let (Some(run), Some(declared)) = (run, lifecycle.declared()) {
                    allowed_phases = next_phases(run, &declared.lifecycle);
                }
                let Call { caller, .. } = call;
                check_run(&key, run, transition, lifecycle, caller.principal, caller.agents)
            }
        };
        let (disposition, reason) = match &check.outcome {
            Ok(disposition) => (v1::Disposition::from_domain(*disposition), ""),
            Err(refusal) => (v1::Disposition::Unspecified, refusal.reason()),
        };
        Ok(v1::CheckTransitionResponse {
            allowed: check.allowed,
            disposition: disposition.into(),
            reason: reason.to_owned(),
            from: check.from.map_or(v1::RunStatus::Unspecified, v1::RunStatus::from_domain).into(),
            allowed_phases,
        })
    }

    /// What stands beside a run: a few bytes ask for some hundred kilobytes, so it is read in a turn, which lasts as long
    /// as the second value.
    async fn beside(
        &self,
        caller: CallerKey,
        key: &RunKey,
        asked: &Beside,
    ) -> Result<Result<(Vec<ContentRow>, Attached), StoreError>, Problem> {
        let read = |_reach| async { Ok(Reached::Whole(self.store.beside(key, asked).await)) };
        let (rows, turn) = self.turns.read(caller, read).await?;
        Ok(rows.map(|rows| (rows, turn)))
    }

    /// The place of a run that waits for a claim in the queue of its value of a label.
    pub(super) async fn place(
        &self,
        caller: CallerKey,
        key: &RunKey,
        run: &Run,
        label: &str,
    ) -> Result<Option<v1::QueuePlace>, Problem> {
        let Some(value) = LabelValue::new(run, label).filter(|_| run.awaits_claim()) else { return Ok(None) };
        let ahead = self.count_waiting(caller, &key.namespace, &value, &ClaimPlace::new(run)).await?;
        let running = self.store.running(std::slice::from_ref(&value)).await;
        let running = running.map_err(|error| unreadable("GetRun", key, &error))?;
        // A run that was claimed a moment ago would wait for itself.
        let running_run_ids =
            running.into_iter().flatten().filter(|run_id| *run_id != key.run_id).map(String::from).collect();
        let LabelValue { label, value, .. } = value;
        let position = ahead.counts.values().sum::<u64>() + 1;
        Ok(Some(v1::QueuePlace { label, value, position, truncated: ahead.truncated, running_run_ids }))
    }
}

/// A run with the expiry and the progress in its lease's own row. Only a running run with a lease has such a row.
fn shown(read: &RunAsKept) -> v1::Run {
    let RunAsKept { run, lease: kept } = read;
    let mut shown: v1::Run = run.into_message();
    // The row may have been read a moment after the run, and be of a later lease, which this run does not have.
    let kept = kept.as_ref().filter(|kept| kept.epoch == run.supervision.epoch());
    if let (Some(lease), Some(kept)) = (&mut shown.lease, kept) {
        lease.expires_at = Some(timestamp(kept.expires_at));
        shown.progress = kept.progress.as_ref().map(progress);
    }
    shown
}
