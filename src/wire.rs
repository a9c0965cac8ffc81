//! The wire: generated messages, and what turns them into domain values and back.
//!
//! No rule of a run's life is here. [`request`] checks a request whole before the domain sees it, [`answer`] shows
//! domain values, [`seal`] closes what only this ledger may read again, and [`problem`] says why a call was not done; only `status` makes a [`tonic::Status`] of a problem.

pub mod answer;
pub mod codec;
pub mod commands;
pub mod cursor;
mod frames;
pub mod from_domain;
pub mod heartbeats;
pub mod identity;
pub mod lifecycle;
mod listed_errors;
mod mutation;
pub mod namespace;
pub mod page_token;
pub mod parts;
pub mod problem;
pub mod query;
pub mod request;
pub mod scalars;
pub mod seal;
mod status;
mod validate;

pub use frames::WireFrames;
pub use status::uncounted;

/// The server of `runledger.v1`, and those of its messages that many callers get alike: their common parts are bytes,
/// encoded once. All other messages are those of [`runledger_proto::v1`].
#[expect(clippy::all, clippy::pedantic, clippy::allow_attributes_without_reason, reason = "generated code")]
#[allow(unreachable_pub, clippy::wildcard_enum_match_arm, reason = "generated code, and not every release warns")]
pub mod served {
    tonic::include_proto!("runledger.v1");
}
