//! The times by which a run must have begun, and ended.

use crate::domain::limits::TIMEOUT_MS_MAX;
use crate::domain::{Run, SupervisionChange};
use crate::wire::scalars::{duration, timestamp};
use crate::wire::validate::Violations;
use runledger_proto::v1;

impl Violations {
    /// A time that something may take.
    pub(in crate::wire) fn timeout(&mut self, field: &str, timeout: Option<prost_types::Duration>) -> Option<u64> {
        self.duration_ms(field, timeout, 1..=TIMEOUT_MS_MAX, "1 millisecond to 366 days")
    }
}

pub(in crate::wire) fn show(run: &Run, shown: &mut v1::Run) {
    shown.start_deadline = run.supervision.start_deadline.map(timestamp);
    shown.deadline = run.deadline().map(timestamp);
}

pub(in crate::wire) fn show_change(change: &SupervisionChange, shown: &mut v1::RunChanges) {
    shown.start_deadline = change.start_deadline.map(timestamp);
    shown.run_timeout = change.run_timeout_ms.map(duration);
}
