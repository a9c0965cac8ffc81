//! TLS as a server speaks it: the files that say how, read again when they change; handshakes; and the trust in
//! clients, which may end while they are connected.
//!
//! - Certificate, key, client CAs and revocation lists are taken together or not at all: files that do not fit each
//!   other change nothing, and what was read before stays in force.
//! - No session is resumed where clients show certificates: a resumed session would take over the chain that it began
//!   with, unverified.
//! - A chain is verified again whenever that may have another result than before: when client CAs or revocation lists
//!   have changed, and when one of its certificates has come to its end.
//! - A client whose chain verifies no more begins no call, and its connection ends within seconds: its streams end
//!   themselves, to be resumed elsewhere.
//! - A handshake holds a turn while it computes, and none while it waits for its client; half of the processors have
//!   turns.
//!
//! Invariant: no key is in a log line, an error or a `Debug`.

mod certificate;
mod clients;
mod error;
mod expiry;
mod files;
mod guard;
mod handshake;
mod offer;
mod reload;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Semaphore, watch};

pub use self::certificate::ClientCertificate;
pub use self::error::TlsError;
pub use self::files::{ClientAuth, ClientFiles, TlsFiles};
pub use self::guard::Guard;
pub use self::handshake::{Client, Refused, Secured};
use self::offer::Offer;
use crate::clock::Clock;
use crate::domain::Time;

/// TLS as it is served now. The whole of it is replaced when the files change.
pub struct Tls {
    files: TlsFiles,
    offer: watch::Sender<Arc<Offer>>,
    /// The turns to compute: see [`handshake`].
    turns: Arc<Semaphore>,
    reloads: AtomicU64,
    failed_reloads: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// A file cannot be read, is not what it should be, or does not fit the others.
    pub fn load(files: TlsFiles, clock: Arc<dyn Clock>) -> Result<Self, TlsError> {
        let offer = Offer::new(&files, &files.read()?, &clock)?;
        Ok(Self {
            files,
            offer: watch::Sender::new(Arc::new(offer)),
            turns: Arc::new(Semaphore::new(handshake::turns())),
            reloads: AtomicU64::new(0),
            failed_reloads: AtomicU64::new(0),
            clock,
        })
    }

    /// The time at which the first of the certificates that are served comes to its end.
    #[must_use]
    pub fn not_after(&self) -> Time {
        self.offer.borrow().not_after()
    }

    /// The number of times that changed files were taken.
    #[must_use]
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// The number of times that changed files were not taken.
    #[must_use]
    pub fn failed_reloads(&self) -> u64 {
        self.failed_reloads.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}
