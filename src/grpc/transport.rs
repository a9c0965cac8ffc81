//! The transport: connections, and the bytes that travel on them.
//!
//! Invariant: what one connection can take of the process is bounded: frames that do no work, calls in execution, bytes
//! of requests and of unsent answers, and time without progress. A connection that takes more is slowed down; only one
//! that cannot be slowed down is refused or cut.

mod answer;
mod begin;
mod caller_limits;
mod calls;
mod ciphertext;
mod connection;
mod goodbye;
pub mod listener;
mod load_shed;
mod measured;
mod method;
mod peer;
mod preface;
mod quantum;
mod rate_limit;
mod request;
mod socket;
mod stall;
mod totals;

pub use caller_limits::CallerLimits;
pub(super) use calls::Context;
pub use connection::Lifetime;
pub(super) use peer::Peer;
pub(super) use request::Whole;
pub use totals::Totals;
