//! `runledger doctor`: the condition of a ledger, for the operator at night. Problems come first, each with its remedy.

mod problems;
mod replicas;
mod report;
mod table;

use std::time::Duration;

use clap::Args;

use self::report::Report;
use super::connect::Selected;
use super::ending::Stop;
use super::fields::time_limit;
use super::look::{self, patiently};
use super::output::{Format, Output, tell};
use crate::config::StoreLocation;
use runledger_client::ServerAddress;
use runledger_proto::json;

/// Time for which a store that answered before is asked again: the operator is in a hurry.
const ASKED_MAX: Duration = Duration::from_secs(3);

pub(super) const HELP: &str = "Examples:\n  \
    runledger doctor\n  \
    runledger doctor --server 127.0.0.1:50051\n  \
    runledger doctor --store postgres://app:secret@db/runs --output json\n\n\
    Each shard's head, which is the lock that its commits take, and who holds and awaits it; unsafe settings, standbys that no commit waits for, sessions, the oldest active \
    runs, sizes. Reads only, beside the servers, and waits for nobody's lock. On Postgres a role with pg_monitor sees \
    the most.\n\n\
    Exit codes: 0 healthy, with warnings or without; 1 at least one problem, or the output cannot be written; 2 usage; \
    3 the store cannot be read.";

#[derive(Args, Debug)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    store: StoreLocation,
    /// A replica of this ledger, to ask what it is doing: commands that wait in it, and its watches. May be given for
    /// each of them
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', help_heading = "Connection")]
    server: Vec<ServerAddress>,
    /// Time that a replica has for its answers: seconds, or such as 500ms or 2m
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = time_limit, help_heading = "Connection")]
    timeout: Duration,
    #[command(flatten)]
    selected: Selected,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(args: DoctorArgs) -> Result<(), Stop> {
    let inspect = look::open(&args.store).await?;
    let condition = patiently(ASKED_MAX, || inspect.condition()).await?;
    let ledger = inspect.ledger();
    let replicas = replicas::ask(&args.server, &args.selected, args.timeout, ledger).await?;
    let report = Report::of(inspect.describe(), ledger, condition, replicas);
    match args.format.output {
        Output::Table => tell(&table::text(&report))?,
        Output::Json => {
            let json = serde_json::to_string(&report).expect("strings and numbers serialize");
            tell(&format!("{}\n", json::plain(&json)))?;
        }
    }
    if report.healthy { Ok(()) } else { Err(Stop::Unsound) }
}
