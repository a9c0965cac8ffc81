//! The rows beside runs and their log, as they change without a commit: renewals, the search for runs whose time is
//! over, and tidying.

pub(super) mod claims;
pub(super) mod leases;
pub(super) mod max_running;
pub(super) mod retention;
pub(super) mod stored_bytes;
