//! `runledger monitoring`: what Prometheus and Grafana need to know of this release's metrics.

use std::io::{self, Write as _};

use clap::{Args, Subcommand};

use super::exit::Stop;
use crate::telemetry::metrics;

/// The alerts and the dashboard stand in the Helm chart, which reads no file outside itself. Tests hold both against the
/// table of metrics.
const RULES_FILE: &str = include_str!("../../helm/runledger/files/prometheus-rules.yaml");
const DASHBOARD_FILE: &str = include_str!("../../helm/runledger/files/grafana-dashboard.json");

macro_rules! exit_codes {
    () => {
        "Exit codes: 0 done; 1 the output cannot be written; 2 usage."
    };
}

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger monitoring rules > runledger-rules.yaml\n  \
    runledger monitoring dashboard > runledger-dashboard.json\n  \
    runledger monitoring metrics\n\n\
    A server tells its metrics at /metrics on --admin-listen, and sends them to the collector at --otlp-endpoint.\n",
    exit_codes!()
);

const RULES: &str = concat!("Examples:\n  runledger monitoring rules > runledger-rules.yaml\n\n", exit_codes!());
const DASHBOARD: &str =
    concat!("Examples:\n  runledger monitoring dashboard > runledger-dashboard.json\n\n", exit_codes!());
const METRICS: &str = concat!("Examples:\n  runledger monitoring metrics\n\n", exit_codes!());

/// See the module.
#[derive(Args, Debug)]
pub(super) struct MonitoringArgs {
    #[command(subcommand)]
    command: MonitoringCommand,
}

#[derive(Debug, Subcommand)]
enum MonitoringCommand {
    /// Print the alerts, as a file of rules for Prometheus
    #[command(after_help = RULES)]
    Rules,
    /// Print the dashboard, as Grafana imports it
    #[command(after_help = DASHBOARD)]
    Dashboard,
    /// Print the reference of all metrics, in Markdown
    #[command(after_help = METRICS)]
    Metrics,
}

pub(super) fn run(args: &MonitoringArgs) -> Result<(), Stop> {
    let text = match args.command {
        MonitoringCommand::Rules => RULES_FILE,
        MonitoringCommand::Dashboard => DASHBOARD_FILE,
        MonitoringCommand::Metrics => &metrics::reference(),
    };
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}
