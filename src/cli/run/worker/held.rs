//! A run that a worker holds, and how it is ended.

use std::collections::BTreeMap;

use super::request_id;
use crate::domain::limits::FAILURE_REASON_BYTES_MAX;
use runledger_proto::json;
use runledger_proto::v1;

/// A run, and the lease under which it is this worker's.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) run_id: String,
    pub(super) task_thread_id: String,
    pub(super) epoch: u64,
    /// As a JSON object.
    pub(super) labels: String,
    /// As a JSON object.
    pub(super) metadata: String,
}

impl Held {
    pub(super) fn of(run: &v1::Run) -> Self {
        let epoch = run.lease.as_ref().map_or(0, |lease| lease.epoch);
        let labels: BTreeMap<&String, &String> = run.labels.iter().collect();
        let labels = serde_json::to_string(&labels).expect("texts are JSON");
        let metadata = run.metadata.as_ref().map_or_else(|| "{}".to_owned(), json::object);
        Self { run_id: run.run_id.clone(), task_thread_id: run.task_thread_id.clone(), epoch, labels, metadata }
    }

    pub(super) fn completed(&self) -> v1::CompleteRunRequest {
        v1::CompleteRunRequest {
            run_id: self.run_id.clone(),
            request_id: request_id(),
            lease_epoch: self.epoch,
            ..v1::CompleteRunRequest::default()
        }
    }

    pub(super) fn not_begun(&self) -> v1::ReleaseRunRequest {
        v1::ReleaseRunRequest {
            run_id: self.run_id.clone(),
            request_id: request_id(),
            lease_epoch: self.epoch,
            not_begun: true,
            ..v1::ReleaseRunRequest::default()
        }
    }

    pub(super) fn failed(&self, mut failure_reason: String, reason_code: &str) -> v1::FailRunRequest {
        failure_reason.truncate(failure_reason.floor_char_boundary(FAILURE_REASON_BYTES_MAX));
        v1::FailRunRequest {
            run_id: self.run_id.clone(),
            failure_reason,
            reason_code: reason_code.to_owned(),
            request_id: request_id(),
            lease_epoch: self.epoch,
            ..v1::FailRunRequest::default()
        }
    }

    pub(super) fn aborted(&self, failure_reason: String, reason_code: &str) -> v1::AbortRunRequest {
        v1::AbortRunRequest {
            run_id: self.run_id.clone(),
            failure_reason,
            reason_code: reason_code.to_owned(),
            request_id: request_id(),
            lease_epoch: self.epoch,
            ..v1::AbortRunRequest::default()
        }
    }
}
