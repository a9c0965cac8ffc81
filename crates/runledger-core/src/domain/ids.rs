//! The identifiers of the ledger, and the shard of a run. The functions here are frozen: stored data depends on them,
//! and test vectors hold them.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hasher as _;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use siphasher::sip::SipHasher13;
use uuid::Uuid;

/// The namespace of a call that names none. It is always there.
pub const DEFAULT_NAMESPACE: &str = "default";

/// A name that is compared, kept and shown, and never changed: a clone shares the text.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, text: &str) -> bool {
                *self.0 == *text
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, text: &&str) -> bool {
                *self.0 == **text
            }
        }

        impl PartialEq<String> for $name {
            fn eq(&self, text: &String) -> bool {
                *self.0 == **text
            }
        }

        impl PartialEq<$name> for String {
            fn eq(&self, name: &$name) -> bool {
                **self == *name.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(Self::from)
            }
        }
    };
}

name!(
    /// A namespace's name.
    Namespace
);

name!(
    /// A run's id, unique in its namespace.
    RunId
);

/// The [default namespace](DEFAULT_NAMESPACE), whose text most keys share.
static DEFAULT: LazyLock<Namespace> = LazyLock::new(|| DEFAULT_NAMESPACE.into());

impl Namespace {
    /// The [default namespace](DEFAULT_NAMESPACE).
    #[must_use]
    pub fn only() -> Self {
        DEFAULT.clone()
    }
}

/// A run's identity: unique for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunKey {
    /// The namespace that the run lives in.
    pub namespace: Namespace,
    /// The run's id, unique in its namespace.
    pub run_id: RunId,
}

/// One of the ledger's shards, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard(pub u16);

/// An event's place in its shard: dense, from 1, in commit order. Position 0 is before the first event.
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

/// The key by which the log's index finds a request id: 8 bytes of SHA-256 of `namespace 0x00 run_id 0x00 request_id`.
/// Two requests may share a key, so a finder compares the texts as well.
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
