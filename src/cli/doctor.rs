//! `runledger doctor`: the condition of a ledger, for the operator at night. Problems come first, each with its remedy.

mod problems;
mod replicas;
mod report;
mod table;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use self::replicas::Replica;
use self::report::{Report, Seen};
use super::connect::Selected;
use super::exit::Stop;
use super::ledger_access::patiently;
use super::output::{Format, Output, tell};
use crate::clock::SystemClock;
use crate::config::StoreLocation;
use crate::domain::Namespace;
use crate::store::finding::{Diagnosis, Fault, Finding};
use crate::store::open::{self, Location};
use crate::store::{Description, OpenError, OpenOptions};
use crate::telemetry::chain;
use crate::text::limit;
use runledger_client::ServerAddress;
use runledger_proto::json;

/// Time for which a store that answered before is asked again: the operator is in a hurry.
const ASKED_MAX: Duration = Duration::from_secs(1);

pub(super) const HELP: &str = "Examples:\n  \
    runledger doctor\n  \
    runledger doctor --server 127.0.0.1:50051\n  \
    runledger doctor --store postgres://app:secret@db/runs --output json\n\n\
    Each shard's head, which is the lock that its commits take, and who holds and awaits it; unsafe settings, standbys that no commit waits for, sessions, the oldest active \
    runs, sizes. Reads only, beside the servers, and waits for nobody's lock. On Postgres a role with pg_monitor sees \
    the most.\n\n\
    Exit codes: 0 healthy, with warnings or without; 1 at least one problem, also one that keeps the store from being \
    opened, or the output cannot be written; 2 usage; 3 there is no ledger in that place.";

#[derive(Args, Debug)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    store: StoreLocation,
    /// A replica of this ledger, to ask what it is doing: commands that wait in it, and its watches. May be given for
    /// each of them
    #[arg(
        long,
        env = "RUNLEDGER_SERVER",
        value_name = "HOST:PORT",
        value_delimiter = ',',
        help_heading = "Connection"
    )]
    server: Vec<ServerAddress>,
    /// Time that a replica has for its answers: seconds, or such as 500ms or 2m
    #[arg(long, value_name = "DURATION", default_value = "2500ms", value_parser = limit, help_heading = "Connection")]
    timeout: Duration,
    #[command(flatten)]
    selected: Selected,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(args: DoctorArgs) -> Result<(), Stop> {
    let location = args.store.location().map_err(Stop::Usage)?;
    let servers = args.selected.or_of_the_named(args.server)?;
    // Side by side: neither is to wait for the other, which may not answer.
    let (seen, answers) = tokio::join!(look_at(&location), replicas::ask(&servers, &args.selected, args.timeout));
    let (seen, answers) = (seen?, answers?);
    let namespace = args.selected.access.namespace.as_deref().map_or_else(Namespace::only, Namespace::from);
    let replicas =
        answers.into_iter().map(|(server, answer)| Replica::of(server, answer, seen.ledger, &namespace)).collect();
    let report = Report::of(seen, replicas);
    match args.format.output {
        Output::Table => tell(&table::text(&report))?,
        Output::Json => {
            let json = serde_json::to_string(&report).expect("strings and numbers serialize");
            tell(&format!("{}\n", json::plain(&json)))?;
        }
    }
    if report.healthy { Ok(()) } else { Err(Stop::Unsound) }
}

/// What can be seen of a store: first what waits for none of its tables, and these where nobody is in the way. A store
/// that cannot be opened is a finding, but for one in whose place there is none.
async fn look_at(location: &Location) -> Result<Seen, Stop> {
    let described =
        Description { kind: location.kind(), location: location.to_string(), connection: None, not_durable: None };
    let nothing = |findings| Seen { description: described.clone(), findings, ledger: None, condition: None };
    let unopened = |error: OpenError, mut findings: Vec<Finding>| match Finding::of(&error) {
        Some(found) => {
            if !findings.iter().any(|known| known.name == found.name) {
                findings.push(found);
            }
            Ok(nothing(findings))
        }
        None if findings.is_empty() => Err(Stop::Unreachable(chain(&error))),
        None => Ok(nothing(findings)),
    };
    let Diagnosis { mut findings, is_open } = match open::diagnose(location).await {
        Ok(diagnosis) => diagnosis,
        Err(error) => return unopened(error, Vec::new()),
    };
    if !is_open {
        return Ok(nothing(findings));
    }
    let options = OpenOptions::default();
    let inspect = match open::for_reading(location, &options, Arc::new(SystemClock)).await {
        Ok(inspect) => inspect,
        Err(error) => return unopened(error, findings),
    };
    let condition = match patiently(ASKED_MAX, || inspect.condition()).await {
        Ok(condition) => Some(condition),
        Err(error) => {
            findings.push(Finding {
                name: Fault::Unreadable,
                what: format!("The condition of the ledger cannot be read: {}", chain(&error)),
                todo: "Look at the log of the database; `runledger verify` reads every row".to_owned(),
            });
            None
        }
    };
    Ok(Seen { description: inspect.describe(), findings, ledger: Some(inspect.ledger()), condition })
}
