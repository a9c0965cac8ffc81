//! The reason for which a run was aborted or failed.

use super::links::set;
use crate::domain::form::object;

/// The reason for which a run ended; also the change of it that a command asks for or an event made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The reason in words, for people.
    pub failure_reason: Option<String>,
    /// The reason as a code, for programs.
    pub reason_code: Option<String>,
}

object!(Ending { failure_reason: "failureReason", reason_code: "reasonCode" });

impl Ending {
    pub(in crate::domain) fn fold(&mut self, change: &Self) {
        set(&mut self.failure_reason, change.failure_reason.as_ref());
        set(&mut self.reason_code, change.reason_code.as_ref());
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        [&self.failure_reason, &self.reason_code].into_iter().flatten().map(String::len).sum()
    }
}
