//! `runledger health`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::config::HostPort;
use crate::service::health::{self, Health};
use crate::telemetry;

pub(super) const HELP: &str = "Examples:\n  \
    runledger health\n  \
    runledger health --server 10.0.0.7:50051 --service liveness\n\n\
    Services: liveness, readiness, durability, runledger.v1.RunService (follows the store).\n\
    Exit codes: 0 serving; 1 not serving; 2 usage; 3 unreachable.";

#[derive(Args, Debug)]
pub(super) struct HealthArgs {
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

pub(super) async fn run(args: HealthArgs) -> ExitCode {
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
