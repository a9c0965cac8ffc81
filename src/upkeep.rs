//! Leases: renewals that share writes, and the sweep that ends runs whose lease or deadline is over.
//!
//! The holder's report of progress comes with a renewal and is shown to watchers, best effort.
//!
//! A renewal is no command: it makes no event, takes no head, and waits for no commit. The sweep only makes commands:
//! it finds runs whose time may be over, and the commands are decided under the shard's head like all others. So every
//! replica sweeps once a second, and none leads.

pub mod progress;
pub mod renewals;
pub mod rounds;
pub mod sweeper;
