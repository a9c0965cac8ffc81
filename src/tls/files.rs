//! The files of a server's TLS, read so that they belong together.
//!
//! Kubernetes replaces the files of a secret by one step: each is a link through the folder `..data`, which is itself a
//! link, and comes to mean another folder. So the links are followed before the files are read and once more after it,
//! and the files are read again where that gives different places.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};

use super::TlsError;

/// Bytes of a file at most.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The same for revocation lists.
const CRL_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Attempts to read files that are being replaced.
const ATTEMPTS: usize = 8;

/// The files of a server's TLS, all PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and its root.
    pub certificate: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
    /// How clients show certificates, if they do.
    pub client: Option<ClientFiles>,
}

/// The files by which clients' certificates are verified.
#[derive(Clone, Debug)]
pub struct ClientFiles {
    /// The CAs that are trusted.
    pub ca: PathBuf,
    /// The lists of certificates that were revoked.
    pub crl: Option<PathBuf>,
    /// Whether every client must show a certificate.
    pub auth: ClientAuth,
}

/// Whether every client must show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ClientAuth {
    /// A client without a certificate is refused.
    #[default]
    Required,
    /// A client may come without a certificate. One that shows a certificate must show a good one.
    Optional,
}

/// The number that tells contents apart.
pub(super) type Digest = [u8; 32];

/// The contents of the files. Holds a key, so it has no `Debug`.
pub(super) struct Contents {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) client_ca: Option<Vec<u8>>,
    pub(super) client_crl: Option<Vec<u8>>,
}

impl Contents {
    /// Tells these contents from any others.
    pub(super) fn digest(&self) -> Digest {
        digest([Some(&self.certificate), Some(&self.key), self.client_ca.as_ref(), self.client_crl.as_ref()])
    }

    /// The same for that part by which clients are verified.
    pub(super) fn digest_of_trust(&self) -> Digest {
        digest([self.client_ca.as_ref(), self.client_crl.as_ref()])
    }
}

fn digest<const N: usize>(parts: [Option<&Vec<u8>>; N]) -> Digest {
    let mut context = Context::new(&SHA256);
    for part in parts {
        // Each part comes after its length, so that no two contents have the same bytes.
        context.update(&part.map_or(0, |part| part.len() as u64 + 1).to_be_bytes());
        context.update(part.map_or(&[], Vec::as_slice));
    }
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl TlsFiles {
    /// Reads all files as they were at one time.
    ///
    /// The files are read whole each time: they are small, and a look at the time of their change would miss one that
    /// came soon after another.
    pub(super) fn read(&self) -> Result<Contents, TlsError> {
        for _ in 0..ATTEMPTS {
            let places = self.places()?;
            let contents = Self::read_at(&places);
            if self.places()? == places {
                return contents;
            }
        }
        Err(TlsError::Unsteady)
    }

    /// The files that the paths mean now: certificate, key, CAs, revocation lists.
    fn places(&self) -> Result<[Option<PathBuf>; 4], TlsError> {
        let client = self.client.as_ref();
        let paths =
            [Some(&self.certificate), Some(&self.key), client.map(|it| &it.ca), client.and_then(|it| it.crl.as_ref())];
        let mut places = [const { None }; 4];
        for (place, path) in places.iter_mut().zip(paths) {
            *place = path.map(|path| fs::canonicalize(path).map_err(|source| unreadable(path, source))).transpose()?;
        }
        Ok(places)
    }

    fn read_at([certificate, key, ca, crl]: &[Option<PathBuf>; 4]) -> Result<Contents, TlsError> {
        let read = |path: &Option<PathBuf>, max| path.as_deref().map(|path| read(path, max)).transpose();
        Ok(Contents {
            certificate: read(certificate, FILE_BYTES_MAX)?.unwrap_or_default(),
            key: read(key, FILE_BYTES_MAX)?.unwrap_or_default(),
            client_ca: read(ca, FILE_BYTES_MAX)?,
            client_crl: read(crl, CRL_BYTES_MAX)?,
        })
    }
}

fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, TlsError> {
    let bytes = runledger_files::read(path, bytes_max).map_err(|source| unreadable(path, source))?;
    if bytes.is_empty() {
        return Err(TlsError::Content { file: path.to_owned(), what: "is empty" });
    }
    Ok(bytes)
}

fn unreadable(path: &Path, source: io::Error) -> TlsError {
    TlsError::Unreadable { file: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tempfile::TempDir;

    use super::*;

    /// Files as Kubernetes shows those of a secret.
    fn secret(root: &Path) -> TlsFiles {
        for version in ["..1", "..2"] {
            fs::create_dir(root.join(version)).unwrap();
            for name in ["tls.crt", "tls.key"] {
                fs::write(root.join(version).join(name), version).unwrap();
            }
        }
        symlink("..1", root.join("..data")).unwrap();
        for name in ["tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(name), root.join(name)).unwrap();
        }
        TlsFiles { certificate: root.join("tls.crt"), key: root.join("tls.key"), client: None }
    }

    #[test]
    fn certificate_and_key_come_from_one_version_of_a_secret() {
        const READS: usize = 400;
        let root = TempDir::new().unwrap();
        let files = secret(root.path());
        let (begun, turned) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let reached = |count: &AtomicUsize, least| {
            while count.load(Ordering::Acquire) < least {
                std::thread::yield_now();
            }
        };
        let mut seen = [0; 2];
        std::thread::scope(|scope| {
            // The version turns once from the beginning of a read to that of the next, at any moment.
            scope.spawn(|| {
                for turn in 0..READS {
                    reached(&begun, turn + 1);
                    let next = if turn % 2 == 0 { "..2" } else { "..1" };
                    symlink(next, root.path().join("..next")).unwrap();
                    fs::rename(root.path().join("..next"), root.path().join("..data")).unwrap();
                    turned.store(turn + 1, Ordering::Release);
                }
            });
            for turns in 0..READS {
                reached(&turned, turns);
                begun.store(turns + 1, Ordering::Release);
                let read = files.read().unwrap();
                assert_eq!(read.certificate, read.key);
                seen[usize::from(read.key == b"..2")] += 1;
            }
        });
        assert!(seen.iter().all(|times| *times > 0), "both versions were read: {seen:?}");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let root = TempDir::new().unwrap();
        let files = secret(root.path());
        let key = root.path().join("..1/tls.key");
        let error = |files: &TlsFiles| {
            let error = files.read().err().expect("it cannot be read");
            crate::telemetry::chain(&error)
        };
        fs::write(&key, "").unwrap();
        assert!(error(&files).ends_with("..1/tls.key is empty"), "{}", error(&files));
        fs::write(&key, vec![b'x'; usize::try_from(FILE_BYTES_MAX).unwrap() + 1]).unwrap();
        assert!(error(&files).contains("more than 1048576 bytes"), "{}", error(&files));
        fs::remove_file(&key).unwrap();
        assert!(error(&files).contains("tls.key") && error(&files).contains("No such file"), "{}", error(&files));
        fs::create_dir(&key).unwrap();
        assert!(error(&files).ends_with("it is a folder and no file"), "{}", error(&files));
    }

    #[test]
    fn contents_are_told_apart_by_their_parts() {
        let contents = |ca: Option<&[u8]>, crl: Option<&[u8]>| Contents {
            certificate: b"c".to_vec(),
            key: b"k".to_vec(),
            client_ca: ca.map(<[u8]>::to_vec),
            client_crl: crl.map(<[u8]>::to_vec),
        };
        let all = [contents(None, None), contents(Some(b"ab"), None), contents(Some(b"a"), Some(b"b"))];
        for (index, one) in all.iter().enumerate() {
            for (other_index, other) in all.iter().enumerate() {
                assert_eq!(one.digest() == other.digest(), index == other_index);
                assert_eq!(one.digest_of_trust() == other.digest_of_trust(), index == other_index);
            }
        }
    }
}
