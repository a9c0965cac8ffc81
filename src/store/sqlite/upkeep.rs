//! What is kept beside runs and their log, and changes without the head: the same tables as the
//! [sides](super::sides), between commits.

pub(super) mod claims;
pub(super) mod leases;
pub(super) mod max_running;
