//! A client, put together: its servers, how it reaches them, and who it is.

use std::sync::Arc;
use std::time::Duration;

use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Endpoint;

use crate::caller::Caller;
use crate::client::{Client, OPEN_WAIT_MAX};
use crate::connector::Route;
use crate::server_address::{Scheme, ServerAddress};
use crate::tls::{Tls, TlsFileError};
use crate::token::{Token, TokenError};

/// Interval at which a silent connection is asked whether it is still there, and the time that it has for its answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_WAIT_MAX: Duration = Duration::from_secs(10);

/// The settings of a [`Client`].
#[derive(Clone, Debug)]
pub struct Builder {
    servers: Vec<ServerAddress>,
    agent_id: Option<String>,
    namespace: Option<String>,
    tls: Option<Tls>,
    token: Option<Token>,
    token_in_plain_text: bool,
    open_wait_max: Duration,
}

/// The reason why a client cannot be made. No server was called.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// There is no server.
    #[error("no server was named")]
    NoServer,
    /// The text is no server's address.
    #[error("{text:?} is no server's address: {expected}")]
    Address {
        /// The text.
        text: String,
        /// The form that an address must have.
        expected: &'static str,
    },
    /// Some servers are to be called over TLS, and this one in plain text.
    #[error("{0} is an address in plain text, and TLS was asked for")]
    PlainText(ServerAddress),
    /// The token would cross a network for everybody to read, as the address itself says. Where only its name leads
    /// elsewhere, that is the [fault](crate::Fault::TokenInPlainText) of the call.
    #[error("the token would be sent to {0} in plain text, for everybody on the way to read")]
    TokenInPlainText(ServerAddress),
    /// The name cannot be sent.
    #[error("{0:?} is no namespace: a name is of visible ASCII")]
    Namespace(String),
    /// The name cannot be that of a server.
    #[error("{0:?} is no name that a server's certificate may have")]
    ServerName(String),
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsFileError),
    /// The token cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl Builder {
    pub(crate) fn new(servers: Vec<ServerAddress>) -> Self {
        Self {
            servers,
            agent_id: None,
            namespace: None,
            tls: None,
            token: None,
            token_in_plain_text: false,
            open_wait_max: OPEN_WAIT_MAX,
        }
    }

    /// Acts for an agent.
    #[must_use]
    pub fn agent_id(self, id: impl Into<String>) -> Self {
        Self { agent_id: Some(id.into()), ..self }
    }

    /// Calls in a namespace other than `default`.
    #[must_use]
    pub fn namespace(self, name: impl Into<String>) -> Self {
        Self { namespace: Some(name.into()), ..self }
    }

    /// Calls over TLS. An `https://` address does so by itself, with the platform's roots.
    #[must_use]
    pub fn tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Sends a bearer token with each call. In plain text, it is sent to loopback addresses only: the address counts that
    /// a connection has come to, whatever the server's name is.
    #[must_use]
    pub fn token(self, token: Token) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Sends the token in plain text also to other addresses: where something else keeps it secret on the way, such as
    /// a service mesh.
    #[must_use]
    pub fn allow_token_in_plain_text(self, allowed: bool) -> Self {
        Self { token_in_plain_text: allowed, ..self }
    }

    /// Time that a watch may take to connect and to be accepted, 10 s if not said otherwise.
    #[must_use]
    pub fn open_wait_max(self, wait: Duration) -> Self {
        Self { open_wait_max: wait, ..self }
    }

    /// The client. It reads the files once, so that a mistake shows now, and connects at its first call.
    ///
    /// # Errors
    ///
    /// The settings cannot be used, or contradict each other.
    pub fn build(self) -> Result<Client, Unusable> {
        let is_tls = self.tls.is_some() || self.servers.iter().any(|server| server.scheme() == Some(Scheme::Tls));
        let tls = is_tls.then(|| Arc::new(self.tls.unwrap_or_default()));
        if let Some(tls) = &tls {
            tls.load()?;
        }
        let loopback_only = self.token.is_some() && !is_tls && !self.token_in_plain_text;
        let mut routes = Vec::new();
        for address in self.servers {
            if is_tls && address.scheme() == Some(Scheme::Plain) {
                return Err(Unusable::PlainText(address));
            }
            if loopback_only && !address.is_loopback() {
                return Err(Unusable::TokenInPlainText(address));
            }
            routes.push(Route { loopback_only, ..route(address, tls.clone())? });
        }
        if routes.is_empty() {
            return Err(Unusable::NoServer);
        }
        let namespace = self.namespace.map(|name| match AsciiMetadataValue::try_from(&*name) {
            Ok(value) if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(value),
            Ok(_) | Err(_) => Err(Unusable::Namespace(name)),
        });
        let caller = Caller::new(self.agent_id.as_deref(), namespace.transpose()?, self.token);
        Ok(Client::of(routes, caller, self.open_wait_max))
    }
}

/// The way to a server. The connector makes TLS, so the endpoint's own address is in plain text; the calls name the
/// scheme that is spoken.
fn route(address: ServerAddress, tls: Option<Arc<Tls>>) -> Result<Route, Unusable> {
    if let Some(tls) = &tls {
        let expected = tls.expected_name(address.host());
        if rustls::pki_types::ServerName::try_from(expected).is_err() {
            return Err(Unusable::ServerName(expected.to_owned()));
        }
    }
    let place = address.place();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let of = |scheme| format!("{scheme}://{place}").parse();
    let (Ok(uri), Ok(origin)) = (of("http"), of(scheme)) else {
        return Err(Unusable::Address { text: address.to_string(), expected: "expected HOST:PORT" });
    };
    let uri: http::Uri = uri;
    let endpoint = Endpoint::from(uri)
        .origin(origin)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_WAIT_MAX);
    Ok(Route { address, endpoint, tls, loopback_only: false })
}
