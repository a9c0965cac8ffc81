//! The real binary, killed, cut off, frozen, out of disk, and told to stop: what it promised still holds.

mod calls;
mod data;
mod kills;
mod load;
mod server;
mod watching;
