//! The lines by which a server says that it listens.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::config::ServeConfig;
use crate::stdio;
use crate::store::Description;
use crate::store::open::Location;
use crate::tls::ClientAuth;

/// The ports of the process.
pub(super) struct Ports {
    pub(super) address: SocketAddr,
    pub(super) admin: Option<SocketAddr>,
    pub(super) tls: Spoken,
    pub(super) asks_for_credentials: bool,
}

/// How the port is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    Plain,
    Tls,
    /// Clients must show a certificate.
    MutualTls,
}

impl Spoken {
    pub(super) fn new(config: &ServeConfig) -> Self {
        match config.tls.files().map(|files| files.client.map(|client| client.auth)) {
            None => Self::Plain,
            Some(None | Some(ClientAuth::Optional)) => Self::Tls,
            Some(Some(ClientAuth::Required)) => Self::MutualTls,
        }
    }

    /// The flags by which `grpcurl` speaks so.
    fn flags(self) -> &'static str {
        match self {
            Self::Plain => "-plaintext",
            Self::Tls => "-cacert CA.pem",
            Self::MutualTls => "-cacert CA.pem -cert CLIENT.pem -key CLIENT.key",
        }
    }
}

/// Prints the address, the store, and a command to try. The address is the first line's last word.
pub(super) fn print(ports: &Ports, location: &Location, store: Option<&Description>) {
    stdio::out().say(&text(ports, location, store));
}

fn text(ports: &Ports, location: &Location, store: Option<&Description>) -> String {
    let Ports { address, admin, tls, asks_for_credentials } = ports;
    let mut out = format!("Runledger {} listens on {address}\n", env!("CARGO_PKG_VERSION"));
    let _written = match store {
        Some(Description { location, connection, not_durable, .. }) => {
            let connection = connection.as_ref().map(|connection| format!(" ({connection})")).unwrap_or_default();
            let not_durable = not_durable.as_ref().map(|why| format!(", NOT DURABLE: {why}")).unwrap_or_default();
            writeln!(out, "  store  {location}{connection}{not_durable}")
        }
        None => writeln!(out, "  store  {location}, not open yet: waiting for it"),
    };
    if let Some(admin) = admin {
        let _written = writeln!(out, "  admin  http://{admin}/livez, /readyz and /metrics");
    }
    if !asks_for_credentials {
        let sentence = "agents are believed, not authenticated: ownership keeps honest agents apart, not hostile ones";
        let _written = writeln!(out, "  {sentence}");
    }
    // What any good credential may call: a start may take an agent that this line cannot know.
    let (said, method) = if *asks_for_credentials {
        ("-H \"authorization: Bearer $(cat TOKEN_FILE)\"", "runledger.v1.IdentityService/WhoAmI")
    } else {
        ("-d '{\"task_thread_id\": \"hello\"}'", "runledger.v1.RunService/StartRun")
    };
    let _written = writeln!(out, "  try    grpcurl {} {said} {address} {method}", tls.flags());
    out
}
