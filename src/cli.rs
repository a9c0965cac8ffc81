//! The command line.

mod bench;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tokio::net::lookup_host;

use self::bench::BenchArgs;
use crate::clock::SystemClock;
use crate::config::{self, HostPort, ServeConfig, StoreConfig};
use crate::service::health::{self, Health};
use crate::store::open::Location;
use crate::{app, store, telemetry};

/// The lifecycle authority for runs.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
        runledger serve                                           durable, on the embedded store\n  \
        runledger serve --store memory --listen 127.0.0.1:0       forgets, on a free port\n  \
        runledger serve --store postgres://app:secret@db/runs     one of many replicas\n  \
        runledger migrate --store postgres://app:secret@db/runs   to this release's schema\n  \
        runledger health --server localhost:50051                 is it ready?"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the gRPC API until SIGTERM or Ctrl-C
    #[command(after_help = "Examples:\n  \
        runledger serve\n  \
        runledger serve --store sqlite:/var/lib/runledger/ledger.db\n  \
        RUNLEDGER_STORE=postgres://app:secret@db/runs runledger serve --listen 0.0.0.0:50051 --insecure\n\n\
        SIGTERM or Ctrl-C stops it: commands that were accepted are answered, watchers are told to come back. That \
        takes less than a second, and 22 s at most when callers or the store hang. A second signal ends it at once.\n\n\
        Exit codes: 0 after a stop that was asked for; 1 when it could not serve or a part of it failed; 2 usage; \
        130 after a second signal.")]
    Serve(Box<ServeConfig>),
    /// Bring a database to this release's schema
    #[command(after_help = "Example:\n  \
        runledger migrate --store postgres://app:secret@db/runs\n\n\
        Exit codes: 0 when the schema is this release's; 1 when it could not be migrated; 2 usage.")]
    Migrate(StoreConfig),
    /// Ask a server how it is
    #[command(after_help = "Examples:\n  \
        runledger health\n  \
        runledger health --server 10.0.0.7:50051 --service liveness\n\n\
        Services: liveness, readiness, durability, runledger.v1.RunService (follows the store).\n\
        Exit codes: 0 serving; 1 not serving; 2 usage; 3 unreachable.")]
    Health(HealthArgs),
    /// Load a server and measure what its callers see
    #[command(after_help = bench::HELP)]
    Bench(Box<BenchArgs>),
}

#[derive(Args, Debug)]
struct HealthArgs {
    /// The server's address
    #[arg(long, env = "RUNLEDGER_SERVER", value_name = "HOST:PORT", default_value = "127.0.0.1:50051")]
    server: HostPort,
    /// The health service to ask for
    #[arg(long, value_name = "NAME", default_value = "readiness")]
    service: String,
    /// How long to wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    timeout: u64,
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
        Command::Serve(config) => match config.store.location() {
            Ok(location) => serve(*config, location).await,
            Err(sentence) => usage(&sentence),
        },
        Command::Migrate(config) => match config.location() {
            Ok(location) => ended(migrate(&config, &location).await),
            Err(sentence) => usage(&sentence),
        },
        Command::Health(args) => health(args).await,
        Command::Bench(args) => bench::run(*args).await,
    }
}

fn ended(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("runledger: {}", telemetry::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn usage(sentence: &str) -> ExitCode {
    eprintln!("runledger: {sentence}");
    ExitCode::from(2)
}

async fn serve(config: ServeConfig, location: Location) -> ExitCode {
    let addresses: Vec<SocketAddr> = match lookup_host(config.listen.as_str()).await {
        Ok(addresses) => addresses.collect(),
        Err(error) => return ended(Err(error).with_context(|| format!("cannot resolve {}", config.listen))),
    };
    if let Err(sentence) = config.admit(&addresses) {
        return usage(&sentence);
    }
    if let Err(error) = telemetry::log(config.log_format, &config.log) {
        return ended(Err(anyhow::anyhow!("cannot log: {error}")));
    }
    ended(app::serve(config, location, &addresses).await)
}

async fn migrate(config: &StoreConfig, location: &Location) -> anyhow::Result<()> {
    let options = config.options(true, true);
    let migrated = store::open::migrate(location, &options, Arc::new(SystemClock))
        .await
        .with_context(|| format!("{location} was not migrated"))?;
    for name in &migrated.applied {
        println!("applied {name}");
    }
    println!("{location} is at migration {}", migrated.at);
    Ok(())
}

async fn health(args: HealthArgs) -> ExitCode {
    let wait_max = Duration::from_secs(args.timeout.max(1));
    match health::ask(args.server.as_str(), &args.service, wait_max).await {
        Ok(Health::Serving) => {
            println!("{}: serving", args.service);
            ExitCode::SUCCESS
        }
        Ok(Health::NotServing) => {
            println!("{}: not serving", args.service);
            ExitCode::FAILURE
        }
        Ok(Health::Unknown) => {
            eprintln!("runledger: {} has no health service named {:?}", args.server, args.service);
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("runledger: {} does not answer: {}", args.server, telemetry::chain(&*error));
            ExitCode::from(3)
        }
    }
}
