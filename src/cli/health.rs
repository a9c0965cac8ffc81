//! `runledger health`.

use std::time::Duration;

use clap::Args;

use super::ending::{NO_SERVER, Stop};
use super::fields::time_limit;
use super::output::tell;
use crate::grpc::health::{self, Health};
use crate::telemetry;
use runledger_client::HostPort;

pub(super) const HELP: &str = "Examples:\n  \
    runledger health\n  \
    runledger health --server 10.0.0.7:50051 --service liveness\n\n\
    Services: liveness, readiness, durability, runledger.v1.RunService (follows the store).\n\
    Exit codes: 0 serving; 1 not serving, or the output cannot be written; 2 usage; 3 unreachable.";

#[derive(Args, Debug)]
pub(super) struct HealthArgs {
    /// The server's address
    #[arg(long, env = "RUNLEDGER_SERVER", value_name = "HOST:PORT", default_value = "127.0.0.1:50051")]
    server: HostPort,
    /// The health service to ask for
    #[arg(long, value_name = "NAME", default_value = "readiness")]
    service: String,
    /// Time to wait for an answer: seconds, or such as 500ms or 2m
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = time_limit)]
    timeout: Duration,
}

pub(super) async fn run(args: HealthArgs) -> Result<(), Stop> {
    let HealthArgs { server, service, timeout } = args;
    match health::ask(server.as_str(), &service, timeout).await {
        Ok(Health::Serving) => Ok(tell(&format!("{service}: serving\n"))?),
        Ok(Health::NotServing) => {
            tell(&format!("{service}: not serving\n"))?;
            Err(Stop::Unsound)
        }
        Ok(Health::Unknown) => Err(Stop::Undone(format!("{server} has no health service named {service:?}"))),
        Err(error) => {
            let why = telemetry::chain(&*error);
            Err(Stop::Unreachable(format!("{server} does not answer: {why}; {NO_SERVER}")))
        }
    }
}
