//! Connections to Postgres, as libpq's users know them: the connection string, and TLS by `sslmode`.
//!
//! The driver knows `disable`, `prefer` and `require`, and verifies nothing by itself. This crate takes the parameters
//! of TLS off the [connection string](Settings::parse), and makes a [`Connector`] of them, which verifies what libpq
//! verifies and reads roots and keys anew when their files change. The server's store and the measurements connect by
//! it, so a connection string means the same to both.
//!
//! Invariants:
//!
//! - No error, log line or `Debug` shows a connection string, a password or a part of a key. An error names the
//!   parameter; it shows its value only where the value is a file's path.
//! - A mode that verifies never goes on without TLS, and never with a server that it could not verify.
//! - Everything that travels to the server goes by the connector: cancellations too.
//! - The environment is not read: neither `PGSSLMODE` and its kin nor `~/.postgresql`. Only `sslrootcert=system` takes
//!   the platform's roots, which `SSL_CERT_FILE` and `SSL_CERT_DIR` may move.

mod connector;
mod dsn;
mod settings;
mod tls;
mod wire;

pub use connector::{Connected, Connector, Stream, is_for_a_person};
pub use dsn::{is_connection_string, redacted};
pub use settings::{Identity, Mode, Roots, Settings};
pub use tls::files::FilesError;
pub use wire::Wire;
