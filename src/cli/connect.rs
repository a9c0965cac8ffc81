//! The flags that name the server to call, how it is reached and who calls it, and the time to wait for an answer.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::context::{self, Context};
use super::exit::{Stop, say};
use crate::config;
use crate::text::limit;
use runledger_client::flags::Access;
use runledger_client::{Builder, Client, ServerAddress, Unary, Unusable};

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
    /// The named context that says what the flags do not, whatever the environment says: `none` for none [default: the
    /// current one, beneath the environment]
    #[arg(long, env = "RUNLEDGER_CONTEXT", value_name = "NAME", help_heading = "Connection")]
    context: Option<String>,

    #[command(flatten)]
    pub(super) access: Access,
}

/// What flags, environment and context come to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) servers: Vec<ServerAddress>,
    pub(super) access: Access,
    acting_agent: Option<String>,
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

    /// These servers; where there are none, those of the context that is named.
    pub(super) fn or_of_the_named(&self, servers: Vec<ServerAddress>) -> Result<Vec<ServerAddress>, Stop> {
        let is_named = self.context.as_deref().is_some_and(|name| name != context::NONE);
        if servers.is_empty() && is_named { Ok(self.target(&servers)?.servers) } else { Ok(servers) }
    }

    /// A client of one server, for a command that asks each by itself.
    pub(super) fn client_of(&self, server: &ServerAddress) -> Result<Client, Stop> {
        self.target(std::slice::from_ref(server))?.client()
    }
}

/// What the flags come to with the context of that name, which is final; else with the environment, and with the current
/// context beneath both.
pub(super) fn target(context: Option<&str>, servers: &[ServerAddress], access: &Access) -> Result<Target, Stop> {
    let is_named = context.is_some_and(|name| name != context::NONE);
    let selected = context::selected(context).map_err(|error| Stop::Usage(error.to_string()))?;
    let token = if is_named || access.token_file.is_some() { None } else { config::token().map_err(Stop::Usage)? };
    if !is_named && access.token_file.as_deref().is_some_and(config::is_before_a_token) {
        say_once(
            "RUNLEDGER_TOKEN_FILE and RUNLEDGER_TOKEN are both set: the file goes before, and the other is left aside",
        );
    }
    let access = Access { token, ..access.clone() };
    let Some((name, context)) = selected else {
        return Ok(Target { servers: servers.to_vec(), access, acting_agent: None });
    };
    if is_named {
        say_what_is_left_aside(&name, &context);
    }
    let servers = match servers {
        [] if is_named => context.servers_or_ambient().map_err(Stop::Usage)?,
        [] => context.servers.clone(),
        servers => servers.to_vec(),
    };
    let has_token = access.token_file.is_some() || access.token.is_some();
    let access = access.or(of_context(&name, &context, &servers, has_token), &servers);
    Ok(Target { servers, access, acting_agent: context.acting_agent })
}

/// What a context says of these servers. Of other servers than its own, nobody has said that they may have its token, nor
/// that nobody listens on the way to them.
fn of_context(name: &str, context: &Context, servers: &[ServerAddress], has_token: bool) -> Access {
    let access = context.access();
    if context.has(servers) {
        return access;
    }
    if access.token_file.is_some() && !has_token {
        let servers = servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        say_once(&format!(
            "the token of the context {name:?} is for its own servers, and is not sent to {servers}: --token-file names \
             one for it"
        ));
    }
    Access { token_file: None, allow_plaintext_token: false, ..access }
}

fn say_what_is_left_aside(name: &str, context: &Context) {
    let variables = context.left_aside();
    if !variables.is_empty() {
        let (verb, them) = if variables.len() == 1 { ("says", "is") } else { ("say", "are") };
        let variables = variables.join(", ");
        say_once(&format!("the context {name:?} is named, so {variables} {verb} otherwise and {them} left aside"));
    }
}

/// Says a sentence, unless it was the last: a command that asks several servers comes here for each.
fn say_once(sentence: &str) {
    static LAST: Mutex<String> = Mutex::new(String::new());
    let mut last = LAST.lock();
    if *last != sentence {
        say(sentence);
        sentence.clone_into(&mut last);
    }
}

impl Target {
    /// The same in a namespace.
    pub(super) fn within(self, namespace: &str) -> Self {
        Self { access: Access { namespace: Some(namespace.to_owned()), ..self.access }, ..self }
    }

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

    /// The variables by which a program that is run calls the same servers in the same way: those without a value are
    /// unset, and no context has a say in it. A token by its value is not among them: it stands in the environment
    /// already, and is unset where it was left aside.
    pub(super) fn environment(&self, client: &Client) -> Vec<(&'static str, Option<OsString>)> {
        let Access { tls, allow_plaintext_token, .. } = self.access;
        let text = |text: &Option<String>| text.clone().map(OsString::from);
        let file = |path: &Option<PathBuf>| path.as_deref().map(|path| absolute(path).into_os_string());
        let yes = |is_on: bool| is_on.then(|| OsString::from("true"));
        let variables = [
            ("RUNLEDGER_SERVER", Some(OsString::from(client.servers()))),
            ("RUNLEDGER_AGENT_ID", text(&self.acting_agent)),
            (context::ambient::CONTEXT, Some(OsString::from(context::NONE))),
            ("RUNLEDGER_CLIENT_TLS", yes(tls)),
            ("RUNLEDGER_CLIENT_TLS_CA", file(&self.access.tls_ca)),
            ("RUNLEDGER_CLIENT_TLS_CERT", file(&self.access.tls_cert)),
            ("RUNLEDGER_CLIENT_TLS_KEY", file(&self.access.tls_key)),
            ("RUNLEDGER_CLIENT_TLS_SERVER_NAME", text(&self.access.tls_server_name)),
            ("RUNLEDGER_TOKEN_FILE", file(&self.access.token_file)),
            ("RUNLEDGER_ALLOW_PLAINTEXT_TOKEN", yes(allow_plaintext_token)),
            ("RUNLEDGER_NAMESPACE", text(&self.access.namespace)),
        ];
        let token = self.access.token.is_none().then_some(("RUNLEDGER_TOKEN", None));
        variables.into_iter().chain(token).collect()
    }
}

/// The path from the root, for a process that works elsewhere.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_error| path.to_owned())
}

/// Settings that cannot be used, with the flags that would change it.
pub(super) fn unusable(error: &Unusable) -> Stop {
    let flags = if let Unusable::TokenInPlainText(_) = error {
        "; --tls calls over TLS, and --allow-plaintext-token sends the token all the same"
    } else if let Unusable::PlainText(_) = error {
        "; name it without http://, or leave out the flags of TLS"
    } else if let Unusable::Tls(runledger_client::TlsFileError::NoRoots) = error {
        ": --tls-ca names it"
    } else {
        ""
    };
    Stop::Usage(format!("{error}{flags}"))
}

/// The server of a command whose calls are answered at once.
#[derive(Args, Debug)]
pub(super) struct Caller {
    #[command(flatten)]
    server: Server,

    /// Time to wait for an answer: seconds, or such as 500ms or 2m
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = limit, help_heading = "Connection")]
    timeout: Duration,
}

impl Caller {
    pub(super) fn client(&self) -> Result<Client, Stop> {
        self.server.client()
    }

    /// A client that calls the same servers in a namespace.
    pub(super) fn client_in(&self, namespace: &str) -> Result<Client, Stop> {
        self.server.target()?.within(namespace).client()
    }

    /// The time to wait for an answer.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Makes a call.
    pub(super) async fn ask<C: Unary>(&self, client: &mut Client, call: &C) -> Result<C::Answer, Stop> {
        Ok(client.ask(call, Instant::now() + self.timeout).await?)
    }
}

/// The server of a command that watches.
#[derive(Args, Debug)]
pub(super) struct Watched {
    #[command(flatten)]
    server: Server,

    /// Time in which the server must take the watch, at first and after each cut: seconds, or such as 500ms or 2m
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = limit, help_heading = "Connection")]
    timeout: Duration,
}

impl Watched {
    pub(super) fn client(&self) -> Result<Client, Stop> {
        self.server.target()?.builder()?.open_wait_max(self.timeout).build().map_err(|error| unusable(&error))
    }
}
