//! `runledger health`.

use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use super::connect::Selected;
use super::exit::Stop;
use super::output::tell;
use crate::text::limit;
use runledger_client::flags::SERVER_DEFAULT;
use runledger_client::{Health, ServerAddress};

pub(super) const HELP: &str = "Examples:\n  \
    runledger health\n  \
    runledger health --server 10.0.0.7:50051 --service liveness\n\n\
    Services: liveness, readiness, durability, runledger.v1.RunService (follows the store). Each of several servers is \
    asked, and the first that does not serve ends it.\n\
    Exit codes: 0 serving; 1 not serving, or the output cannot be written; 2 usage; 3 unreachable.";

#[derive(Args, Debug)]
pub(super) struct HealthArgs {
    /// The server's address; or several with commas [default: 127.0.0.1:50051]
    #[arg(
        long,
        env = "RUNLEDGER_SERVER",
        value_name = "HOST:PORT",
        value_delimiter = ',',
        help_heading = "Connection"
    )]
    server: Vec<ServerAddress>,
    /// The health service to ask for
    #[arg(long, value_name = "NAME", default_value = "readiness")]
    service: String,
    /// Time to wait for an answer: seconds, or such as 500ms or 2m
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = limit, help_heading = "Connection")]
    timeout: Duration,
    #[command(flatten)]
    selected: Selected,
}

pub(super) async fn run(args: HealthArgs) -> Result<(), Stop> {
    let HealthArgs { server, service, timeout, selected } = args;
    let mut servers = selected.target(&server)?.servers;
    if servers.is_empty() {
        servers.push(SERVER_DEFAULT.parse().expect("it is an address"));
    }
    let several = servers.len() > 1;
    for server in servers {
        let named = if several { format!("{server} {service}") } else { service.clone() };
        match selected.client_of(&server)?.health(&service, Instant::now() + timeout).await? {
            Health::Serving => tell(&format!("{named}: serving\n"))?,
            Health::NotServing => {
                tell(&format!("{named}: not serving\n"))?;
                return Err(Stop::Unsound);
            }
            Health::Unknown => return Err(Stop::Undone(format!("{server} has no health service named {service:?}"))),
        }
    }
    Ok(())
}
