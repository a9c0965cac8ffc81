//! The roots and keys as they were read last. They are read anew when a connection is made, so that a certificate which
//! was rotated needs no restart and no new pool.
//!
//! The bytes are compared, and neither times nor inodes: Kubernetes swaps a link to a directory, and the times of what
//! it leads to may be anything. Where new files cannot be used, as when certificate and key were seen in the middle of
//! a rotation, the old ones stay in use, and the next look is as soon as any.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::MakeTls;
use super::load::{Digest, load};
use crate::settings::{Roots, Settings};

/// The shortest time between two looks at files.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);

/// The platform's roots are many, and change with the system's updates.
const SYSTEM_LOOK_INTERVAL: Duration = Duration::from_mins(1);

/// The reason why the files that a connection string names cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A file cannot be read.
    #[error("{parameter}: {} cannot be read", path.display())]
    Unreadable {
        /// The parameter that names it.
        parameter: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Others than its owner can read the key.
    #[error("sslkey: {} has mode {mode:04o}, and others may read it: give it mode 0600, or 0640 where root owns it", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file does not have what it should have, in PEM.
    #[error("{parameter}: {} has no {what} in PEM that can be read", path.display())]
    Pem {
        /// The parameter that names it.
        parameter: &'static str,
        /// The file.
        path: PathBuf,
        /// What it should have.
        what: &'static str,
    },
    /// A certificate or list that cannot be used, or a key of another certificate.
    #[error("{parameter}: the files cannot be used")]
    Unusable {
        /// The parameter that names it.
        parameter: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The platform has no roots.
    #[error("sslrootcert=system: the platform has no roots that can be read; its package is often ca-certificates")]
    NoSystemRoots,
}

/// The files of one connection string, and what was made of them.
pub(crate) struct Files {
    settings: Settings,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    loaded: Option<Loaded>,
    looked_at: Option<Instant>,
    /// The last failure that was logged.
    logged: Option<String>,
}

/// What was made of the files.
#[derive(Clone)]
pub(super) struct Loaded {
    pub(super) make: MakeRustlsConnect,
    pub(super) digest: Digest,
}

impl Files {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, state: Mutex::default() }
    }

    /// The handshakes of an attempt that begins now.
    pub(crate) async fn tls(&self) -> MakeTls {
        let mut state = self.state.lock().await;
        if state.is_due(self.interval()) {
            state.looked_at = Some(Instant::now());
            let (settings, known) = (self.settings.clone(), state.loaded.as_ref().map(|loaded| loaded.digest));
            // A panic in it is a fault, and no reason to be without the files that are known.
            let found = spawn_blocking(move || load(&settings, known)).await;
            match found
                .unwrap_or_else(|panicked| Err(FilesError::Unusable { parameter: "sslmode", source: panicked.into() }))
            {
                Ok(None) => state.logged = None,
                Ok(Some(loaded)) => {
                    if state.loaded.is_some() {
                        tracing::info!("the roots or keys for Postgres were read anew: new connections use them");
                    }
                    state.loaded = Some(loaded);
                    state.logged = None;
                }
                Err(error) if state.loaded.is_some() => state.keeps_the_old(&error),
                Err(error) => {
                    state.looked_at = None;
                    return MakeTls::new(Err(Arc::new(error)));
                }
            }
        }
        let loaded = state.loaded.as_ref().expect("a look at the files that fails without any returns before");
        MakeTls::new(Ok(loaded.make.clone()))
    }

    /// The time between two looks; none where there is nothing to look at.
    fn interval(&self) -> Option<Duration> {
        let Settings { roots, identity, .. } = &self.settings;
        match (roots, identity) {
            (None, None) => None,
            (Some(Roots::System), None) => Some(SYSTEM_LOOK_INTERVAL),
            (Some(Roots::System | Roots::File(_)) | None, _) => Some(LOOK_INTERVAL),
        }
    }
}

impl State {
    fn is_due(&self, interval: Option<Duration>) -> bool {
        match (self.looked_at, interval) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(at), Some(interval)) => at.elapsed() >= interval,
        }
    }

    fn keeps_the_old(&mut self, error: &FilesError) {
        let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
        let said = format!("{error}{source}");
        if self.logged.as_ref() != Some(&said) {
            tracing::warn!(error = said, "new roots or keys for Postgres cannot be used: the old ones stay in use");
            self.logged = Some(said);
        }
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("settings", &self.settings).finish_non_exhaustive()
    }
}
