//! The real binary, killed, cut off, frozen, out of disk, and told to stop: what it promised still holds.

mod calls;
mod cuts;
pub(crate) mod data;
mod disks;
mod drain;
mod freezes;
mod kills;
pub(crate) mod load;
mod outages;
mod refusals;
pub(crate) mod server;
mod snapshots;
mod startup;
mod waiting;
mod watching;
