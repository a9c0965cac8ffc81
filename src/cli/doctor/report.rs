//! The doctor's report, in the form that programs read.

use std::collections::BTreeMap;

use serde::Serialize;

use super::problems::{problems, warnings};
use super::replicas::Replica;
use crate::domain::{LedgerEpoch, Namespace, RunId, RunKey, Status, Time};
use crate::store::finding::Finding as Problem;
use crate::store::inspect::{Condition, OldRun};
use crate::store::migrations::RELEASE;
use crate::store::{Description, Ledger};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) healthy: bool,
    pub(super) problems: Vec<Problem>,
    /// Findings that leave the ledger healthy.
    pub(super) warnings: Vec<Problem>,
    pub(super) release: &'static str,
    pub(super) store: &'static str,
    /// Without any password.
    pub(super) location: String,
    /// How the doctor's own connection to a server is protected.
    pub(super) connection: Option<String>,
    /// None where the ledger could not be opened; so with all that follows.
    pub(super) ledger_id: Option<String>,
    pub(super) epoch: Option<LedgerEpoch>,
    /// The minute in which the ledger was last seen to be restored or failed over.
    pub(super) epoch_began: Option<String>,
    pub(super) shards: Option<u16>,
    /// The reason why a crash may lose an acknowledged call.
    pub(super) not_durable: Option<String>,
    /// Runs that are not terminal, by status.
    pub(super) active: BTreeMap<String, u64>,
    pub(super) oldest_active: Vec<Active>,
    /// The replicas that the doctor was told of.
    pub(super) replicas: Vec<Replica>,
    /// None where it could not be read: a problem says why.
    #[serde(flatten)]
    pub(super) condition: Option<Condition>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Active {
    pub(super) namespace: Namespace,
    pub(super) run_id: RunId,
    pub(super) status: String,
    pub(super) started_at: Time,
    pub(super) agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) suspension_kind: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) ready: bool,
}

impl Active {
    /// What the run waits for, where nobody executes it.
    pub(super) fn waits(&self) -> String {
        let state = if self.ready { "ready" } else { "suspended" };
        match &self.suspension_kind {
            Some(kind) => format!("  {state} ({kind})"),
            None if self.ready => format!("  {state}"),
            None => String::new(),
        }
    }
}

/// What was seen of a store.
pub(super) struct Seen {
    pub(super) description: Description,
    /// The faults that were found without a look at the tables, or instead of it.
    pub(super) findings: Vec<Problem>,
    pub(super) ledger: Option<Ledger>,
    pub(super) condition: Option<Condition>,
}

impl Report {
    pub(super) fn of(seen: Seen, replicas: Vec<Replica>) -> Self {
        let Seen { description, findings: mut problems, ledger, mut condition } = seen;
        problems.extend(judged(&description, condition.as_ref()));
        problems.extend(replicas.iter().filter_map(Replica::problem));
        let warnings = condition.as_ref().map(warnings).unwrap_or_default();
        let taken = condition
            .as_mut()
            .map(|condition| (std::mem::take(&mut condition.active), std::mem::take(&mut condition.oldest)));
        let (active, oldest) = taken.unwrap_or_default();
        let epoch = ledger.map(|ledger| ledger.epoch);
        Self {
            healthy: problems.is_empty(),
            problems,
            warnings,
            release: RELEASE,
            store: description.kind,
            location: description.location,
            connection: description.connection,
            ledger_id: ledger.map(|ledger| ledger.id.to_string()),
            epoch,
            epoch_began: ledger.filter(|ledger| ledger.epoch > LedgerEpoch::FIRST).map(Ledger::epoch_began),
            shards: ledger.map(|ledger| ledger.shard_count),
            not_durable: description.not_durable,
            active: active.into_iter().map(|(status, runs)| (name(status), runs)).collect(),
            oldest_active: oldest.into_iter().map(Active::from).collect(),
            replicas,
            condition,
        }
    }
}

fn judged(description: &Description, condition: Option<&Condition>) -> Vec<Problem> {
    condition.map(|condition| problems(description, condition)).unwrap_or_default()
}

impl From<OldRun> for Active {
    fn from(run: OldRun) -> Self {
        let OldRun { key, status, started_at, agent_id, suspension_kind, ready } = run;
        let RunKey { namespace, run_id } = key;
        Self { namespace, run_id, status: name(status), started_at, agent_id, suspension_kind, ready }
    }
}

/// A status by its code; one that is none is for `verify` to complain about.
fn name(code: i16) -> String {
    let status = Status::ALL.into_iter().find(|status| status.code() == code);
    status.map_or_else(|| format!("status {code}"), |status| status.to_string())
}
