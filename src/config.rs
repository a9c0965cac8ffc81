//! The process's settings: flags, then `RUNLEDGER_*`, then the file of settings, then defaults. No other module reads
//! the environment.
//!
//! Invariant: a setting is said once, by its flag: what it means, its default, and the values that it takes. The file
//! and the environment name the same settings, and the reference is made of them.

pub mod ambient;
pub mod file;
mod otel;
pub mod shown;
mod telemetry;
mod tls;

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{BoolishValueParser, Resettable};
use clap::{ArgAction, Args, Command, ValueEnum};
use runledger_client::{HostPort, Token};

pub use self::telemetry::{Collectors, TelemetryConfig};
pub use self::tls::TlsConfig;
use crate::auth::Kinds;
use crate::store::OpenOptions;
use crate::store::open::{Location, is_secret};
use crate::text::{bytes, count, duration, duration_within, within, without_mark};

/// The prefix of the process's own variables.
const PREFIX: &str = "RUNLEDGER_";

/// A client's token, by its value and by its file.
const TOKEN: &str = "RUNLEDGER_TOKEN";
const TOKEN_FILE: &str = "RUNLEDGER_TOKEN_FILE";

/// The settings of `runledger serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeConfig {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, env = "RUNLEDGER_LISTEN", value_name = "HOST:PORT", default_value = "127.0.0.1:50051")]
    pub listen: HostPort,

    /// TLS on that address.
    #[command(flatten)]
    pub tls: TlsConfig,

    /// Address to answer /livez, /readyz and /metrics on, by HTTP/1 and without TLS: not for the public [default: none]
    #[arg(long, env = "RUNLEDGER_ADMIN_LISTEN", value_name = "HOST:PORT")]
    pub admin_listen: Option<HostPort>,

    /// The store to serve, and how to open it.
    #[command(flatten)]
    pub store: StoreConfig,

    /// Connections of clients at most, fewer where the process may not open so many files
    #[arg(long, env = "RUNLEDGER_CLIENT_CONNECTIONS", value_name = "N", default_value_t = 10_000,
          value_parser = within(1..=1_000_000_usize))]
    pub client_connections: usize,

    /// Time that a client's connection stays open without a call
    #[arg(long, env = "RUNLEDGER_CONNECTION_IDLE_MAX", value_name = "DURATION", default_value = "10m",
          value_parser = lifetime)]
    pub connection_idle_max: Duration,

    /// Age that a client's connection reaches, give or take a tenth: then clients connect anew, and their streams begin
    /// anew where they were, within a minute
    #[arg(long, env = "RUNLEDGER_CONNECTION_AGE_MAX", value_name = "DURATION", default_value = "30m",
          value_parser = lifetime)]
    pub connection_age_max: Duration,

    /// Time that one `WaitRun` waits at most: less than proxies in between allow a silent call
    #[arg(long, env = "RUNLEDGER_WAIT_MAX", value_name = "DURATION", default_value = "24h", value_parser = duration)]
    pub wait_max: Duration,

    /// Calls that one caller may begin in a second; a caller is a connection, and a named agent on all connections
    /// [default: no limit]
    #[arg(long, env = "RUNLEDGER_CALLER_CALLS_PER_SECOND", value_name = "N", value_parser = some)]
    pub caller_calls_per_second: Option<NonZeroU32>,

    /// Calls, watches and waits that one caller may have open at once [default: no limit]
    #[arg(long, env = "RUNLEDGER_CALLER_OPEN_CALLS", value_name = "N", value_parser = some)]
    pub caller_open_calls: Option<NonZeroU32>,

    /// Memory that the process may take, such as 512MiB: near it, new watches are refused, and then writes [default:
    /// that of the control group]
    #[arg(long, env = "RUNLEDGER_MEMORY_LIMIT", value_name = "BYTES", value_parser = memory)]
    pub memory_limit: Option<u64>,

    /// What the server tells of itself.
    #[command(flatten)]
    pub telemetry: TelemetryConfig,

    /// Credentials that callers prove themselves with, comma-separated; none: callers are believed [default: what the
    /// access file has, none without one]
    #[arg(long, env = "RUNLEDGER_AUTH", value_name = "KIND", value_enum, value_delimiter = ',')]
    pub auth: Vec<AuthKind>,

    /// File that says who has which credential, and what each may do. Looked at again and again
    #[arg(long, env = "RUNLEDGER_ACCESS_FILE", value_name = "FILE")]
    pub access_file: Option<PathBuf>,

    /// Time between two looks at files that may change: those of TLS, the access file, and the file of settings
    #[arg(long, env = "RUNLEDGER_RELOAD_INTERVAL", value_name = "DURATION", default_value = "10s",
          value_parser = reload_interval)]
    pub reload_interval: Duration,

    /// Listen on an address other than loopback, although callers are believed and not authenticated, or their
    /// credentials can be read on the way
    #[arg(long, env = "RUNLEDGER_INSECURE", value_parser = BoolishValueParser::new())]
    pub insecure: bool,

    /// Bring a Postgres that has data to this release's schema first
    #[arg(long, env = "RUNLEDGER_MIGRATE", value_parser = BoolishValueParser::new())]
    pub migrate: bool,

    /// Serve on a Postgres that may lose acknowledged calls in a crash (fsync=off and the like)
    #[arg(long, env = "RUNLEDGER_ALLOW_UNSAFE_STORE", value_parser = BoolishValueParser::new())]
    pub allow_unsafe_store: bool,
}

/// The flag that names the store, for every subcommand that opens or reads one.
#[derive(Args, Clone, Debug)]
pub struct StoreLocation {
    /// File of a server's settings (TOML), beneath flags and the environment: each key is a flag's name, with _ for -
    #[arg(long, env = "RUNLEDGER_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// sqlite:PATH, memory, or postgres://USER:PASSWORD@HOST:PORT/DATABASE [default: sqlite:DATA/runledger/ledger.db,
    /// where DATA is `$XDG_DATA_HOME` or ~/.local/share]
    #[arg(long = "store", env = "RUNLEDGER_STORE", value_name = "STORE", hide_env_values = true)]
    location: Option<StoreArgument>,

    /// File that holds the store's location, as --store takes it: the place for one with a password
    #[arg(long, env = "RUNLEDGER_STORE_FILE", value_name = "FILE")]
    store_file: Option<PathBuf>,
}

/// The flags that name the store and say how to open it, for every subcommand that opens one.
#[derive(Args, Clone, Debug)]
pub struct StoreConfig {
    /// The store's location.
    #[command(flatten)]
    pub at: StoreLocation,

    /// Shards of a database that is created now [default: 1 on SQLite, 2 on Postgres]; fixed afterwards
    #[arg(long, env = "RUNLEDGER_SHARDS", value_name = "N", value_parser = within(1..=1024_u16))]
    pub shards: Option<u16>,

    /// Make a ledger in a Postgres that has one already, in a schema where its role does not look
    #[arg(long, env = "RUNLEDGER_NEW_LEDGER", value_parser = BoolishValueParser::new())]
    pub new_ledger: bool,

    /// Connections to Postgres at most, 3 or more
    #[arg(long, env = "RUNLEDGER_CONNECTIONS", value_name = "N", default_value_t = 8,
          value_parser = within(3..=1000_usize))]
    pub connections: usize,

    /// Whether replicas on Postgres tell each other of commits by NOTIFY. Off, replicas look 10 times a second: for
    /// poolers and databases that do not carry it
    #[arg(long, env = "RUNLEDGER_NOTIFY", value_name = "on|off", default_value = "on", action = ArgAction::Set,
          value_parser = on_or_off)]
    pub notify: bool,
}

impl StoreLocation {
    /// The store that was asked for, or the embedded default.
    ///
    /// # Errors
    ///
    /// The form that a store's location must have, or why there is no default one. The text itself is not shown: it may
    /// hold a password.
    pub fn location(&self) -> Result<Location, String> {
        match (&self.location, &self.store_file) {
            (Some(_), Some(_)) => Err("--store and --store-file both name the store: give one".to_owned()),
            (Some(asked), None) => asked.location(),
            (None, Some(path)) => {
                let shown = path.to_string_lossy();
                if is_secret(&shown) {
                    // Who gives the location in place of its file has given the password with it.
                    return Err("--store-file takes the name of a file that holds the location: the location itself \
                                goes to --store or RUNLEDGER_STORE"
                        .to_owned());
                }
                let text = runledger_files::text_once(path, LOCATION_BYTES_MAX)
                    .map_err(|error| format!("cannot read {shown}: {error}"))?;
                let by = named_by("--store-file", "RUNLEDGER_STORE_FILE", path.as_os_str());
                without_mark(&text).trim().parse().map_err(|expected| format!("{by} {shown}: {expected}"))
            }
            (None, None) => default_database().map(Location::Sqlite),
        }
    }
}

/// Bytes of the longest file that holds a location.
const LOCATION_BYTES_MAX: u64 = 64 * 1024;

impl StoreConfig {
    /// See [`StoreLocation::location`].
    ///
    /// # Errors
    ///
    /// See [`StoreLocation::location`].
    pub fn location(&self) -> Result<Location, String> {
        self.at.location()
    }

    /// The options for opening the store.
    #[must_use]
    pub fn options(&self, migrate: bool, allow_unsafe: bool) -> OpenOptions {
        let Self { shards, new_ledger, connections, notify, .. } = *self;
        OpenOptions { shards, connections, notify, migrate, new_ledger, allow_unsafe, ..OpenOptions::default() }
    }
}

/// A store as it was asked for, unread: it may hold a password, which an error of the command line would show.
#[derive(Clone)]
pub struct StoreArgument(String);

impl StoreArgument {
    /// The connection string, for a caller that takes a Postgres and no other store.
    ///
    /// # Errors
    ///
    /// The form that was expected. The text itself is not shown.
    pub fn postgres(&self) -> Result<&str, String> {
        match self.0.parse()? {
            Location::Postgres(_) => Ok(&self.0),
            Location::Sqlite(_) | Location::Memory => {
                Err("expected postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned())
            }
        }
    }
}

impl FromStr for StoreArgument {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl StoreArgument {
    /// The store's location.
    ///
    /// # Errors
    ///
    /// The form that a store's location must have.
    pub fn location(&self) -> Result<Location, String> {
        let by = named_by("--store", "RUNLEDGER_STORE", self.0.as_ref());
        self.0.parse().map_err(|expected| format!("{by}: {expected}"))
    }
}

impl fmt::Debug for StoreArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asked(***)")
    }
}

/// A kind of credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuthKind {
    /// Callers are believed
    None,
    /// Tokens of the access file
    Token,
    /// Signed tokens of the access file's issuers
    Jwt,
    /// Client certificates
    Certificate,
}

/// How callers prove who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity<'a> {
    /// They do not: they are believed.
    Believed,
    /// By the access file. The kinds of credentials; none: all that the file has.
    Proven {
        /// The file.
        access_file: &'a Path,
        /// The kinds.
        kinds: Option<Kinds>,
    },
}

impl ServeConfig {
    /// How callers prove who they are.
    ///
    /// # Errors
    ///
    /// A sentence that says what to do.
    pub fn identity(&self) -> Result<Identity<'_>, String> {
        let has = |kind| self.auth.contains(&kind);
        match (&self.access_file, self.auth.as_slice()) {
            (None, [] | [AuthKind::None]) => Ok(Identity::Believed),
            (Some(_), auth) if auth.contains(&AuthKind::None) => {
                Err("--auth none takes no --access-file: callers are believed, or they prove who they are".to_owned())
            }
            (None, auth) if auth.contains(&AuthKind::None) => Err("--auth none stands alone".to_owned()),
            (None, _) => Err("--auth needs --access-file, which says who has which credential".to_owned()),
            (Some(access_file), []) => Ok(Identity::Proven { access_file, kinds: None }),
            (Some(access_file), _) => {
                let (token, jwt) = (has(AuthKind::Token), has(AuthKind::Jwt));
                let kinds = Kinds { token, jwt, certificate: has(AuthKind::Certificate) };
                Ok(Identity::Proven { access_file, kinds: Some(kinds) })
            }
        }
    }

    /// Whether the service may listen on the addresses that `listen` stands for.
    ///
    /// # Errors
    ///
    /// A sentence that says what to do.
    pub fn admit(&self, addresses: &[SocketAddr]) -> Result<(), String> {
        self.tls.check()?;
        let identity = self.identity()?;
        let Some(open) = addresses.iter().find(|address| !address.ip().is_loopback() && !self.insecure) else {
            return Ok(());
        };
        match identity {
            Identity::Believed => Err(format!(
                "callers are believed and not authenticated, so {open} is open to whoever reaches it: give \
                 --access-file, listen on a loopback address, or add --insecure when the network keeps others out"
            )),
            Identity::Proven { .. } if !self.is_encrypted() => Err(format!(
                "credentials that come to {open} could be read on the way: give --tls-cert and --tls-key, listen on a \
                 loopback address, or add --insecure when the network encrypts"
            )),
            Identity::Proven { .. } => Ok(()),
        }
    }

    /// Refuses what is no file among the files that are read again while a server runs. Those that are not there are told
    /// by whoever reads them.
    ///
    /// # Errors
    ///
    /// Which is none, and what it is instead.
    pub fn are_files(&self) -> Result<(), String> {
        let TlsConfig { tls_cert, tls_key, tls_client_ca, tls_client_crl, .. } = &self.tls;
        let flags = [
            ("--access-file", &self.access_file),
            ("--tls-cert", tls_cert),
            ("--tls-key", tls_key),
            ("--tls-client-ca", tls_client_ca),
            ("--tls-client-crl", tls_client_crl),
        ];
        for (flag, path) in flags.into_iter().chain(self.telemetry.files()) {
            if let Some(path) = path {
                let refused = |error| format!("{flag}: cannot read {}: {error}", path.display());
                runledger_files::no_other(path).map_err(refused)?;
            }
        }
        Ok(())
    }

    fn is_encrypted(&self) -> bool {
        self.tls.files().is_some()
    }
}

/// The command with every empty variable unset: whoever reads its words refuses those of the command that is called, by
/// their names.
#[must_use]
pub fn without_empty_variables(command: Command) -> Command {
    let unset = |arg: clap::Arg| {
        if arg.get_env().is_some_and(is_empty_variable) { arg.env(Resettable::Reset) } else { arg }
    };
    command.mut_args(unset).mut_subcommands(without_empty_variables)
}

/// Whether a variable is there and has no value.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one reader of the environment")]
pub fn is_empty_variable(name: &OsStr) -> bool {
    std::env::var_os(name).is_some_and(|value| value.is_empty())
}

/// The refusal of a variable of the process's own that has no value: an empty text is never taken for none.
#[must_use]
pub fn empty_variable(name: &str) -> String {
    format!("the variable {name} is empty: give it a value, or unset it")
}

/// The values of the process's own variables, which an error of the command line may show.
pub fn variables() -> impl Iterator<Item = String> {
    let own = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(PREFIX));
    own.map(|(_, value)| value.to_string_lossy().into_owned())
}

/// The place of the embedded store below the data directory.
const DATABASE: &str = "runledger/ledger.db";

/// The file of the embedded store, where no store was asked for. It is never looked for in the working directory, which
/// may be another one with each start.
fn default_database() -> Result<PathBuf, String> {
    let Some(data) = user_directory("XDG_DATA_HOME", ".local/share") else {
        let mut sentence =
            "no store is named, and neither XDG_DATA_HOME nor HOME is an absolute path to look for one: \
                            name the store with --store or RUNLEDGER_STORE, such as --store sqlite:PATH"
                .to_owned();
        if let Ok(there) = std::path::absolute(DATABASE)
            && there.exists()
        {
            // Releases before 0.8 made one there.
            let _written = write!(sentence, "; a ledger is at sqlite:{}", there.display());
        }
        return Err(sentence);
    };
    Ok(data.join(DATABASE))
}

/// The file of the named contexts of a client; none where the user has no home.
#[must_use]
pub fn contexts_file() -> Option<PathBuf> {
    Some(user_directory("XDG_CONFIG_HOME", ".config")?.join("runledger/contexts.toml"))
}

/// The bearer token that stands in the environment itself.
///
/// # Errors
///
/// The variable's value is no token. The value is not shown.
pub fn token() -> Result<Option<Token>, String> {
    if is_empty_variable(TOKEN.as_ref()) {
        return Err(empty_variable(TOKEN));
    }
    let Some(value) = variable(TOKEN) else { return Ok(None) };
    let token = value.to_str().map(Token::of_value);
    match token {
        Some(Ok(token)) => Ok(Some(token)),
        Some(Err(error)) => Err(format!("RUNLEDGER_TOKEN: {error}")),
        None => Err("RUNLEDGER_TOKEN holds no token".to_owned()),
    }
}

/// Whether the environment names this file of a token, and has a token by its value besides.
#[must_use]
pub fn is_before_a_token(file: &Path) -> bool {
    variable(TOKEN).is_some() && variable(TOKEN_FILE).is_some_and(|named| Path::new(&named) == file)
}

/// A directory of the user's, by its variable or in the user's home. A path that is not absolute is none: it would mean
/// another directory wherever the process is started.
fn user_directory(name: &str, in_home: &str) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(name).or_else(|| absolute("HOME").map(|home| home.join(in_home)))
}

/// The flag that has a value, or the variable where it is that: then nobody has typed the flag.
fn named_by(flag: &'static str, by: &'static str, value: &OsStr) -> &'static str {
    if variable(by).is_some_and(|given| given == value) { by } else { flag }
}

/// The value of a variable that is not empty.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one reader of the environment")]
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err("expected on or off"),
    }
}

/// The lifetime of connections: below a second, clients would do nothing but connect.
fn lifetime(text: &str) -> Result<Duration, String> {
    duration_within(text, &(Duration::from_secs(1)..=Duration::from_hours(24 * 366)), "1s to 366 days")
}

/// The time between two looks at files.
fn reload_interval(text: &str) -> Result<Duration, String> {
    duration_within(text, &(Duration::from_millis(50)..=Duration::from_hours(1)), "50ms to 1h")
}

/// A bound of the process's memory.
fn memory(text: &str) -> Result<u64, String> {
    let expected = |expected| format!("{expected}, at least 1MiB");
    bytes(text)
        .map_err(expected)
        .and_then(|bytes| if bytes >= 1 << 20 { Ok(bytes) } else { Err("expected 1MiB or more".into()) })
}

/// A number of things, of which there must be some.
fn some(text: &str) -> Result<NonZeroU32, String> {
    count(text).and_then(|number| NonZeroU32::new(number).ok_or_else(|| "expected a number from 1".to_owned()))
}
