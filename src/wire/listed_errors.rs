//! The errors of what was asked for in one list: each as its own call would have it, as long as there is room.

use tonic_types::pb::Status;

use super::problem::Problem;

/// Bytes of the details of all errors of one answer.
const DETAILS_BYTES_MAX: usize = 1024 * 1024;

/// The errors of one answer, in their order.
#[derive(Debug)]
pub(super) struct ListedErrors {
    details_left: usize,
}

impl Default for ListedErrors {
    fn default() -> Self {
        Self { details_left: DETAILS_BYTES_MAX }
    }
}

impl ListedErrors {
    /// The next error, and whether its details are left out. Errors before the first one that is cut are whole, and those
    /// after it are cut.
    pub(super) fn next(&mut self, problem: Problem) -> (Status, bool) {
        let reason_alone = problem.reason_alone();
        let error = problem.into_rpc_status();
        let bytes: usize = error.details.iter().map(prost::Message::encoded_len).sum();
        if bytes > self.details_left {
            self.details_left = 0;
            return (reason_alone.into_rpc_status(), true);
        }
        self.details_left -= bytes;
        (error, false)
    }
}
