//! The reason for which a run was aborted or failed.

use serde::{Deserialize, Serialize};

use super::links::set;

/// The reason for which a run ended; also the change of it that a command asks for or an event made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ending {
    /// The reason in words, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The reason as a code, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<String>,
}

impl Ending {
    pub(in crate::domain) fn fold(&mut self, change: &Self) {
        set(&mut self.failure_reason, change.failure_reason.as_ref());
        set(&mut self.reason_code, change.reason_code.as_ref());
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        [&self.failure_reason, &self.reason_code].into_iter().flatten().map(String::len).sum()
    }
}
