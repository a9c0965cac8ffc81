//! `runledger doctor`: how a ledger is, for the operator at night. It says what is wrong first, and what to do.

mod problems;
mod replicas;
mod report;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use self::report::Report;
use super::look::{self, patiently};
use crate::config::{HostPort, StoreConfig};

/// How long a store is asked that did answer before: who asks is in a hurry.
const ASKED_MAX: Duration = Duration::from_secs(3);

pub(super) const HELP: &str = "Examples:\n  \
    runledger doctor\n  \
    runledger doctor --server 127.0.0.1:50051\n  \
    runledger doctor --store postgres://app:secret@db/runs --output json\n\n\
    Heads and who holds and awaits them, unsafe settings, sessions, the oldest active runs, sizes. Reads only, beside \
    the servers, and waits for nobody's lock. On Postgres a role with pg_monitor sees the most.\n\n\
    Exit codes: 0 healthy; 1 at least one problem; 2 usage; 3 the store cannot be read.";

#[derive(Args, Debug)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    store: StoreConfig,
    /// A replica to ask what it is doing: commands that wait in it, and its watches. May be given for each of them
    #[arg(long, value_name = "HOST:PORT")]
    server: Vec<HostPort>,
    /// How the report looks
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Output,
}

/// How a report looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
}

pub(super) async fn doctor(args: DoctorArgs) -> ExitCode {
    let inspect = match look::open(&args.store).await {
        Ok(inspect) => inspect,
        Err(code) => return code,
    };
    let condition = match patiently(ASKED_MAX, || inspect.condition()).await {
        Ok(condition) => condition,
        Err(error) => return look::unreadable(&error),
    };
    let report = Report::of(inspect.describe(), inspect.ledger(), condition, replicas::ask(&args.server).await);
    match args.output {
        Output::Table => print!("{}", table::text(&report)),
        Output::Json => {
            let json = serde_json::to_string_pretty(&report).expect("strings and numbers serialize");
            println!("{json}");
        }
    }
    if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
