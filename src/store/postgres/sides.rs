//! What a decision rests on besides its run: rows that a commit reads under the head, locks, and writes with the event.

pub(super) mod claims;
pub(super) mod leases;
pub(super) mod max_running;
