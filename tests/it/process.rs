//! The real binary, killed, cut off, frozen, out of disk, and told to stop: what it promised still holds.

mod bench;
mod calls;
mod cuts;
mod data;
mod disks;
mod drain;
mod freezes;
mod kills;
mod load;
mod outages;
mod refusals;
mod server;
mod snapshots;
mod startup;
mod waiting;
mod watching;
