//! Connects by the settings of a connection string, and cancels by them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::{error, fmt};

use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{CancelToken, Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::settings::{Mode, Settings};
use crate::tls::files::{Files, FilesError};
use crate::wire::Wire;

/// The stream of a connection with TLS.
pub type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// A connection that was made.
pub struct Connected {
    /// The client's half.
    pub client: Client,
    /// The half that must be driven.
    pub connection: Connection<Socket, Stream>,
    /// How it is protected.
    pub wire: Wire,
}

/// Connects by the settings of a connection string. A clone shares the roots and keys that were read.
#[derive(Clone)]
pub struct Connector(Arc<Shared>);

struct Shared {
    settings: Settings,
    files: Files,
    /// The protection that was logged last, for connections that others could read.
    logged: AtomicU8,
}

impl Connector {
    /// Makes a connector; neither files nor servers are looked at yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let files = Files::new(settings.clone());
        Self(Arc::new(Shared { settings, files, logged: AtomicU8::new(0) }))
    }

    /// The driver's part of the settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.0.settings.config
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, cannot be verified, or refuses; or the [files](FilesError) cannot be used.
    pub async fn connect(&self) -> Result<Connected, Error> {
        let Settings { mode, .. } = self.0.settings;
        let connected = if self.0.settings.is_socket() {
            self.attempt(SslMode::Disable).await.map_err(|(error, _)| error)
        } else {
            match mode {
                Mode::Disable => self.attempt(SslMode::Disable).await.map_err(|(error, _)| error),
                Mode::Allow => self.with_or_without([SslMode::Disable, SslMode::Require]).await,
                Mode::Prefer => self.with_or_without([SslMode::Prefer, SslMode::Disable]).await,
                Mode::Require | Mode::VerifyCa | Mode::VerifyFull => {
                    self.attempt(SslMode::Require).await.map_err(|(error, _)| error)
                }
            }
        };
        let connected = connected?;
        self.tell(connected.wire);
        Ok(connected)
    }

    /// Asks the server to end a session's statement, by a connection that is protected as the session's is.
    ///
    /// # Errors
    ///
    /// See [`connect`](Self::connect).
    pub async fn cancel(&self, token: CancelToken) -> Result<(), Error> {
        token.cancel_query(self.0.files.tls().await).await
    }

    /// Tries twice, as libpq does in its modes that want a connection of either kind. The second attempt is made only
    /// where TLS may be the reason of the first one's failure.
    async fn with_or_without(&self, [first, second]: [SslMode; 2]) -> Result<Connected, Error> {
        let (error, begun) = match self.attempt(first).await {
            Ok(connected) => return Ok(connected),
            Err(failed) => failed,
        };
        let refused = error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
        let broken = begun && error.as_db_error().is_none();
        if !refused && !broken {
            return Err(error);
        }
        // The first failure says more than that of an attempt which the user only allowed.
        self.attempt(second).await.map_err(|_| error)
    }

    /// Makes one attempt. A failure comes with whether there was a handshake.
    async fn attempt(&self, mode: SslMode) -> Result<Connected, (Error, bool)> {
        let tls = self.0.files.tls().await;
        let mut config = self.0.settings.config.clone();
        config.ssl_mode(mode);
        match config.connect(tls.clone()).await {
            Ok((client, connection)) => {
                let wire = if tls.has_begun() { self.protected() } else { self.plain() };
                Ok(Connected { client, connection, wire })
            }
            Err(error) => Err((error, tls.has_begun())),
        }
    }

    fn plain(&self) -> Wire {
        if self.0.settings.is_socket() { Wire::Socket } else { Wire::Plain }
    }

    fn protected(&self) -> Wire {
        match self.0.settings.mode {
            Mode::Disable | Mode::Allow | Mode::Prefer | Mode::Require => Wire::Unverified,
            Mode::VerifyCa => Wire::Verified,
            Mode::VerifyFull => Wire::NameVerified,
        }
    }

    /// Logs, once and whenever it changes, that others on the way could read or take over the connection.
    fn tell(&self, wire: Wire) {
        let seen = wire as u8 + 1;
        if self.0.logged.swap(seen, Ordering::Relaxed) == seen || self.0.settings.is_here() {
            return;
        }
        match wire {
            Wire::Plain => tracing::warn!(
                sslmode = self.0.settings.mode.name(),
                "the connection to Postgres is not encrypted: set sslmode=verify-full and sslrootcert"
            ),
            Wire::Unverified => tracing::warn!(
                sslmode = self.0.settings.mode.name(),
                "the connection to Postgres is encrypted, but the server is not verified: set sslmode=verify-full and \
                 sslrootcert"
            ),
            Wire::Socket | Wire::Verified | Wire::NameVerified => {}
        }
    }
}

/// Whether a failure to connect is for a person to mend: the files cannot be used, or this or the other side found the
/// certificate, or the way to speak TLS, wrong.
#[must_use]
pub fn is_for_a_person(error: &Error) -> bool {
    let mut cause: Option<&(dyn error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<FilesError>() || error.is::<Arc<FilesError>>() || error.is::<rustls::Error>() {
            return true;
        }
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = inner.map(|inner| inner as &(dyn error::Error + 'static)).or_else(|| error.source());
    }
    false
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.0.settings).finish()
    }
}
