//! The driver's way into TLS: the verifier, the files, and which attempts came to a handshake.

pub(crate) mod files;
mod load;
mod name;
mod pem;
mod time;
mod verifier;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::Socket;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use self::files::FilesError;

type Inner = <MakeRustlsConnect as MakeTlsConnect<Socket>>::TlsConnect;

/// Makes the handshakes of one attempt to connect, by the roots and keys that were read last.
#[derive(Clone)]
pub(crate) struct MakeTls {
    loaded: Result<MakeRustlsConnect, Arc<FilesError>>,
    begun: Arc<AtomicBool>,
}

impl MakeTls {
    pub(crate) fn new(loaded: Result<MakeRustlsConnect, Arc<FilesError>>) -> Self {
        Self { loaded, begun: Arc::default() }
    }

    /// Whether the server that was tried last agreed to TLS: a handshake was begun with it.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}

impl MakeTlsConnect<Socket> for MakeTls {
    type Stream = <Inner as TlsConnect<Socket>>::Stream;
    type TlsConnect = Handshake;
    type Error = Arc<FilesError>;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Handshake, Arc<FilesError>> {
        self.begun.store(false, Ordering::Relaxed);
        let mut make = self.loaded.clone()?;
        let Ok(inner) = MakeTlsConnect::<Socket>::make_tls_connect(&mut make, domain);
        Ok(Handshake { inner, begun: self.begun.clone() })
    }
}

/// A handshake that may come.
pub(crate) struct Handshake {
    inner: Inner,
    begun: Arc<AtomicBool>,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = <Inner as TlsConnect<Socket>>::Stream;
    type Error = <Inner as TlsConnect<Socket>>::Error;
    type Future = <Inner as TlsConnect<Socket>>::Future;

    fn connect(self, stream: Socket) -> Self::Future {
        self.begun.store(true, Ordering::Relaxed);
        self.inner.connect(stream)
    }
}
