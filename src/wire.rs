//! The wire: generated messages, and what turns them into domain values and back.
//!
//! Nothing here decides anything. [`request`] checks a request whole before the domain sees it, [`answer`] shows domain
//! values, and [`status`] is the only place that makes a [`tonic::Status`].

pub mod answer;
pub mod codec;
pub mod cursor;
mod links;
mod metadata;
pub mod page_token;
pub mod query;
pub mod request;
pub mod status;
mod validate;

/// The server of `runledger.v1`, and those of its messages that many callers get alike: their common parts are bytes,
/// encoded once. All other messages are those of [`runledger_proto::v1`].
#[expect(clippy::all, clippy::pedantic, clippy::allow_attributes_without_reason, reason = "generated code")]
#[allow(unreachable_pub, clippy::wildcard_enum_match_arm, reason = "generated code, and not every release warns")]
pub mod served {
    tonic::include_proto!("runledger.v1");
}
