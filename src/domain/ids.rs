//! Who is who in the ledger, and which shard a run lives in. The functions here are frozen: stored data depends on
//! them, and test vectors hold them.

use std::hash::Hasher as _;

use sha2::{Digest as _, Sha256};
use siphasher::sip::SipHasher13;
use uuid::Uuid;

/// The only namespace until namespaces exist.
pub const DEFAULT_NAMESPACE: &str = "default";

/// A run's identity: unique for ever.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunKey {
    /// The namespace that the run lives in.
    pub namespace: String,
    /// The run's id, unique in its namespace.
    pub run_id: String,
}

/// One of the ledger's shards, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard(pub u16);

/// An event's place in its shard: dense, from 1, in commit order. 0 is before the first.
pub type Position = u64;

/// The shard that holds a run: siphash-1-3, keyed by the ledger's id, of `namespace 0x00 run_id`, modulo the count.
#[must_use]
pub fn shard_of(ledger: Uuid, shard_count: u16, key: &RunKey) -> Shard {
    let mut hasher = SipHasher13::new_with_key(ledger.as_bytes());
    hasher.write(key.namespace.as_bytes());
    hasher.write(&[0]);
    hasher.write(key.run_id.as_bytes());
    let shard = hasher.finish() % u64::from(shard_count.max(1));
    Shard(u16::try_from(shard).expect("less than a u16's count"))
}

/// What the log's index finds a request id by: 8 bytes of SHA-256 of `namespace 0x00 run_id 0x00 request_id`. Two
/// requests may share a key, so a finder compares the texts as well.
#[must_use]
pub fn request_key(key: &RunKey, request_id: &str) -> i64 {
    let digest = parts(&[key.namespace.as_bytes(), key.run_id.as_bytes(), request_id.as_bytes()]);
    i64::from_be_bytes(digest[..8].try_into().expect("8 of 32 bytes"))
}

/// The run id of a start that names a `request_id` and no `run_id`: a retry meets the same run on any replica.
#[must_use]
pub fn derived_run_id(ledger: Uuid, namespace: &str, request_id: &str) -> String {
    let digest = parts(&[ledger.as_bytes(), namespace.as_bytes(), request_id.as_bytes()]);
    Uuid::new_v8(digest[..16].try_into().expect("16 of 32 bytes")).to_string()
}

fn parts(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            hasher.update([0]);
        }
        hasher.update(part);
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(run_id: &str) -> RunKey {
        RunKey { namespace: DEFAULT_NAMESPACE.into(), run_id: run_id.into() }
    }

    #[test]
    fn a_run_never_moves_to_another_shard() {
        let ledger = Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
        let shards: Vec<u16> = (0..8).map(|n| shard_of(ledger, 4, &key(&format!("run-{n}"))).0).collect();
        assert_eq!(shards, VECTOR_SHARDS);
        assert_eq!(shard_of(ledger, 1, &key("anything")), Shard(0));
    }

    #[test]
    fn derived_ids_and_request_keys_are_frozen() {
        let ledger = Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
        assert_eq!(derived_run_id(ledger, DEFAULT_NAMESPACE, "request-1"), VECTOR_RUN_ID);
        assert_eq!(request_key(&key("run-1"), "request-1"), VECTOR_REQUEST_KEY);
    }

    const VECTOR_SHARDS: [u16; 8] = [0, 2, 1, 3, 0, 1, 3, 3];
    const VECTOR_RUN_ID: &str = "55d3fdb5-1e9a-8b19-bcee-663b703a4d89";
    const VECTOR_REQUEST_KEY: i64 = -3_028_716_962_806_593_348;
}
