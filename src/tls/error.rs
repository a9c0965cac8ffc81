//! The reasons why files do not make a server's TLS.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// See the module. No error shows what is in a file.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", file.display())]
    Unreadable {
        file: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file holds something else, or nothing.
    #[error("{} {what}", file.display())]
    Content {
        file: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A certificate or key is not one that TLS can use.
    #[error("{} cannot be used", file.display())]
    Unusable {
        file: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// A revocation list is not one that TLS can use.
    #[error("{} holds a revocation list that cannot be used", file.display())]
    Revocation {
        file: PathBuf,
        /// The reason.
        source: rustls::server::VerifierBuilderError,
    },
    /// The key belongs to another certificate.
    #[error("{} is not the key of the first certificate in {}", key.display(), certificate.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The files were replaced again and again while they were read.
    #[error("the files of TLS are replaced faster than they can be read")]
    Unsteady,
}
