//! The real binary, killed, cut off, frozen, out of disk, and told to stop: what it promised still holds.

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
mod replica;
mod server;
mod snapshots;
mod startup;
mod upgrade;
mod waiting;
mod watching;
