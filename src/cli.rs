//! The command line: what it understands, and what it starts.

mod bench;
mod completions;
mod connect;
mod doctor;
mod ending;
mod export;
mod fields;
mod filter;
mod health;
mod live;
mod look;
mod migrate;
mod output;
mod run;
mod screen;
mod serve;
mod table;
mod verify;
mod view;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use self::bench::BenchArgs;
use self::completions::CompletionsArgs;
use self::health::HealthArgs;
use self::run::RunArgs;
use self::watch::WatchArgs;
use crate::config::{self, ServeConfig, StoreConfig};
use crate::store::open::Location;

/// The lifecycle authority for runs.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
        runledger serve                                           durable, on the embedded store\n  \
        runledger serve --store memory --listen 127.0.0.1:0       forgets, on a free port\n  \
        runledger serve --store postgres://app:secret@db/runs     one of many replicas\n  \
        runledger migrate --store postgres://app:secret@db/runs   to this release's schema\n  \
        runledger health --server localhost:50051                 is it ready?\n  \
        runledger run list --status running                       what is under way?\n  \
        runledger watch --for 1h                                  every change, as it happens"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the gRPC API until SIGTERM or Ctrl-C
    #[command(after_help = serve::HELP)]
    Serve(Box<ServeConfig>),
    /// Bring a database to this release's schema
    #[command(after_help = migrate::HELP)]
    Migrate(StoreConfig),
    /// Ask a server how it is
    #[command(after_help = health::HELP)]
    Health(HealthArgs),
    /// Start, change, read, list and await runs
    #[command(after_help = run::HELP)]
    Run(RunArgs),
    /// Watch all runs that match: a live table on a terminal, else a line for each change
    #[command(after_help = watch::HELP)]
    Watch(Box<WatchArgs>),
    /// Print what completes this command line in a shell
    #[command(after_help = completions::HELP)]
    Completions(CompletionsArgs),
    /// Tell how a ledger is, and what to do about it
    #[command(after_help = doctor::HELP)]
    Doctor(doctor::DoctorArgs),
    /// Write the log as JSON lines
    #[command(after_help = export::HELP)]
    Export(export::ExportArgs),
    /// Hold every run against its events
    #[command(after_help = verify::HELP)]
    Verify(verify::VerifyArgs),
    /// Load a server and measure what its callers see
    #[command(after_help = bench::HELP)]
    Bench(Box<BenchArgs>),
}

/// The command line that was given; else what was said of it, and how the process ends.
///
/// # Errors
///
/// It asked for help, or cannot be understood. Either was printed, without passwords.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, ExitCode> {
    let words: Vec<OsString> = words.into_iter().collect();
    let command = config::without_empty_variables(Cli::command());
    let cli = command.try_get_matches_from(&words).and_then(|matches| Cli::from_arg_matches(&matches));
    cli.map_err(|error| {
        let rendered = error.render().to_string();
        let given = words.iter().map(|word| word.to_string_lossy().into_owned()).chain(config::variables());
        let shown = redacted(&rendered, given);
        if shown == rendered {
            let _closed = error.print();
        } else if error.use_stderr() {
            eprint!("{shown}");
        } else {
            print!("{shown}");
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
    })
}

/// A text without the passwords of what was given: who forgets `--store` gives a connection string as something else.
fn redacted(text: &str, given: impl Iterator<Item = String>) -> String {
    let mut text = text.to_owned();
    for word in given {
        let values = [Some(word.as_str()), word.split_once('=').map(|(_flag, value)| value)];
        for value in values.into_iter().flatten().filter(|value| value.contains("://") || value.contains("password=")) {
            text = text.replace(value, &Location::Postgres(value.to_owned()).to_string());
        }
    }
    text
}

/// Does what the command line says.
pub async fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Serve(config) => serve::run(*config).await,
        Command::Migrate(config) => migrate::run(&config).await,
        Command::Health(args) => health::run(args).await,
        Command::Run(args) => ending::code(run::run(args).await),
        Command::Watch(args) => ending::code(watch::run(*args).await),
        Command::Completions(args) => ending::code(completions::run(&args)),
        Command::Doctor(args) => doctor::doctor(args).await,
        Command::Export(args) => export::export(args).await,
        Command::Verify(args) => verify::verify(args).await,
        Command::Bench(args) => bench::run(*args).await,
    }
}
