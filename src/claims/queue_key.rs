//! What makes two claims wait in the same queue.

use crate::domain::{AtRest, Filter, MaxRunning, Namespace, Status, Take};

/// The part of a claim that the claimers of one queue have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct QueueKey {
    pub(super) namespace: Namespace,
    /// The filter of runs that wait for a claim.
    pub(super) filter: Filter,
    pub(super) take: Take,
    pub(super) max_running: Option<MaxRunning>,
}

impl QueueKey {
    pub(super) fn new(namespace: Namespace, filter: Filter, take: Take, max_running: Option<MaxRunning>) -> Self {
        let pending = [Status::Pending].into();
        let filter = match take {
            Take::Pending => Filter { statuses: pending, or: Some(AtRest::NotBegun), ..filter },
            Take::Ready => Filter { statuses: [].into(), ready: Some(true), ..filter },
            Take::Both => Filter { statuses: pending, or: Some(AtRest::Ready), ..filter },
        };
        Self { namespace, filter, take, max_running }
    }

    /// The key of the limited label.
    pub(super) fn label(&self) -> Option<&str> {
        self.max_running.as_ref().map(|max| max.label.as_str())
    }
}
