//! `runledger token`.

mod entry;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use self::entry::Entry;
use super::ending::Stop;
use super::fields::duration;
use super::output::{Format, Out, Output, tell};
use super::table::{Column, Table};
use crate::auth::access_file;
use crate::auth::rules::Known;
use crate::auth::token::{NewToken, TokenHash};
use crate::clock::{Clock as _, SystemClock};
use crate::domain::Time;

macro_rules! exit_codes {
    () => {
        "Exit codes: 0 done; 1 the file cannot be read or written, or is wrong; 2 usage."
    };
}

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger token new --name grafana --namespace '*' --role reader --expires-in 90d\n  \
    runledger token list --access-file access.toml\n\n",
    exit_codes!()
);

const HELP_NEW: &str = concat!(
    "Examples:\n  \
    runledger token new --name ci --namespace default --role reporter --agent 'ci-*'\n  \
    runledger token new --name ops --namespace '*' --role operator --access-file access.toml\n\n\
    The token is printed once, on standard output, and kept nowhere: the access file has its hash. Without \
    --access-file, the entry to put there is printed on standard error.\n",
    exit_codes!()
);

const HELP_LIST: &str =
    concat!("Example:\n  runledger token list --access-file access.toml -o json\n\n", exit_codes!());

/// Columns of `token list`.
const COLUMNS: &[Column] = &[
    Column::texts("NAME"),
    Column::whole("SHA256"),
    Column::whole("EXPIRES"),
    Column::texts("NAMESPACES"),
    Column::texts("ROLES"),
    Column::texts("AGENTS"),
];

/// Digits of a hash that are shown to people.
const HASH_DIGITS_SHOWN: usize = 12;

#[derive(Args, Debug)]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token
    #[command(after_help = HELP_NEW)]
    New(NewArgs),
    /// List the tokens of an access file
    #[command(after_help = HELP_LIST)]
    List(ListArgs),
}

#[derive(Args, Debug)]
struct NewArgs {
    /// The name of whoever holds the token, as events show it. A second token of the same name may replace the first
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Namespaces in which it may be used: a name, name* or *
    #[arg(long = "namespace", value_name = "PATTERN", required = true)]
    namespaces: Vec<String>,
    /// What it may be used for
    #[arg(long = "role", value_name = "ROLE", value_enum, required = true)]
    roles: Vec<Role>,
    /// Agents as which its holder may report: a name, name* or *
    #[arg(long = "agent", value_name = "PATTERN")]
    agents: Vec<String>,
    /// Time after which it is no longer taken, such as 90d [default: never]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    expires_in: Option<Duration>,
    /// File to add the token's entry to: made where it is not there
    #[arg(long, env = "RUNLEDGER_ACCESS_FILE", value_name = "FILE")]
    access_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct ListArgs {
    /// The access file
    #[arg(long, env = "RUNLEDGER_ACCESS_FILE", value_name = "FILE")]
    access_file: PathBuf,
    #[command(flatten)]
    format: Format,
}

/// See [`crate::auth::Role`].
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Role {
    /// Reads runs
    Reader,
    /// Reads runs, and reports those of its own agents
    Reporter,
    /// Reads and reports all runs, and looks at replicas
    Operator,
    /// All of this, and makes and deletes namespaces
    Admin,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Reporter => "reporter",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

pub(super) fn run(args: TokenArgs) -> Result<(), Stop> {
    match args.command {
        TokenCommand::New(args) => new(args),
        TokenCommand::List(args) => list(&args),
    }
}

fn new(args: NewArgs) -> Result<(), Stop> {
    let NewArgs { name, namespaces, roles, agents, expires_in, access_file } = args;
    let token = NewToken::draw().ok_or_else(|| Stop::Undone("the system has no randomness".to_owned()))?;
    let expires_at = expires_in.map(|left| SystemClock.now().plus_ms(left.as_millis().try_into().unwrap_or(u64::MAX)));
    let roles: Vec<_> = roles.into_iter().map(Role::name).collect();
    let entry = Entry { name: &name, hash: token.hash(), expires_at, namespaces, roles, agents };
    let text = entry.to_toml();
    // The entry is held against the rules of the file before anything is written.
    access_file::read(&text).map_err(|faults| Stop::Usage(faults.join("; ")))?;
    match &access_file {
        Some(path) => {
            entry::append(path, &text).map_err(Stop::Undone)?;
            eprintln!("runledger: added `{name}` to {}: servers take the token within seconds", path.display());
        }
        None => eprint!("# The entry for the access file:\n{text}"),
    }
    Ok(tell(&format!("{}\n", token.reveal()))?)
}

fn list(args: &ListArgs) -> Result<(), Stop> {
    let rules = access_file::read(&text_of(&args.access_file)?)
        .map_err(|faults| Stop::Undone(format!("{}: {}", args.access_file.display(), faults.join("; "))))?;
    let mut tokens: Vec<_> = rules.tokens().collect();
    tokens.sort_by_key(|(hash, known)| (known.identity.subject.clone(), hash.to_string()));
    let mut out = Out::new();
    match args.format.output {
        Output::Json => tokens.iter().try_for_each(|(hash, known)| out.line(&json(hash, known).to_string()))?,
        Output::Table => {
            let rows: Vec<_> = tokens.iter().map(|(hash, known)| row(hash, known, SystemClock.now())).collect();
            let mut table = Table::new(COLUMNS, out.width);
            out.rows(&mut table, &rows, true)?;
        }
    }
    Ok(out.flush()?)
}

fn text_of(path: &Path) -> Result<String, Stop> {
    std::fs::read_to_string(path).map_err(|error| Stop::Undone(format!("cannot read {}: {error}", path.display())))
}

fn row(hash: &TokenHash, known: &Known, now: Time) -> Vec<String> {
    let expires = match known.expires_at {
        None => "never".to_owned(),
        Some(end) if end <= now => "expired".to_owned(),
        Some(end) => end.to_string(),
    };
    let mut hash = hash.to_string();
    hash.truncate(HASH_DIGITS_SHOWN);
    let Names { namespaces, roles, agents } = Names::of(known);
    vec![known.identity.subject.clone(), hash, expires, namespaces.join(","), roles.join(","), agents.join(",")]
}

fn json(hash: &TokenHash, known: &Known) -> serde_json::Value {
    let Names { namespaces, roles, agents } = Names::of(known);
    serde_json::json!({
        "name": known.identity.subject,
        "sha256": hash.to_string(),
        "expiresAt": known.expires_at.map(|end| end.to_string()),
        "namespaces": namespaces,
        "roles": roles,
        "agents": agents,
    })
}

/// The words of all grants of a token.
struct Names {
    namespaces: Vec<String>,
    roles: Vec<&'static str>,
    agents: Vec<String>,
}

impl Names {
    fn of(known: &Known) -> Self {
        let grants = || known.grants.iter();
        Self {
            namespaces: grants().flat_map(|grant| &grant.namespaces).map(ToString::to_string).collect(),
            roles: grants().flat_map(|grant| &grant.roles).map(|role| role.name()).collect(),
            agents: grants().flat_map(|grant| grant.agents.iter()).map(ToString::to_string).collect(),
        }
    }
}
