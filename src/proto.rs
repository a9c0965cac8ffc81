//! The wire: generated messages, and what turns them into domain values and back.
//!
//! Nothing here decides anything. [`request`] checks a request whole before the domain sees it, [`answer`] shows domain
//! values, and [`status`] is the only place that makes a [`tonic::Status`].

pub mod answer;
pub mod codec;
pub mod cursor;
mod json;
pub mod page_token;
pub mod query;
pub mod request;
pub mod status;
mod validate;

pub use self::json::structure;

/// `Run.metadata` as the wire has it.
pub type Metadata = prost_types::Struct;

/// A duration as the wire has it; what is too long for it is refused by the authority.
#[must_use]
pub fn duration(duration: std::time::Duration) -> prost_types::Duration {
    let nanos = i32::try_from(duration.subsec_nanos()).expect("less than a second");
    prost_types::Duration { seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), nanos }
}

/// The messages and the client of `runledger.v1`, generated from `proto/`.
#[expect(clippy::all, clippy::pedantic, clippy::allow_attributes_without_reason, reason = "generated code")]
#[allow(unreachable_pub, clippy::wildcard_enum_match_arm, reason = "generated code, and not every release warns")]
pub mod v1 {
    tonic::include_proto!("runledger.v1");
}

/// The server of `runledger.v1`, and those of its messages that many callers get alike: what is alike in them is bytes,
/// encoded once. All other messages are those of [`v1`].
#[expect(clippy::all, clippy::pedantic, clippy::allow_attributes_without_reason, reason = "generated code")]
#[allow(unreachable_pub, clippy::wildcard_enum_match_arm, reason = "generated code, and not every release warns")]
pub mod served {
    include!(concat!(env!("OUT_DIR"), "/served/runledger.v1.rs"));
}

/// The compiled protos with their comments and imports: what reflection serves.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.bin"));
