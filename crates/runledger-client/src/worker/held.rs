//! A run that a worker holds, and the calls that end it.

use runledger_proto::{Struct, v1};

use super::request_id;

/// `failure_reason` at most, in bytes.
pub const FAILURE_REASON_BYTES_MAX: usize = 4096;

/// The reason of a suspension at most, in bytes.
const SUSPENSION_REASON_BYTES_MAX: usize = 1024;

/// A run under this worker's lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// The run, as it was when the lease was granted.
    pub run: v1::Run,
    /// The lease's epoch: the fencing token.
    pub epoch: u64,
}

impl From<v1::Run> for Held {
    fn from(run: v1::Run) -> Self {
        Self { epoch: run.lease.as_ref().map_or(0, |lease| lease.epoch), run }
    }
}

impl Held {
    pub(super) fn completed(&self, metadata: Option<Struct>) -> v1::CompleteRunRequest {
        v1::CompleteRunRequest {
            run_id: self.run.run_id.clone(),
            metadata,
            request_id: request_id(),
            lease_epoch: self.epoch,
            ..v1::CompleteRunRequest::default()
        }
    }

    pub(super) fn not_begun(&self) -> v1::ReleaseRunRequest {
        v1::ReleaseRunRequest {
            run_id: self.run.run_id.clone(),
            request_id: request_id(),
            lease_epoch: self.epoch,
            not_begun: true,
            ..v1::ReleaseRunRequest::default()
        }
    }

    pub(super) fn failed(&self, reason: String, reason_code: String) -> v1::FailRunRequest {
        v1::FailRunRequest {
            run_id: self.run.run_id.clone(),
            failure_reason: cut(reason),
            reason_code,
            request_id: request_id(),
            lease_epoch: self.epoch,
            ..v1::FailRunRequest::default()
        }
    }

    pub(super) fn updated(&self) -> v1::UpdateRunRequest {
        v1::UpdateRunRequest {
            run_id: self.run.run_id.clone(),
            request_id: request_id(),
            lease_epoch: self.epoch,
            ..v1::UpdateRunRequest::default()
        }
    }

    pub(super) fn suspended(&self, kind: String, mut reason: String) -> v1::SuspendRunRequest {
        reason.truncate(reason.floor_char_boundary(SUSPENSION_REASON_BYTES_MAX));
        v1::SuspendRunRequest {
            run_id: self.run.run_id.clone(),
            kind,
            reason,
            request_id: request_id(),
            lease_epoch: self.epoch,
            ..v1::SuspendRunRequest::default()
        }
    }

    pub(super) fn aborted(&self, reason: String, reason_code: String) -> v1::AbortRunRequest {
        v1::AbortRunRequest {
            run_id: self.run.run_id.clone(),
            failure_reason: cut(reason),
            reason_code,
            request_id: request_id(),
            lease_epoch: self.epoch,
            ..v1::AbortRunRequest::default()
        }
    }
}

fn cut(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(FAILURE_REASON_BYTES_MAX));
    reason
}
