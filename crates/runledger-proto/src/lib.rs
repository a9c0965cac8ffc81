//! The interface between a Runledger server and its callers: the messages of `runledger.v1`, generated from `proto/`,
//! their form in JSON, their fields by name, the table of the methods, and the names of the headers.
//!
//! The comments of the proto files are the contract, and stand on the generated types.

pub mod fields;
pub mod headers;
pub mod json;
pub mod methods;
mod text;

pub use prost_types::{Duration, Struct, Timestamp};
pub use text::chain;

/// The messages and the clients of `runledger.v1`.
#[expect(clippy::all, clippy::pedantic, clippy::allow_attributes_without_reason, reason = "generated code")]
#[allow(unreachable_pub, clippy::wildcard_enum_match_arm, reason = "generated code, and not every release warns")]
pub mod v1 {
    tonic::include_proto!("runledger.v1");
}

/// The compiled protos with their comments and imports, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.bin"));

/// A duration as the wire has it. The authority refuses one that is too long for the wire.
#[must_use]
pub fn duration(duration: std::time::Duration) -> prost_types::Duration {
    let nanos = i32::try_from(duration.subsec_nanos()).expect("less than a second");
    prost_types::Duration { seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), nanos }
}
