//! `runledger serve`.

use std::net::SocketAddr;

use anyhow::Context as _;
use tokio::net::lookup_host;

use super::exit::Stop;
use crate::app::reloading::Settings;
use crate::config::ambient;
use crate::{app, telemetry};

pub(super) const HELP: &str = "Examples:\n  \
    runledger serve\n  \
    runledger serve --store sqlite:/var/lib/runledger/ledger.db\n  \
    RUNLEDGER_STORE=postgres://app:secret@db/runs runledger serve --listen 0.0.0.0:50051 --insecure\n  \
    runledger serve --access-file access.toml --tls-cert server.pem --tls-key server.key\n\n\
    SIGTERM or Ctrl-C stops it: commands that were accepted are answered, watchers are told to come back. That \
    takes less than a second, and 22 s at most when callers or the store hang. A second signal ends it at once.\n\n\
    Exit codes: 0 after a stop that was asked for; 1 when it could not serve or a part of it failed; 2 usage; \
    130 after a second signal.";

pub(super) async fn run(settings: Settings) -> Result<(), Stop> {
    let config = &settings.config;
    let location = config.store.location().map_err(Stop::Usage)?;
    let found = lookup_host(config.listen.as_str()).await;
    let addresses: Vec<SocketAddr> = found.with_context(|| format!("cannot resolve {}", config.listen))?.collect();
    config.admit(&addresses).map_err(Stop::Usage)?;
    config.are_files().map_err(Stop::Usage)?;
    telemetry::log(config.telemetry.log_format, &config.telemetry.log, ambient::wants_no_colour())
        .map_err(|error| Stop::Undone(format!("cannot log: {error}")))?;
    Ok(app::serve(settings, location, &addresses).await?)
}
