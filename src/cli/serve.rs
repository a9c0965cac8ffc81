//! `runledger serve`.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context as _;
use tokio::net::lookup_host;

use super::ending::{ended, usage};
use crate::config::ServeConfig;
use crate::{app, telemetry};

pub(super) const HELP: &str = "Examples:\n  \
    runledger serve\n  \
    runledger serve --store sqlite:/var/lib/runledger/ledger.db\n  \
    RUNLEDGER_STORE=postgres://app:secret@db/runs runledger serve --listen 0.0.0.0:50051 --insecure\n\n\
    SIGTERM or Ctrl-C stops it: commands that were accepted are answered, watchers are told to come back. That \
    takes less than a second, and 22 s at most when callers or the store hang. A second signal ends it at once.\n\n\
    Exit codes: 0 after a stop that was asked for; 1 when it could not serve or a part of it failed; 2 usage; \
    130 after a second signal.";

pub(super) async fn run(config: ServeConfig) -> ExitCode {
    let location = match config.store.location() {
        Ok(location) => location,
        Err(sentence) => return usage(&sentence),
    };
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
