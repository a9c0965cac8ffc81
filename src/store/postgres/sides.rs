//! The sides of a decision: rows besides its run that a commit reads under the head, locks, and writes with the event.

pub(super) mod claims;
pub(super) mod contents;
pub(super) mod leases;
pub(super) mod lifecycles;
pub(super) mod max_running;
pub(super) mod namespaces;
mod rests;
