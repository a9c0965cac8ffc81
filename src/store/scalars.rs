//! The values of columns, where both stores treat them alike.

use crate::domain::{Route, RunKey, Status};

/// A position or revision as the stores keep it. No ledger gets near 2^63; a caller may ask for any number, and then
/// the largest will do: no stored number is above it.
pub(super) fn bigint(number: impl Into<u64>) -> i64 {
    i64::try_from(number.into()).unwrap_or(i64::MAX)
}

/// A run's key as errors show it.
pub(super) fn shown(key: &RunKey) -> String {
    format!("{}/{}", key.namespace, key.run_id)
}

/// The status of a `status` column.
pub(super) fn status(code: i16) -> Option<Status> {
    Status::ALL.into_iter().find(|status| status.code() == code)
}

/// The route of a `route` column.
pub(super) fn route(name: &str) -> Option<Route> {
    Route::ALL.into_iter().find(|route| route.name() == name)
}
