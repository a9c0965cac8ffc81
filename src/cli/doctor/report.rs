//! The doctor's report, in the form that programs read.

use std::collections::BTreeMap;

use serde::Serialize;

use super::problems::{Problem, problems, warnings};
use super::replicas::Replica;
use crate::domain::{LedgerEpoch, Namespace, RunId, RunKey, Status, Time};
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
    pub(super) ledger_id: String,
    pub(super) epoch: LedgerEpoch,
    /// The minute in which the ledger was last seen to be restored or failed over.
    pub(super) epoch_began: Option<String>,
    pub(super) shards: u16,
    /// The reason why a crash may lose an acknowledged call.
    pub(super) not_durable: Option<String>,
    /// Runs that are not terminal, by status.
    pub(super) active: BTreeMap<String, u64>,
    pub(super) oldest_active: Vec<Active>,
    /// The replicas that the doctor was told of.
    pub(super) replicas: Vec<Replica>,
    #[serde(flatten)]
    pub(super) condition: Condition,
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

impl Report {
    pub(super) fn of(
        description: Description,
        ledger: Ledger,
        mut condition: Condition,
        replicas: Vec<Replica>,
    ) -> Self {
        let mut problems = problems(&description, &condition);
        problems.extend(replicas.iter().filter_map(Replica::problem));
        let active = std::mem::take(&mut condition.active).into_iter();
        let oldest = std::mem::take(&mut condition.oldest).into_iter();
        Self {
            healthy: problems.is_empty(),
            problems,
            warnings: warnings(&condition),
            release: RELEASE,
            store: description.kind,
            location: description.location,
            connection: description.connection,
            ledger_id: ledger.id.to_string(),
            epoch: ledger.epoch,
            epoch_began: (ledger.epoch > LedgerEpoch::FIRST).then(|| ledger.epoch_began()),
            shards: ledger.shard_count,
            not_durable: description.not_durable,
            active: active.map(|(status, runs)| (name(status), runs)).collect(),
            oldest_active: oldest.map(Active::from).collect(),
            replicas,
            condition,
        }
    }
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
