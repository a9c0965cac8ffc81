//! The client's side of TLS: the roots that it trusts, the certificate that it shows, and the name that it expects.
//!
//! Only the names of files are kept. The files are read for each new connection, so that a certificate that was renewed
//! is used without a restart.

mod time;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use self::time::HandshakeTime;

/// Bytes of a file that are read: far more than any chain or any set of CAs that somebody keeps in one file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// How to call servers over TLS. Without anything set, the platform's roots are trusted and no certificate is shown.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    ca_file: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

/// The reason why the files of TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    /// A file cannot be read.
    #[error("{what} {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file's purpose.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file holds nothing of what it should, or what it holds is broken.
    #[error("{what} {} {found}", path.display())]
    Unfit {
        /// The file's purpose.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What was found instead.
        found: String,
    },
    /// The certificate and the key are not of each other.
    #[error("the certificate {} and the key {} do not belong together: {source}", certificate.display(), key.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// The platform has no roots.
    #[error("no CA is trusted on this machine: give the file of the server's CA")]
    NoRoots,
}

impl Tls {
    /// Trusts the CAs of this PEM file, and no others.
    #[must_use]
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Self {
        Self { ca_file: Some(path.into()), ..self }
    }

    /// Shows the certificate chain of a PEM file, with its key in another, to servers that ask for one.
    #[must_use]
    pub fn identity_files(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { identity: Some((certificate.into(), key.into())), ..self }
    }

    /// Expects this name, or address, in the server's certificate instead of the host that is called.
    #[must_use]
    pub fn server_name(self, name: impl Into<String>) -> Self {
        Self { server_name: Some(name.into()), ..self }
    }

    /// The name that the server's certificate must have.
    pub(crate) fn expected_name<'a>(&'a self, host: &'a str) -> &'a str {
        self.server_name.as_deref().unwrap_or(host)
    }

    /// Whether a certificate is shown to servers that ask for one.
    pub(crate) fn has_identity(&self) -> bool {
        self.identity.is_some()
    }

    /// The configuration by the files as they are now. It has no session to resume.
    pub(crate) fn load(&self) -> Result<ClientConfig, TlsFileError> {
        match self.read() {
            // The pair may have been exchanged between the reads of its halves.
            Err(TlsFileError::Mismatch { .. }) => self.read(),
            read => read,
        }
    }

    fn read(&self) -> Result<ClientConfig, TlsFileError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_details(provider, Arc::new(HandshakeTime))
            .with_safe_default_protocol_versions()
            .expect("ring has cipher suites for the default versions");
        let builder = builder.with_root_certificates(self.roots()?);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates("the client certificate", certificate)?;
                let read = private_key(key)?;
                let mismatch = |source| {
                    let (certificate, key) = (certificate.clone(), key.clone());
                    TlsFileError::Mismatch { certificate, key, source }
                };
                builder.with_client_auth_cert(chain, read).map_err(mismatch)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    fn roots(&self) -> Result<RootCertStore, TlsFileError> {
        const WHAT: &str = "the CA file";
        let mut roots = RootCertStore::empty();
        match &self.ca_file {
            Some(path) => {
                for certificate in certificates(WHAT, path)? {
                    let unfit =
                        |error| unfit(WHAT, path, format!("holds a certificate that cannot be a root: {error}"));
                    roots.add(certificate).map_err(unfit)?;
                }
            }
            // A platform may have some roots that cannot be read, which says nothing of the others.
            None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        }
        if roots.is_empty() { Err(TlsFileError::NoRoots) } else { Ok(roots) }
    }
}

fn unfit(what: &'static str, path: &Path, found: impl Into<String>) -> TlsFileError {
    TlsFileError::Unfit { what, path: path.to_owned(), found: found.into() }
}

fn bytes(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsFileError> {
    // It is read for each connection, so a pipe would not do.
    let read = runledger_files::read(path, FILE_BYTES_MAX);
    read.map_err(|source| TlsFileError::Unreadable { what, path: path.to_owned(), source })
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let bytes = bytes(what, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates = certificates.map_err(|error| unfit(what, path, format!("is not sound PEM: {error}")))?;
    if certificates.is_empty() {
        return Err(unfit(what, path, "holds no certificate in PEM"));
    }
    Ok(certificates)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    const WHAT: &str = "the client key";
    // The error of the parser is not passed on: nothing of a key is to be shown.
    PrivateKeyDer::from_pem_slice(&bytes(WHAT, path)?)
        .map_err(|_error| unfit(WHAT, path, "holds no private key in PEM, or one that is encrypted"))
}
