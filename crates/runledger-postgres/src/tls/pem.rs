//! The files of TLS, as bytes and as certificates. No error repeats anything of a file.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use super::files::FilesError;

/// The largest file that is read: the platform's roots take a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

const OTHERS: u32 = 0o007;
const GROUP: u32 = 0o070;
const GROUP_WRITES_OR_RUNS: u32 = 0o030;

pub(super) fn read(parameter: &'static str, path: &Path) -> Result<Vec<u8>, FilesError> {
    let read = runledger_files::read(path, FILE_BYTES_MAX);
    read.map_err(|source| FilesError::Unreadable { parameter, path: path.to_owned(), source })
}

/// Reads a key that nobody else can read, by libpq's rule: a file that root owns may be read by its group, as one that
/// Kubernetes mounts for an `fsGroup` is.
pub(super) fn read_key(path: &Path) -> Result<Vec<u8>, FilesError> {
    let parameter = "sslkey";
    let found = fs::metadata(path);
    let found = found.map_err(|source| FilesError::Unreadable { parameter, path: path.to_owned(), source })?;
    let closed_to = if found.uid() == 0 { GROUP_WRITES_OR_RUNS | OTHERS } else { GROUP | OTHERS };
    if found.mode() & closed_to != 0 {
        return Err(FilesError::Exposed { path: path.to_owned(), mode: found.mode() & 0o777 });
    }
    read(parameter, path)
}

pub(super) fn certificates(
    parameter: &'static str,
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, FilesError> {
    all(bytes).ok_or_else(|| FilesError::Pem { parameter, path: path.to_owned(), what: "certificate" })
}

pub(super) fn revocations(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, FilesError> {
    let what = "revocation list";
    all(bytes).ok_or_else(|| FilesError::Pem { parameter: "sslcrl", path: path.to_owned(), what })
}

pub(super) fn key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, FilesError> {
    let what = "private key without a passphrase";
    // What the parser says may quote a line of the file.
    PrivateKeyDer::from_pem_slice(bytes).map_err(|_| FilesError::Pem {
        parameter: "sslkey",
        path: path.to_owned(),
        what,
    })
}

/// All objects of a kind; none when there is none, or one that cannot be read.
fn all<T: PemObject>(bytes: &[u8]) -> Option<Vec<T>> {
    let found: Vec<T> = T::pem_slice_iter(bytes).collect::<Result<_, _>>().ok()?;
    (!found.is_empty()).then_some(found)
}
