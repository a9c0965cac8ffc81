//! `runledger context`: named settings of the client, such as those of a cluster.
//!
//! What is said goes in this order: flags, then the environment, then the current context, then defaults. A context that
//! is named goes before the environment, and of the environment nothing is taken. What a context says of a token holds
//! for its own servers.

pub(super) mod ambient;
mod file;

use std::path::PathBuf;

use clap::builder::Resettable;
use clap::{ArgGroup, Args, Subcommand};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use self::file::{ContextError, Contexts};
use super::connect::{Server, absolute, unusable};
use super::exit::{Stop, say};
use super::output::{Format, Out, Output};
use super::table::{Column, Table};
use runledger_client::flags::{Access, SERVER_DEFAULT};
use runledger_client::{ServerAddress, Unusable};

macro_rules! exit_codes {
    () => {
        "Exit codes: 0 done; 1 there is no such context, or its file cannot be read or written, or the output cannot be \
         written; 2 usage."
    };
}

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger context add prod --server runs.example:443 --tls-ca ca.pem --token-file token --use\n  \
    runledger context list\n\n\
    What a command is to do is said by its flags, then by the environment, then by the context, then by defaults; each \
    setting by itself, but a certificate goes with its key, and an http:// server leaves out what the context says of TLS. --context NAME or \
    RUNLEDGER_CONTEXT takes another context than the current one, and is final: of the environment nothing else counts \
    then, and what would say otherwise is told. `none` takes no context. A context's token, and its leave to send one in plain \
    text, are for its own servers. The contexts stand in \
    runledger/contexts.toml in $XDG_CONFIG_HOME or ~/.config: names of files, and never a token.\n",
    exit_codes!()
);

const ADD: &str = concat!(
    "Examples:\n  \
    runledger context add prod --server runs.example:443 --tls-ca ca.pem --token-file token --use\n  \
    runledger context add staging --server 10.0.0.7:50051,10.0.0.8:50051 --as agent-7 --namespace qa\n\n\
    Only the flags go into the context, and not what the environment says. Paths are kept from the root.\n",
    exit_codes!()
);

const USE: &str = concat!(
    "Examples:\n  \
    runledger context use local\n  \
    runledger context use --none\n\n",
    exit_codes!()
);

const LIST: &str = concat!(
    "Examples:\n  \
    runledger context list\n  \
    runledger context list --output json\n\n",
    exit_codes!()
);

const SHOW: &str = concat!(
    "Examples:\n  \
    runledger context show\n  \
    runledger context show local --output json\n\n",
    exit_codes!()
);

const REMOVE: &str = concat!(
    "Example:\n  \
    runledger context remove local\n\n\
    Where the context was the current one, none is current afterwards. The files that it names stay.\n",
    exit_codes!()
);

#[derive(Args, Debug)]
pub(super) struct ContextArgs {
    #[command(subcommand)]
    command: ContextCommand,
}

#[derive(Debug, Subcommand)]
enum ContextCommand {
    /// Keep settings under a name
    #[command(after_help = ADD, mut_args = flags_only)]
    Add(Box<AddArgs>),
    /// Make a context the current one
    #[command(after_help = USE)]
    Use(UseArgs),
    /// List the contexts, the current one marked
    #[command(after_help = LIST)]
    List(Format),
    /// Show a context
    #[command(after_help = SHOW)]
    Show(ShowArgs),
    /// Forget a context
    #[command(after_help = REMOVE)]
    Remove(RemoveArgs),
}

/// The word for no context at all, also where one is current.
pub(super) const NONE: &str = "none";

/// A flag without its variable: a context is to have what was written for it, not what happens to stand in the
/// environment.
fn flags_only(flag: clap::Arg) -> clap::Arg {
    flag.env(Resettable::Reset)
}

#[derive(Args, Debug)]
struct AddArgs {
    /// The context's name
    name: String,
    /// Make it the current one
    #[arg(long = "use")]
    is_used: bool,
    /// Write it anew, where there is one of that name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    server: Server,
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("which").args(["name", "none"]).required(true))]
struct UseArgs {
    /// The context's name
    name: Option<String>,
    /// Have no current context
    #[arg(long)]
    none: bool,
}

#[derive(Args, Debug)]
struct ShowArgs {
    /// The context's name [default: the current one]
    name: Option<String>,
    #[command(flatten)]
    format: Format,
}

#[derive(Args, Debug)]
struct RemoveArgs {
    /// The context's name
    name: String,
}

/// Settings of the client under a name.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Context {
    #[serde(rename = "server", skip_serializing_if = "Vec::is_empty", with = "addresses")]
    pub(super) servers: Vec<ServerAddress>,
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    pub(super) acting_agent: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    tls: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_ca: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_key: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_server_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    allow_plaintext_token: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

/// Addresses as their texts.
mod addresses {
    use super::{Deserialize, Deserializer, Serialize, Serializer, ServerAddress};

    pub(super) fn serialize<S: Serializer>(addresses: &[ServerAddress], serializer: S) -> Result<S::Ok, S::Error> {
        addresses.iter().map(ToString::to_string).collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ServerAddress>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let parsed = texts.iter().map(|text| text.parse::<ServerAddress>());
        parsed.collect::<Result<_, _>>().map_err(serde::de::Error::custom)
    }
}

impl Context {
    fn of(server: &Server) -> Self {
        let Access { tls, tls_ca, tls_cert, tls_key, tls_server_name, token_file, .. } = &server.selected.access;
        let file = |path: &Option<PathBuf>| path.as_deref().map(absolute);
        Self {
            servers: server.addresses.clone(),
            acting_agent: server.acting_agent.clone(),
            tls: *tls,
            tls_ca: file(tls_ca),
            tls_cert: file(tls_cert),
            tls_key: file(tls_key),
            tls_server_name: tls_server_name.clone(),
            token_file: file(token_file),
            allow_plaintext_token: server.selected.access.allow_plaintext_token,
            namespace: server.selected.access.namespace.clone(),
        }
    }

    /// The flags that the context stands for.
    pub(super) fn access(&self) -> Access {
        Access {
            tls: self.tls,
            tls_ca: self.tls_ca.clone(),
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
            tls_server_name: self.tls_server_name.clone(),
            token_file: self.token_file.clone(),
            allow_plaintext_token: self.allow_plaintext_token,
            namespace: self.namespace.clone(),
            token: None,
        }
    }

    /// The reason why calls in this context would fail, if they would.
    fn problem(&self) -> Option<Unusable> {
        let builder = self.access().builder(&self.servers);
        builder.and_then(runledger_client::Builder::build).err()
    }

    fn pairs(&self) -> Vec<(&'static str, String)> {
        let file = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let yes = |is_on: bool| if is_on { "yes".to_owned() } else { String::new() };
        vec![
            ("server", self.named_servers()),
            ("as", text(&self.acting_agent)),
            ("namespace", text(&self.namespace)),
            ("tls", yes(self.tls)),
            ("tls ca", file(&self.tls_ca)),
            ("tls cert", file(&self.tls_cert)),
            ("tls key", file(&self.tls_key)),
            ("tls server name", text(&self.tls_server_name)),
            ("token file", file(&self.token_file)),
            ("allow plaintext token", yes(self.allow_plaintext_token)),
        ]
    }

    /// Whether these are servers of the context: those that it names, or the default one where it names none.
    pub(super) fn has(&self, servers: &[ServerAddress]) -> bool {
        let default = [SERVER_DEFAULT.parse().expect("it is an address")];
        let own = if self.servers.is_empty() { &default[..] } else { &self.servers[..] };
        servers.iter().all(|server| own.iter().any(|own| own.is_the_same(server)))
    }

    fn named_servers(&self) -> String {
        self.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

/// The context of that name, or the current one, with its name; none where none is wanted.
pub(super) fn selected(name: Option<&str>) -> Result<Option<(String, Context)>, ContextError> {
    let contexts = Contexts::read()?;
    if name == Some(NONE) {
        return Ok(None);
    }
    let Some(name) = name.map(str::to_owned).or_else(|| contexts.current.clone()) else { return Ok(None) };
    let context = contexts.get(&name)?.clone();
    Ok(Some((name, context)))
}

pub(super) fn run(args: ContextArgs) -> Result<(), Stop> {
    match args.command {
        ContextCommand::Add(args) => add(*args),
        ContextCommand::Use(args) => Ok(switch(args)?),
        ContextCommand::List(format) => list(&format),
        ContextCommand::Show(args) => show(args),
        ContextCommand::Remove(args) => {
            if remove(&args.name)? {
                say(&format!(
                    "{} was the current context, and none is current now: calls go to 127.0.0.1:50051 unless they say \
                     otherwise; `runledger context use` names another",
                    args.name
                ));
            }
            Ok(())
        }
    }
}

impl From<ContextError> for Stop {
    fn from(error: ContextError) -> Self {
        let said = error.to_string();
        if let ContextError::Name(_) = error { Self::Usage(said) } else { Self::Undone(said) }
    }
}

fn add(args: AddArgs) -> Result<(), Stop> {
    let AddArgs { name, is_used, replace, server } = args;
    let of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !(1..=64).contains(&name.len()) || !name.bytes().all(of_a_name) || name == NONE {
        return Err(ContextError::Name(name).into());
    }
    let context = Context::of(&server);
    match context.problem() {
        // A file may come later.
        Some(error @ (Unusable::Tls(_) | Unusable::Token(_))) => {
            say(&format!("calls would fail as it is now: {error}"));
        }
        Some(error) => return Err(unusable(&error)),
        None => {}
    }
    Contexts::change(|contexts| {
        if contexts.contexts.contains_key(&name) && !replace {
            return Err(ContextError::Taken(name));
        }
        if is_used {
            contexts.current = Some(name.clone());
        }
        contexts.contexts.insert(name, context);
        Ok(())
    })?;
    Ok(())
}

fn switch(args: UseArgs) -> Result<(), ContextError> {
    Contexts::change(|contexts| {
        if let Some(name) = &args.name {
            contexts.get(name)?;
        }
        contexts.current = args.name;
        Ok(())
    })
}

/// Tells whether it was the current one.
fn remove(name: &str) -> Result<bool, ContextError> {
    let mut was_current = false;
    Contexts::change(|contexts| {
        contexts.get(name)?;
        contexts.contexts.remove(name);
        was_current = contexts.current.as_deref() == Some(name);
        if was_current {
            contexts.current = None;
        }
        Ok(())
    })?;
    Ok(was_current)
}

const COLUMNS: &[Column] = &[
    Column::whole("CURRENT"),
    Column::whole("NAME"),
    Column::whole("SERVER"),
    Column::whole("NAMESPACE"),
    Column::whole("AS"),
];

fn list(format: &Format) -> Result<(), Stop> {
    let Contexts { current, contexts } = Contexts::read()?;
    let mut out = Out::new();
    let is_current = |name: &String| current.as_ref() == Some(name);
    match format.output {
        Output::Json => {
            for (name, context) in &contexts {
                out.line(&json(name, is_current(name), context))?;
            }
        }
        Output::Table => {
            let mut table = Table::new(COLUMNS, out.width);
            let rows: Vec<_> = contexts.iter().map(|(name, context)| row(name, is_current(name), context)).collect();
            out.rows(&mut table, &rows, true)?;
        }
    }
    Ok(out.flush()?)
}

fn row(name: &str, is_current: bool, context: &Context) -> Vec<String> {
    vec![
        if is_current { "*" } else { "" }.to_owned(),
        name.to_owned(),
        context.named_servers(),
        context.namespace.clone().unwrap_or_default(),
        context.acting_agent.clone().unwrap_or_default(),
    ]
}

fn show(args: ShowArgs) -> Result<(), Stop> {
    let contexts = Contexts::read()?;
    let name = args.name.or_else(|| contexts.current.clone()).ok_or(ContextError::NoCurrent)?;
    let context = contexts.get(&name)?;
    let is_current = contexts.current.as_deref() == Some(name.as_str());
    let mut out = Out::new();
    match args.format.output {
        Output::Json => out.line(&json(&name, is_current, context))?,
        Output::Table => {
            let current = if is_current { "yes" } else { "" }.to_owned();
            let named = [("name", name), ("current", current)];
            let pairs = named.into_iter().chain(context.pairs()).filter(|(_, value)| !value.is_empty());
            out.pairs(&pairs.map(|(name, value)| vec![name.to_owned(), value]).collect::<Vec<_>>())?;
        }
    }
    Ok(out.flush()?)
}

fn json(name: &str, is_current: bool, context: &Context) -> String {
    #[derive(Serialize)]
    struct Named<'a> {
        name: &'a str,
        current: bool,
        #[serde(flatten)]
        context: &'a Context,
    }
    serde_json::to_string(&Named { name, current: is_current, context }).expect("texts and files' names are JSON")
}
