//! The values of columns, where both stores treat them alike.

use crate::domain::{Route, RunKey, Status, Time};

/// A position or revision as the stores keep it. No ledger gets near 2^63; a caller may ask for any number, and then
/// the largest will do: no stored number is above it.
pub(super) fn bigint(number: impl Into<u64>) -> i64 {
    i64::try_from(number.into()).unwrap_or(i64::MAX)
}

/// A run's key as errors show it.
pub(super) fn shown(key: &RunKey) -> String {
    format!("{}/{}", key.namespace, key.run_id)
}

/// The time of a commit: the clock's, but later than every event of the other shards that was there before it, even
/// when the clock was set back. So a page shows calls in their order across shards.
pub(super) fn after_all(now: Time, elsewhere: Option<Time>) -> Time {
    elsewhere.map_or(now, |last| now.max(Time::from_micros(last.micros().saturating_add(1))))
}

/// The status of a `status` column.
pub(super) fn status(code: i16) -> Option<Status> {
    Status::ALL.into_iter().find(|status| status.code() == code)
}

/// The route of a `route` column.
pub(super) fn route(name: &str) -> Option<Route> {
    Route::ALL.into_iter().find(|route| route.name() == name)
}
