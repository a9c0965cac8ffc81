//! The command line.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};

use crate::clock::SystemClock;
use crate::config::{ServeConfig, StoreConfig};
use crate::service::health::{self, Health};
use crate::store::open::Location;
use crate::{app, store, telemetry};

/// The lifecycle authority for runs.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
        runledger serve                                           a durable authority on the embedded store\n  \
        runledger serve --store memory --listen 127.0.0.1:0       one that forgets, on a free port\n  \
        runledger serve --store postgres://app:secret@db/runs     one of many replicas\n  \
        runledger migrate --store postgres://app:secret@db/runs   bring a database to this release's schema\n  \
        runledger health --server 127.0.0.1:50051                 is it ready?"
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
        Exit codes: 0 after a stop that was asked for; 1 when it could not serve or a part of it failed; 2 usage.")]
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
}

#[derive(Args, Debug)]
struct HealthArgs {
    /// The server's address
    #[arg(long, env = "RUNLEDGER_SERVER", value_name = "HOST:PORT", default_value = "127.0.0.1:50051")]
    server: String,
    /// The health service to ask for
    #[arg(long, value_name = "NAME", default_value = "readiness")]
    service: String,
    /// How long to wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    timeout: u64,
}

/// Does what the command line says.
pub async fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Serve(config) => match config.check() {
            Ok(location) => ended(serve(*config, location).await),
            Err(sentence) => usage(&sentence),
        },
        Command::Migrate(config) => match config.location() {
            Ok(location) => ended(migrate(&config, &location).await),
            Err(sentence) => usage(&sentence),
        },
        Command::Health(args) => health(args).await,
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

async fn serve(config: ServeConfig, location: Location) -> anyhow::Result<()> {
    telemetry::log(config.log_format, &config.log).map_err(|error| anyhow::anyhow!("--log: {error}"))?;
    app::serve(config, location).await
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
    match health::ask(&args.server, &args.service, wait_max).await {
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
