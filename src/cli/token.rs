//! `runledger token`.

mod change;
mod entry;
mod revoke;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use self::change::{Change, cannot_write};
use self::entry::Entry;
use super::exit::{Stop, say};
use super::output::{Format, Out, Output, is_stdout_closed, tell};
use super::table::{Column, Table};
use crate::auth::access_file::{self, FILE_BYTES_MAX};
use crate::auth::rules::Known;
use crate::auth::token::{self, CREDENTIAL_BYTES_MAX, NewToken, TokenHash};
use crate::clock::{Clock as _, SystemClock};
use crate::domain::Time;
use crate::private::{self, Rights};
use crate::stdio;
use crate::text::duration;

macro_rules! exit_codes {
    () => {
        "Exit codes: 0 done; 1 the file cannot be read or written, or is wrong; 2 usage."
    };
}

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger token new --name grafana --namespace '*' --role reader --expires-in 90d\n  \
    runledger token list --access-file access.toml\n  \
    runledger token revoke --name grafana --access-file access.toml\n\n",
    exit_codes!()
);

const HELP_NEW: &str = concat!(
    "Examples:\n  \
    runledger token new --name ci --namespace default --role reporter --agent 'ci-*'\n  \
    runledger token new --name ops --namespace '*' --role admin --access-file access.toml -o ops.token\n\n\
    The token is given once and kept nowhere: the access file has its hash. --output puts it into a file that its owner \
    alone reads, in one step and only when all else is done, and replaces no file that holds anything but a token, unless \
    --force says so; without it, it is printed on standard output. Without \
    --access-file, the entry to put there is printed on standard error. A command that fails leaves both files as they \
    were.\n",
    exit_codes!()
);

const HELP_REVOKE: &str = concat!(
    "Examples:\n  \
    runledger token revoke --name ci --access-file access.toml\n  \
    runledger token revoke --sha256 ba7816bf8f01 --access-file access.toml\n\n\
    Servers take it no more within seconds. Where a name has several tokens, such as while one replaces another, --sha256 \
    says which.\n",
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

/// The names of standard output, where the token is printed.
const PRINTED: [&str; 3] = ["-", "/dev/stdout", "/dev/fd/1"];

/// Digits of a hash that are shown to people.
const HASH_DIGITS_SHOWN: usize = 12;

/// Digits of a hash, and those of them at least that say which token is meant.
const HASH_DIGITS: usize = 64;
const HASH_DIGITS_MIN: usize = 8;

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
    /// Take a token out of an access file
    #[command(after_help = HELP_REVOKE)]
    Revoke(RevokeArgs),
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
    #[arg(long = "namespace", value_name = "PATTERN", required = true, value_parser = access_file::namespaces)]
    namespaces: Vec<String>,
    /// What it may be used for
    #[arg(long = "role", value_name = "ROLE", value_enum, required = true)]
    roles: Vec<Role>,
    /// Agents as which its holder may report: a name, name* or *
    #[arg(long = "agent", value_name = "PATTERN", value_parser = access_file::agents)]
    agents: Vec<String>,
    /// Time after which it is no longer taken, such as 90d [default: never]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    expires_in: Option<Duration>,
    /// File to add the token's entry to: made where it is not there
    #[arg(long, env = "RUNLEDGER_ACCESS_FILE", value_name = "FILE")]
    access_file: Option<PathBuf>,
    /// File to put the token into, instead of printing it (`-`): its owner's alone, and replaced as a whole where it holds
    /// a token
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file of --output whatever it holds
    #[arg(long, requires = "output")]
    force: bool,
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("which").args(["name", "sha256"]).required(true))]
struct RevokeArgs {
    /// The name of the token, which is the only one of that name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The token's hash, or its first digits: 8 at least, as `token list` shows them
    #[arg(long, value_name = "HEX", value_parser = digits)]
    sha256: Option<String>,
    /// The access file
    #[arg(long, env = "RUNLEDGER_ACCESS_FILE", value_name = "FILE")]
    access_file: PathBuf,
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
        TokenCommand::Revoke(args) => revoke(&args),
        TokenCommand::List(args) => list(&args),
    }
}

fn new(args: NewArgs) -> Result<(), Stop> {
    let NewArgs { name, namespaces, roles, agents, expires_in, access_file, output, force } = args;
    let output = output.filter(|path| !PRINTED.iter().any(|name| path.as_os_str() == *name));
    if expires_in.is_some_and(|left| left.is_zero()) {
        return Err(Stop::Usage("--expires-in: a token lasts for some time, such as 90d".to_owned()));
    }
    let token = NewToken::draw().ok_or_else(|| Stop::Undone("the system has no randomness".to_owned()))?;
    let expires_at = expires_in.map(|left| SystemClock.now().plus_ms(left.as_millis().try_into().unwrap_or(u64::MAX)));
    let operates = roles.iter().any(|role| matches!(role, Role::Operator | Role::Admin));
    let agents_lack = agents.is_empty() && !operates && roles.iter().any(|role| matches!(role, Role::Reporter));
    let roles: Vec<_> = roles.into_iter().map(Role::name).collect();
    let entry = Entry { name: &name, hash: token.hash(), expires_at, namespaces, roles, agents }.to_toml();
    // The entry is held against the rules of the file before anything is written.
    if agents_lack {
        return Err(Stop::Usage(
            "a reporter's token must say as which agents: --agent NAME, or --agent '*' for all".to_owned(),
        ));
    }
    access_file::read(&entry).map_err(|faults| Stop::Usage(faults.join("; ")))?;
    if let Some((path, _)) =
        access_file.as_ref().zip(output.as_ref()).filter(|(one, other)| private::is_one_file(one, other))
    {
        return Err(Stop::Usage(format!("{} cannot be both the access file and the token's", path.display())));
    }
    if let Some(output) = output.as_deref().filter(|_| !force) {
        may_replace(output)?;
    }
    let Some(path) = &access_file else {
        give(&token, output.as_deref(), || Ok(()))?;
        stdio::err().say(&format!("# The entry for the access file:\n{entry}"));
        return Ok(());
    };
    let change = Change::begin(path).map_err(Stop::Undone)?;
    // What is wrong already is told by its own lines, and not by those of the file with one entry more.
    let wrong = |faults: Vec<String>| Stop::Undone(format!("{}: {}", path.display(), faults.join("; ")));
    access_file::read(change.before()).map_err(wrong)?;
    let given = give(&token, output.as_deref(), || change.write(&format!("{}{entry}", change.before())));
    if let Err(Ungiven::AfterAll(error)) = &given {
        // Nobody has the token: its entry goes as well.
        change.undo().map_err(|undone| Stop::Undone(format!("{error}; and the token's entry stays: {undone}")))?;
    }
    given?;
    let digits = first_digits(&token.hash());
    say(&format!("added `{name}` ({digits}) to {}: servers take the token within seconds", path.display()));
    let others = of_the_name(change.before(), &name);
    if !others.is_empty() {
        let others = others.join(", ");
        say(&format!("`{name}` has other tokens, which stay good: {others}; `token revoke --sha256` takes one out"));
    }
    Ok(())
}

/// Refuses an output that would replace anything else than a token.
fn may_replace(output: &Path) -> Result<(), Stop> {
    let is_token = |text: &str| text.starts_with(token::PREFIX) && text.trim_end().bytes().all(|byte| byte > b' ');
    match private::may_replace(output, CREDENTIAL_BYTES_MAX as u64, is_token) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Stop::Undone(format!(
            "{} is there, and holds no token of `runledger token new`: name another file, or replace it by --force",
            output.display()
        ))),
        Err(error) => Err(Stop::Undone(cannot_write(output, &error))),
    }
}

/// The digests of the tokens of a name, those first that stand first in the file; none where it cannot be read.
fn of_the_name(text: &str, name: &str) -> Vec<String> {
    let Ok(rules) = access_file::read(text) else { return Vec::new() };
    let mut tokens: Vec<_> = rules.tokens().filter(|(_, known)| known.identity.subject == name).collect();
    tokens.sort_by_key(|(hash, _)| place(text, hash));
    tokens.into_iter().map(|(hash, _)| first_digits(hash)).collect()
}

/// Where the entry of a token stands in the file: new ones come last, and nothing else tells their age.
fn place(text: &str, hash: &TokenHash) -> Option<usize> {
    text.to_ascii_lowercase().find(&hash.to_string())
}

fn first_digits(hash: &TokenHash) -> String {
    let mut digits = hash.to_string();
    digits.truncate(HASH_DIGITS_SHOWN);
    digits
}

/// The reason why a token was not given to anybody.
enum Ungiven {
    /// Nothing was done.
    Before(String),
    /// What comes before it was done.
    AfterAll(String),
}

impl From<Ungiven> for Stop {
    fn from(ungiven: Ungiven) -> Self {
        match ungiven {
            Ungiven::Before(error) | Ungiven::AfterAll(error) => Self::Undone(error),
        }
    }
}

/// Prints a token, or puts it into a file, after something else was done. The file has been written beside by then, so
/// that the last step is one that hardly fails.
fn give(token: &NewToken, output: Option<&Path>, done: impl FnOnce() -> Result<(), String>) -> Result<(), Ungiven> {
    let text = format!("{}\n", token.reveal());
    let Some(path) = output else {
        if is_stdout_closed() {
            return Err(Ungiven::Before("the token cannot be printed: standard output is closed".to_owned()));
        }
        done().map_err(Ungiven::Before)?;
        if is_open_to_others(io::stdout().as_fd()) {
            say("others on this machine may read the file that the token goes to: --output makes one that they cannot");
        }
        return tell(&text).map_err(|error| Ungiven::AfterAll(format!("the token cannot be printed: {error}")));
    };
    let written = private::written_beside(path, text.as_bytes(), Rights::OfOwnerAndGroup);
    let (file, part) = written.map_err(|error| Ungiven::Before(cannot_write(path, &error)))?;
    done().map_err(Ungiven::Before)?;
    part.finish(&file).map_err(|error| Ungiven::AfterAll(cannot_write(path, &error)))
}

/// Whether what is printed comes into a file that is not its owner's alone, as a shell makes it.
fn is_open_to_others(out: BorrowedFd<'_>) -> bool {
    let found = out.try_clone_to_owned().and_then(|out| File::from(out).metadata());
    found.is_ok_and(|found| found.is_file() && found.mode() & 0o077 != 0)
}

/// Digits of a hash that tell one token from another.
fn digits(text: &str) -> Result<String, &'static str> {
    let sound = (HASH_DIGITS_MIN..=HASH_DIGITS).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_hexdigit());
    if sound { Ok(text.to_ascii_lowercase()) } else { Err("expected 8 to 64 hexadecimal digits") }
}

fn revoke(args: &RevokeArgs) -> Result<(), Stop> {
    let path = args.access_file.display();
    // Without a file there is nothing to wait for.
    text_of(&args.access_file)?;
    let change = Change::begin(&args.access_file).map_err(Stop::Undone)?;
    let rules = access_file::read(change.before());
    let rules = rules.map_err(|faults| Stop::Undone(format!("{path}: {}", faults.join("; "))))?;
    let is_meant = |hash: &TokenHash, known: &Known| {
        let by_name = args.name.as_ref().is_none_or(|name| known.identity.subject == *name);
        by_name && args.sha256.as_ref().is_none_or(|digits| hash.to_string().starts_with(digits))
    };
    let mut meant: Vec<_> = rules.tokens().filter(|(hash, known)| is_meant(hash, known)).collect();
    let asked = args.name.as_ref().or(args.sha256.as_ref()).map_or("", String::as_str);
    let [(hash, known)] = meant[..] else {
        meant.sort_by_key(|(hash, _)| place(change.before(), hash));
        let hashes = meant.iter().map(|(hash, _)| first_digits(hash)).collect::<Vec<_>>().join(", ");
        return Err(Stop::Undone(match meant.len() {
            0 => format!("{path} has no token {asked:?}"),
            count => format!(
                "{path} has {count} tokens {asked:?}: --sha256 says which of these, the one that was added last at the \
                 end: {hashes}"
            ),
        }));
    };
    let after = revoke::without(change.before(), &[*hash]).ok_or_else(|| {
        let name = &known.identity.subject;
        Stop::Undone(format!(
            "the entry of `{name}` in {path} does not stand as a table [[token]]: take it out by hand"
        ))
    })?;
    change.write(&after).map_err(Stop::Undone)?;
    say(&format!("took `{}` out of {path}: servers refuse the token within seconds", known.identity.subject));
    Ok(())
}

fn list(args: &ListArgs) -> Result<(), Stop> {
    let text = text_of(&args.access_file)?;
    let rules = access_file::read(&text)
        .map_err(|faults| Stop::Undone(format!("{}: {}", args.access_file.display(), faults.join("; "))))?;
    let mut tokens: Vec<_> = rules.tokens().collect();
    tokens.sort_by_key(|(hash, known)| (known.identity.subject.clone(), place(&text, hash)));
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
    let text = runledger_files::text(path, FILE_BYTES_MAX);
    text.map_err(|error| Stop::Undone(format!("cannot read {}: {error}", path.display())))
}

fn row(hash: &TokenHash, known: &Known, now: Time) -> Vec<String> {
    let expires = match known.expires_at {
        None => "never".to_owned(),
        Some(end) if end <= now => "expired".to_owned(),
        Some(end) => end.to_string(),
    };
    let hash = first_digits(hash);
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
