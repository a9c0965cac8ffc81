//! The transport: connections, and the bytes that travel on them.
//!
//! ```text
//! listener: a place -> TLS, preface -> h2 -> layers: refused by its headers, or begun -> its request -> its turn -> grpc
//!                                                                     answer, in parts, counted until written <--------+
//! ```
//!
//! What a call passes between HTTP/2 and the services is one list, in `layers`. A port of another protocol takes the same
//! ones but `rules`, which are those of HTTP and gRPC.
//!
//! Invariants:
//!
//! - What one connection can take of the process is bounded: the bytes that are read from it before others have their
//!   turn, frames that do no work, calls in execution, bytes of requests and of unsent answers, time without progress,
//!   and its age.
//! - A connection that reaches a bound of its own waits, or its calls do; only one that cannot be slowed down is
//!   refused or cut. Where all connections together reach a bound, calls are refused or connections cut of those that
//!   have more than their share.
//! - A call that is refused by its headers was not decoded, and wrote nothing.
//! - TLS and the preface have one bound of time together. What a handshake may compute at once, and what ends when a
//!   client's trust does, is in `tls`.

mod answer;
mod begun;
mod call;
mod caller_limits;
mod ciphertext;
mod connection;
mod handshake;
mod layers;
pub mod listener;
mod load_shed;
mod measured;
mod method;
mod peer;
mod preface;
mod rate_limit;
mod read_quantum;
mod rejection;
mod request;
mod socket;
mod stall;
mod totals;
mod untaken;

pub(super) use call::Context;
pub use caller_limits::CallerLimits;
pub use connection::Lifetime;
pub(super) use peer::Peer;
pub(super) use request::Message;
pub use totals::Totals;
