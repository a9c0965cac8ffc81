//! The command line: what it understands, and what it starts.

mod bar;
#[cfg(feature = "bench")]
mod bench;
mod completions;
mod config;
mod connect;
mod context;
mod doctor;
mod emptiness;
mod exit;
mod export;
mod fields;
mod filter;
mod health;
mod ledger_access;
mod lifecycle;
mod live;
mod migrate;
mod misread;
mod monitoring;
mod namespace;
mod output;
mod retention;
mod run;
mod screen;
mod serve;
mod standard_input;
mod table;
mod time;
mod token;
mod verify;
mod view;
mod watch;
mod whoami;
mod words;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

#[cfg(feature = "bench")]
use self::bench::BenchArgs;
use self::completions::CompletionsArgs;
use self::config::ConfigArgs;
use self::context::ContextArgs;
use self::doctor::DoctorArgs;
use self::exit::Stop;
use self::export::ExportArgs;
use self::health::HealthArgs;
use self::lifecycle::LifecycleArgs;
use self::migrate::MigrateArgs;
use self::monitoring::MonitoringArgs;
use self::namespace::NamespaceArgs;
use self::retention::RetentionArgs;
use self::run::RunArgs;
use self::token::TokenArgs;
use self::verify::VerifyArgs;
use self::watch::WatchArgs;
use self::whoami::WhoamiArgs;
use crate::app::reloading::Settings;
use crate::config::file::ConfigFile;
use crate::config::shown::Setting;
use crate::config::{self as settings, ServeConfig};
use crate::stdio;
use crate::store::open::Location;
use crate::tasks::signals::outlive_limits;

/// The lifecycle authority for runs.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
        runledger serve                                                durable, on the embedded store\n  \
        runledger serve --store postgres://app:secret@db/runs          one of many replicas\n  \
        runledger run start --task-thread-id thread-1 --run-id try-1   a run begins\n  \
        runledger run complete try-1                                   and ends\n  \
        runledger run list --status running                            what is under way?\n  \
        runledger watch --for 1h                                       every change, as it happens\n  \
        runledger export --output lifecycle.jsonl                      the whole history\n  \
        runledger doctor                                               is it well, and what to do?\n  \
        runledger verify                                               is every run what its events say?\n  \
        runledger migrate --store postgres://app:secret@db/runs        to this release's schema\n  \
        runledger context use local                                    call another server from now on"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// The settings of a server as they hold, where the command is about them.
    #[arg(skip)]
    settings: Vec<Setting>,
    /// The command line itself.
    #[arg(skip)]
    words: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the gRPC API until SIGTERM or Ctrl-C
    #[command(after_help = serve::HELP)]
    Serve(Box<ServeConfig>),
    /// Start, change, read, list and await runs
    #[command(after_help = run::HELP)]
    Run(RunArgs),
    /// Watch all runs that match: a live table on a terminal, else a line for each change
    #[command(after_help = watch::HELP)]
    Watch(Box<WatchArgs>),
    /// Check, put, show and draw lifecycles: phases, rules and words of your own
    #[command(after_help = lifecycle::HELP)]
    Lifecycle(LifecycleArgs),
    /// Make, change, show and delete namespaces
    #[command(after_help = namespace::HELP)]
    Namespace(NamespaceArgs),
    /// Write the log as JSON lines
    #[command(after_help = export::HELP)]
    Export(ExportArgs),
    /// Ask a server how it is
    #[command(after_help = health::HELP)]
    Health(HealthArgs),
    /// Tell how a ledger is, and what to do about it
    #[command(after_help = doctor::HELP)]
    Doctor(DoctorArgs),
    /// Hold every run against its events
    #[command(after_help = verify::HELP)]
    Verify(VerifyArgs),
    /// Tell who one is for a server, in which roles, and as which agents
    #[command(after_help = whoami::HELP)]
    Whoami(WhoamiArgs),
    /// Make tokens for callers, and list and revoke those of an access file
    #[command(after_help = token::HELP)]
    Token(TokenArgs),
    /// Bring a database to this release's schema
    #[command(after_help = migrate::HELP)]
    Migrate(MigrateArgs),
    /// Purge runs that were kept for as long as their namespace wants
    #[command(after_help = retention::HELP)]
    Retention(RetentionArgs),
    #[cfg(feature = "bench")]
    /// Load a server and measure what its callers see
    #[command(after_help = bench::HELP)]
    Bench(Box<BenchArgs>),
    /// Print what Prometheus and Grafana need to know
    #[command(after_help = monitoring::HELP)]
    Monitoring(MonitoringArgs),
    /// Look at the settings of a server before it starts
    #[command(after_help = config::HELP)]
    Config(ConfigArgs),
    /// Name servers and how they are reached, for use by their name
    #[command(after_help = context::HELP)]
    Context(ContextArgs),
    /// Print what completes this command line in a shell
    #[command(after_help = completions::HELP)]
    Completions(CompletionsArgs),
}

/// The command line that was given; else what was said of it, and how the process ends.
///
/// # Errors
///
/// The command line asks for help, or cannot be understood. The text for either was printed, without passwords.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, ExitCode> {
    let words: Vec<OsString> = words.into_iter().collect();
    read(&words).map_err(|misread| match misread {
        Misread::File(mistakes) => {
            for mistake in mistakes {
                stdio::err().say(&format!("runledger: {}\n", redacted(&mistake, given(&words))));
            }
            ExitCode::from(2)
        }
        Misread::Words(error) => told(&error, &words),
    })
}

/// The reason for which a command line cannot be understood.
enum Misread {
    /// Mistakes in the file of settings that it names.
    File(Vec<String>),
    /// The command line itself; or it asks for help.
    Words(clap::Error),
}

/// Understands a command line.
fn read(words: &[OsString]) -> Result<Cli, Misread> {
    let command = settings::without_empty_variables(Cli::command());
    let (mut command, file) = with_file(command, words).map_err(Misread::File)?;
    let matches = context::ambient::read(command.clone(), words).map_err(Misread::Words)?;
    command.build();
    emptiness::refused(&mut command, &matches).map_err(Misread::Words)?;
    let mut with_variables = Cli::command();
    with_variables.build();
    emptiness::refused_variable(&mut with_variables, &matches).map_err(Misread::Words)?;
    standard_input::refused(&mut command, &matches).map_err(Misread::Words)?;
    let about = match matches.subcommand() {
        Some(("serve", about)) => Some(about),
        Some(("config", matches)) => matches.subcommand_matches("show"),
        Some(_) | None => None,
    };
    let settings = about.map(|matches| settings::shown::shown(matches, &file)).unwrap_or_default();
    let cli = Cli::from_arg_matches(&matches).map_err(Misread::Words)?;
    Ok(Cli { settings, words: words.to_vec(), ..cli })
}

/// Reads the settings of a server again, from the same command line.
fn reread(words: &[OsString]) -> Result<(ServeConfig, Vec<Setting>), String> {
    match read(words) {
        Ok(Cli { command: Command::Serve(config), settings, .. }) => Ok((*config, settings)),
        Ok(_) => Err("the command line serves nothing".to_owned()),
        Err(Misread::File(mistakes)) => Err(mistakes.join("; ")),
        Err(Misread::Words(error)) => Err(error.to_string()),
    }
}

/// Tells what was said of a command line, without passwords: how the process ends.
fn told(error: &clap::Error, words: &[OsString]) -> ExitCode {
    let command = settings::without_empty_variables(Cli::command());
    let rendered = match misread::of_a_variable(&command, words, error) {
        Some(told) => told,
        None => error.render().to_string(),
    };
    let shown = redacted(&rendered, given(words));
    let is_as_it_was = shown == error.render().to_string();
    if error.use_stderr() && !(is_as_it_was && io::stderr().is_terminal()) {
        stdio::err().say(&shown);
    } else {
        // With colours, where it is a terminal. Signals end the process still by themselves.
        let _closed = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// All that was given to the process: the words of the command line, and its own variables.
fn given(words: &[OsString]) -> impl Iterator<Item = String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).chain(settings::variables())
}

/// The command with the values of the file that the command line names, where it is one that takes a server's
/// settings, beneath it.
fn with_file(command: clap::Command, words: &[OsString]) -> Result<(clap::Command, ConfigFile), Vec<String>> {
    let mut words = words.get(1..).unwrap_or_default();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        return Ok((command, ConfigFile::default()));
    }
    let (mut called, mut path) = (&command, Vec::new());
    while let [word, after @ ..] = words
        && let Some(next) = called.find_subcommand(word)
    {
        path.push(next.get_name().to_owned());
        (called, words) = (next, after);
    }
    if !settings::file::is_taken_by(called) {
        return Ok((command, ConfigFile::default()));
    }
    let named = settings::file::named(called, words);
    let file = match named {
        None => ConfigFile::default(),
        Some((path, variable)) => ConfigFile::read(&path).map_err(|mistakes| {
            // Nobody has typed the name of the file.
            let variable = variable.map_or_else(String::new, |name| format!("{}: ", name.to_string_lossy()));
            mistakes.into_iter().map(|mistake| format!("{variable}{mistake}")).collect::<Vec<_>>()
        })?,
    };
    let beneath = file.clone();
    let with_both = move |called| settings::file::set_aside(beneath.beneath(called, words), words);
    Ok((mut_at(command, &path, with_both), file))
}

/// The command with a change of the subcommand at the end of a path.
fn mut_at(
    command: clap::Command,
    path: &[String],
    change: impl FnOnce(clap::Command) -> clap::Command,
) -> clap::Command {
    match path {
        [] => change(command),
        [name, rest @ ..] => {
            let change: Box<dyn FnOnce(clap::Command) -> clap::Command> = Box::new(|next| mut_at(next, rest, change));
            command.mut_subcommand(name, change)
        }
    }
}

/// A text without the passwords of what was given: who forgets `--store` gives a connection string as something else.
fn redacted(text: &str, given: impl Iterator<Item = String>) -> String {
    let mut text = text.to_owned();
    for word in given {
        let values = [Some(word.as_str()), word.split_once('=').map(|(_flag, value)| value)];
        // The address of a server holds no password, and is shown as it is.
        let is_address = |value: &str| !value.contains('@') && value.starts_with("http");
        let may_hold = |value: &&str| {
            value.contains("://") && !is_address(value) || value.to_ascii_lowercase().contains("password=")
        };
        for value in values.into_iter().flatten().filter(may_hold) {
            text = text.replace(value, &Location::Postgres(value.to_owned()).to_string());
        }
    }
    text
}

/// Does what the command line says.
pub async fn run(cli: Cli) -> ExitCode {
    if let Err(error) = outlive_limits() {
        tracing::debug!(%error, "a file that becomes too large ends the process");
    }
    let words = cli.words.clone();
    // Whoever gives a connection string where a file is meant is told of the file by its name.
    let shown = |sentence: String| redacted(&sentence, given(&words));
    exit::code(Box::pin(done(cli)).await.map_err(|stop| stop.with_sentence(shown)))
}

async fn done(cli: Cli) -> Result<(), Stop> {
    match cli.command {
        Command::Serve(config) => {
            let words = cli.words;
            let reread = Arc::new(move || reread(&words));
            serve::run(Settings { config: *config, all: cli.settings, reread }).await
        }
        Command::Run(args) => Box::pin(run::run(args)).await,
        Command::Watch(args) => watch::run(*args).await,
        Command::Lifecycle(args) => lifecycle::run(args).await,
        Command::Namespace(args) => namespace::run(args).await,
        Command::Export(args) => export::run(args).await,
        Command::Health(args) => health::run(args).await,
        Command::Whoami(args) => whoami::run(args).await,
        Command::Doctor(args) => doctor::run(args).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Token(args) => token::run(args),
        Command::Migrate(args) => migrate::run(&args).await,
        Command::Retention(args) => retention::run(args).await,
        #[cfg(feature = "bench")]
        Command::Bench(args) => bench::run(*args).await,
        Command::Monitoring(args) => monitoring::run(&args),
        Command::Config(args) => config::run(args, &cli.settings).await,
        Command::Context(args) => context::run(args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
    }
}
