//! The real binary, killed, cut off, frozen, out of disk, and told to stop: what it promised still holds.

pub(crate) mod admin;
mod bench;
pub(crate) mod calls;
mod claims;
#[cfg(target_os = "linux")]
mod clocks;
pub(crate) mod crowds;
mod cuts;
pub(crate) mod data;
mod disks;
mod drain;
mod failover;
mod firehose;
mod freezes;
mod grants;
mod guarantees;
mod interruptions;
mod kills;
pub(crate) mod load;
mod loads;
mod moved;
mod older_tokens;
mod oracle;
mod outages;
mod refusals;
pub(crate) mod replica;
mod restored;
pub(crate) mod server;
mod sharing;
mod snapshots;
mod startup;
mod unreceived;
mod upgrade;
mod waiting;
mod waits;
mod watching;
mod workers;
