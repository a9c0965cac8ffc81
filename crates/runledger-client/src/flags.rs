//! The flags by which a program is told how to reach servers and who it is there, for command lines that are made by
//! clap. No flag takes a secret: other users of the machine see a program's flags.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{BoolishValueParser, NonEmptyStringValueParser};

use crate::builder::{Builder, Unusable};
use crate::client::Client;
use crate::server_address::{Scheme, ServerAddress};
use crate::tls::Tls;
use crate::token::Token;

/// The server that is called where none is named.
pub const SERVER_DEFAULT: &str = "127.0.0.1:50051";

/// The heading of these flags in a help.
pub const HEADING: &str = "Connection";

/// How servers are reached, and who calls them.
///
/// The variables of TLS are not named `RUNLEDGER_TLS_*`: those are the server's own, and both may stand in the
/// environment of one container.
#[derive(Args, Clone, Debug, Default)]
pub struct Access {
    /// Call over TLS. The other flags of TLS and an https:// server imply it
    #[arg(long, env = "RUNLEDGER_CLIENT_TLS", value_parser = BoolishValueParser::new(), help_heading = HEADING)]
    pub tls: bool,

    /// The CAs that may vouch for the server, in PEM [default: those of this machine]
    #[arg(long, env = "RUNLEDGER_CLIENT_TLS_CA", value_name = "FILE", help_heading = HEADING)]
    pub tls_ca: Option<PathBuf>,

    /// The certificate to show to the server, with its chain, in PEM
    #[arg(long, env = "RUNLEDGER_CLIENT_TLS_CERT", value_name = "FILE", requires = "tls_key",
          help_heading = HEADING)]
    pub tls_cert: Option<PathBuf>,

    /// Its key, in PEM
    #[arg(long, env = "RUNLEDGER_CLIENT_TLS_KEY", value_name = "FILE", requires = "tls_cert",
          help_heading = HEADING)]
    pub tls_key: Option<PathBuf>,

    /// The name that the server's certificate must have [default: the host that is called]
    #[arg(long, env = "RUNLEDGER_CLIENT_TLS_SERVER_NAME", value_name = "NAME",
          value_parser = NonEmptyStringValueParser::new(), help_heading = HEADING)]
    pub tls_server_name: Option<String>,

    /// The file with the bearer token, read again when it changes. `RUNLEDGER_TOKEN` has the token itself
    #[arg(long, env = "RUNLEDGER_TOKEN_FILE", value_name = "FILE", help_heading = HEADING)]
    pub token_file: Option<PathBuf>,

    /// Send the token in plain text also to addresses other than loopback
    #[arg(long, env = "RUNLEDGER_ALLOW_PLAINTEXT_TOKEN", value_parser = BoolishValueParser::new(), help_heading = HEADING)]
    pub allow_plaintext_token: bool,

    /// The namespace to call in [default: default]
    #[arg(long, env = "RUNLEDGER_NAMESPACE", value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), help_heading = HEADING)]
    pub namespace: Option<String>,

    /// The token by its value, from elsewhere than the command line. A token file goes before it.
    #[arg(skip)]
    pub token: Option<Token>,
}

impl Access {
    /// The same, with what it leaves open taken from `lower`: a certificate with its key, and a token however it is
    /// given. Where all `servers` are `http://` addresses, nothing of TLS is taken.
    #[must_use]
    pub fn or(self, lower: Self, servers: &[ServerAddress]) -> Self {
        let plain = !servers.is_empty() && servers.iter().all(|server| server.scheme() == Some(Scheme::Plain));
        let lower = if plain { lower.without_tls() } else { lower };
        let (tls_cert, tls_key) =
            if self.tls_cert.is_some() { (self.tls_cert, self.tls_key) } else { (lower.tls_cert, lower.tls_key) };
        let has_token = self.token_file.is_some() || self.token.is_some();
        let (token_file, token) =
            if has_token { (self.token_file, self.token) } else { (lower.token_file, lower.token) };
        Self {
            tls: self.tls || lower.tls,
            tls_ca: self.tls_ca.or(lower.tls_ca),
            tls_cert,
            tls_key,
            tls_server_name: self.tls_server_name.or(lower.tls_server_name),
            token_file,
            allow_plaintext_token: self.allow_plaintext_token || lower.allow_plaintext_token,
            namespace: self.namespace.or(lower.namespace),
            token,
        }
    }

    fn without_tls(self) -> Self {
        Self { tls: false, tls_ca: None, tls_cert: None, tls_key: None, tls_server_name: None, ..self }
    }

    /// A client of these servers, or of the default one where there are none.
    ///
    /// # Errors
    ///
    /// The token's file cannot be read, or holds no token.
    pub fn builder(&self, servers: &[ServerAddress]) -> Result<Builder, Unusable> {
        let default = || vec![SERVER_DEFAULT.parse().expect("it is an address")];
        let servers = if servers.is_empty() { default() } else { servers.to_vec() };
        let mut builder = Client::builder(servers).allow_token_in_plain_text(self.allow_plaintext_token);
        if let Some(tls) = self.of_tls() {
            builder = builder.tls(tls);
        }
        if let Some(token) = self.token()? {
            builder = builder.token(token);
        }
        if let Some(namespace) = &self.namespace {
            builder = builder.namespace(namespace);
        }
        Ok(builder)
    }

    fn token(&self) -> Result<Option<Token>, Unusable> {
        match &self.token_file {
            Some(path) => Ok(Some(Token::of_file(path)?)),
            None => Ok(self.token.clone()),
        }
    }

    fn of_tls(&self) -> Option<Tls> {
        let is_asked_for =
            self.tls || self.tls_ca.is_some() || self.tls_cert.is_some() || self.tls_server_name.is_some();
        let mut tls = Tls::default();
        if let Some(path) = &self.tls_ca {
            tls = tls.ca_file(path);
        }
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            tls = tls.identity_files(certificate, key);
        }
        if let Some(name) = &self.tls_server_name {
            tls = tls.server_name(name);
        }
        is_asked_for.then_some(tls)
    }
}
