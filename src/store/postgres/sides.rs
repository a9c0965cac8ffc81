//! The sides of a decision: rows besides its run that a commit reads under the head, locks, and writes with the event.
//!
//! Commits of two shards share three kinds of locks: the rows of `max_running`, of `claims`, and of namespaces with a
//! quota. A commit takes them after the head and in this order, and several of one kind in the order of their keys.
//! While a commit waits for one, so does its shard, for 2 s at most where the holder is frozen.

pub(super) mod claims;
pub(super) mod contents;
pub(super) mod leases;
pub(super) mod lifecycles;
pub(super) mod max_running;
pub(super) mod namespaces;
mod suspended;
