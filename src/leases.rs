//! Leases: renewals that share writes, and the sweep that ends what nobody answers for any more.
//!
//! What its holder says of the work comes with a renewal and is shown to who watches, best effort.
//!
//! A renewal is no command: it makes no event, takes no head, and waits for nobody's commit. The sweep makes commands and
//! nothing else: it finds runs whose time may be over, and what happens to them is decided under their shard's head like
//! everything else, so every replica may sweep at any time.

pub mod progress;
pub mod renewals;
pub mod sweeper;
