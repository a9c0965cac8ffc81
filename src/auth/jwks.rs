//! The public keys of issuers: where they are read, which of them are used, and how they are kept fresh.
//!
//! A set of keys (a JWKS, RFC 7517) comes from a file or a URL. Only [`Source::follow`] reads it, so a source is read by
//! one task, whoever waits for it. A source that fails keeps its last set for 24 h. This module knows no tokens: it is
//! asked for the key of an id and an algorithm.

mod discovery;
mod fetch;
mod key;
mod key_set;
mod key_url;
mod small_file;
mod source;

use std::path::PathBuf;

pub use key::{Algorithm, Key, Skipped};
pub use key_set::{BadKeySet, KeySearch, KeySet};
pub use key_url::{BadKeyUrl, KeyUrl};
pub use small_file::BadFile;
pub(super) use small_file::read as read_small_file;
pub use source::{Missing, Source};

/// The largest key set, discovery document, CA bundle or bearer token that is read, in bytes.
pub const SOURCE_BYTES_MAX: usize = 256 * 1024;

/// The place of an issuer's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A JWKS in a file, which is read again every 10 s.
    File(PathBuf),
    /// A JWKS at a URL, which is fetched again every 5 min.
    Url {
        /// The URL of the set.
        url: KeyUrl,
        /// The trust between us and the server.
        trust: Trust,
    },
    /// The JWKS that the issuer's OpenID configuration names, on the same host. Both are fetched again every 5 min.
    Discovery {
        /// The issuer's own URL, below which `/.well-known/openid-configuration` is.
        issuer: KeyUrl,
        /// The trust between us and the server.
        trust: Trust,
    },
}

/// The files that make a server trusted, and us to the server. Each is read anew for each fetch, so both may be rotated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The CAs, as PEM, that the server's certificate must come from; none means the platform's.
    pub ca_file: Option<PathBuf>,
    /// The token that is sent as `authorization: Bearer`.
    pub bearer_token_file: Option<PathBuf>,
}
