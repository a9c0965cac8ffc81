//! The flags that name the server to call, how it is reached and who calls it, and the time to wait for an answer.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tokio::time::Instant;

use super::context::{self, Context};
use super::ending::Stop;
use super::fields::time_limit;
use crate::config;
use runledger_client::flags::Access;
use runledger_client::{Builder, Call, Client, ServerAddress, Unusable};

/// Time that a call may take where it has no limit of its own.
pub(super) const CALL_WAIT_MAX: Duration = Duration::from_secs(10);

/// The server that a command calls, and who calls it.
#[derive(Args, Debug)]
pub(super) struct Server {
    /// The server's address; or several with commas, replicas of one ledger: the next is called where one does not
    /// serve [default: 127.0.0.1:50051]
    #[arg(
        id = "server",
        long = "server",
        env = "RUNLEDGER_SERVER",
        value_name = "HOST:PORT",
        value_delimiter = ',',
        help_heading = "Connection"
    )]
    pub(super) addresses: Vec<ServerAddress>,

    /// The agent that acts: it owns what it starts, and others' runs are closed to it
    #[arg(long = "as", env = "RUNLEDGER_AGENT_ID", value_name = "AGENT", value_parser = NonEmptyStringValueParser::new(),
          help_heading = "Connection")]
    pub(super) acting_agent: Option<String>,

    #[command(flatten)]
    pub(super) selected: Selected,
}

/// The flags that say how servers are reached, without any server.
#[derive(Args, Debug)]
pub(super) struct Selected {
    /// The named context that says what the flags and the environment do not [default: the current one]
    #[arg(long, env = "RUNLEDGER_CONTEXT", value_name = "NAME", help_heading = "Connection")]
    context: Option<String>,

    #[command(flatten)]
    pub(super) access: Access,
}

/// What flags, environment and context come to.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) servers: Vec<ServerAddress>,
    pub(super) access: Access,
    acting_agent: Option<String>,
    context: Option<String>,
}

impl Server {
    /// A client by the flags, the environment and the context.
    pub(super) fn client(&self) -> Result<Client, Stop> {
        self.target()?.client()
    }

    pub(super) fn target(&self) -> Result<Target, Stop> {
        let target = self.selected.target(&self.addresses)?;
        Ok(Target { acting_agent: self.acting_agent.clone().or(target.acting_agent), ..target })
    }
}

impl Selected {
    /// How these servers are reached; those of the context where there are none.
    pub(super) fn target(&self, servers: &[ServerAddress]) -> Result<Target, Stop> {
        target(self.context.as_deref(), servers, &self.access)
    }

    /// A client of one server, for a command that asks each by itself.
    pub(super) fn client_of(&self, server: &ServerAddress) -> Result<Client, Stop> {
        self.target(std::slice::from_ref(server))?.client()
    }
}

/// What the flags come to with the token of the environment, and with the context of that name or the current one.
pub(super) fn target(context: Option<&str>, servers: &[ServerAddress], access: &Access) -> Result<Target, Stop> {
    let token = if access.token_file.is_some() { None } else { config::token().map_err(Stop::Usage)? };
    let access = Access { token, ..access.clone() };
    let Some((name, context)) = context::selected(context).map_err(|error| Stop::Usage(error.to_string()))? else {
        return Ok(Target { servers: servers.to_vec(), access, acting_agent: None, context: None });
    };
    let Context { servers: of_context, acting_agent, .. } = &context;
    let servers = if servers.is_empty() { of_context.clone() } else { servers.to_vec() };
    let access = access.or(context.access(), &servers);
    Ok(Target { servers, access, acting_agent: acting_agent.clone(), context: Some(name) })
}

impl Target {
    pub(super) fn client(&self) -> Result<Client, Stop> {
        self.builder()?.build().map_err(|error| unusable(&error))
    }

    fn builder(&self) -> Result<Builder, Stop> {
        let builder = self.access.builder(&self.servers).map_err(|error| unusable(&error))?;
        Ok(match &self.acting_agent {
            Some(id) => builder.agent_id(id),
            None => builder,
        })
    }

    /// The variables by which a program that is run calls the same servers in the same way. A token by its value is
    /// not among them: it stands in the environment already.
    pub(super) fn environment(&self, client: &Client) -> Vec<(&'static str, OsString)> {
        let Access { tls, allow_plaintext_token, .. } = self.access;
        let text = |text: &Option<String>| text.clone().map(OsString::from);
        let file = |path: &Option<PathBuf>| path.as_deref().map(|path| absolute(path).into_os_string());
        let yes = |is_on: bool| is_on.then(|| OsString::from("true"));
        let variables = [
            ("RUNLEDGER_SERVER", Some(OsString::from(client.servers()))),
            ("RUNLEDGER_AGENT_ID", text(&self.acting_agent)),
            ("RUNLEDGER_CONTEXT", text(&self.context)),
            ("RUNLEDGER_CLIENT_TLS", yes(tls)),
            ("RUNLEDGER_CLIENT_TLS_CA", file(&self.access.tls_ca)),
            ("RUNLEDGER_CLIENT_TLS_CERT", file(&self.access.tls_cert)),
            ("RUNLEDGER_CLIENT_TLS_KEY", file(&self.access.tls_key)),
            ("RUNLEDGER_CLIENT_TLS_SERVER_NAME", text(&self.access.tls_server_name)),
            ("RUNLEDGER_TOKEN_FILE", file(&self.access.token_file)),
            ("RUNLEDGER_ALLOW_PLAINTEXT_TOKEN", yes(allow_plaintext_token)),
            ("RUNLEDGER_NAMESPACE", text(&self.access.namespace)),
        ];
        variables.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// The path from the root, for a process that works elsewhere.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_error| path.to_owned())
}

/// Settings that cannot be used, with the flags that would change it.
pub(super) fn unusable(error: &Unusable) -> Stop {
    let flags = match error {
        Unusable::TokenInPlainText(_) => {
            "; --tls calls over TLS, and --allow-plaintext-token sends the token all the same"
        }
        Unusable::PlainText(_) => "; name it without http://, or leave out the flags of TLS",
        Unusable::Tls(runledger_client::TlsFileError::NoRoots) => ": --tls-ca names it",
        Unusable::NoServer
        | Unusable::Address { .. }
        | Unusable::Namespace(_)
        | Unusable::ServerName(_)
        | Unusable::Tls(_)
        | Unusable::Token(_) => "",
    };
    Stop::Usage(format!("{error}{flags}"))
}

/// The server of a command whose calls are answered at once.
#[derive(Args, Debug)]
pub(super) struct Caller {
    #[command(flatten)]
    server: Server,

    /// Time to wait for an answer: seconds, or such as 500ms or 2m
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = time_limit, help_heading = "Connection")]
    timeout: Duration,
}

impl Caller {
    pub(super) fn client(&self) -> Result<Client, Stop> {
        self.server.client()
    }

    /// Makes a call.
    pub(super) async fn ask<C: Call>(&self, client: &mut Client, call: &C) -> Result<C::Answer, Stop> {
        Ok(client.ask(call, Instant::now() + self.timeout).await?)
    }
}

/// The server of a command that watches.
#[derive(Args, Debug)]
pub(super) struct Watched {
    #[command(flatten)]
    server: Server,

    /// Time in which the server must take the watch, at first and after each cut: seconds, or such as 500ms or 2m
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = time_limit, help_heading = "Connection")]
    timeout: Duration,
}

impl Watched {
    pub(super) fn client(&self) -> Result<Client, Stop> {
        self.server.target()?.builder()?.open_wait_max(self.timeout).build().map_err(|error| unusable(&error))
    }
}
