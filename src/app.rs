//! The only place that wires everything: bind, open the store, serve, drain.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::clock::SystemClock;
use crate::config::ServeConfig;
use crate::engine::{ANSWER_WAIT_MAX, Engine};
use crate::feed::Feed;
use crate::service::{Backend, BackendSlot, health, server};
use crate::store::open::{self, Location};
use crate::store::{Description, OpenError, Store};
use crate::supervise::Supervisor;
use crate::telemetry::chain;

/// How long connections may stay after the last command was answered and the watchers were told to come back.
const GOODBYE_WAIT_MAX: Duration = Duration::from_secs(3);

/// How long the store may take to close.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(3);

/// The pause before an unreachable store is tried again.
const OPEN_PAUSE: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or Ctrl-C, then drains within a bound.
///
/// # Errors
///
/// It could not begin to serve, or a vital part of it failed.
pub async fn serve(config: ServeConfig, location: Location) -> anyhow::Result<()> {
    let supervisor = Supervisor::new();
    stop_on_signals(&supervisor)?;
    let listener =
        TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
    let address = listener.local_addr()?;
    let slot = BackendSlot::default();

    let opened = match open_store(&config, &location).await {
        Ok(store) => Some(store),
        Err(error) if error.is_temporary() => {
            tracing::warn!(error = chain(&error), "the store cannot be opened yet: waiting for it");
            None
        }
        Err(error) => return Err(error.into()),
    };
    banner(address, &location, opened.as_ref().map(|store| store.describe()).as_ref())?;
    match opened {
        Some(store) => install(&slot, store, &supervisor),
        None => supervisor.spawn(open_later(config, location, slot.clone(), supervisor.clone())),
    }

    // The listener has its own supervisor: it is waited for after the committers.
    let listening = Supervisor::new();
    let serving = {
        let (slot, supervisor) = (slot.clone(), supervisor.clone());
        let stop = supervisor.stop();
        async move {
            let report = async |reporter| {
                supervisor.vital("health", health::monitor(reporter, slot.clone(), supervisor.stop()));
            };
            if let Err(error) = server::serve(listener, slot.clone(), stop, report).await {
                tracing::error!(error = chain(&*error), "the listener failed");
            }
            supervisor.fail("listener");
        }
    };
    listening.spawn(serving);

    supervisor.stop().cancelled().await;
    drain(&slot, &supervisor, &listening).await;
    match supervisor.failed() {
        None => Ok(()),
        Some(task) => anyhow::bail!("a vital part failed: {task}"),
    }
}

/// The health reporter is told by its own monitor, watches by their sessions: both see the stop. Here every accepted
/// command is answered, and then connections get a moment to take their answers.
async fn drain(slot: &BackendSlot, supervisor: &Supervisor, listening: &Supervisor) {
    tracing::info!("draining");
    if let Some(backend) = slot.get() {
        backend.engine.close();
    }
    if !supervisor.finished(ANSWER_WAIT_MAX + Duration::from_secs(1)).await {
        tracing::error!("commands in flight were not settled in time: their callers have OUTCOME_UNKNOWN");
    }
    if !listening.finished(GOODBYE_WAIT_MAX).await {
        tracing::warn!("connections that did not close are cut");
    }
    if let Some(backend) = slot.get()
        && tokio::time::timeout(CLOSE_WAIT_MAX, backend.store.close()).await.is_err()
    {
        tracing::warn!("the store did not close in time");
    }
    tracing::info!("stopped");
}

/// The store that was asked for. With none asked for and a data directory that cannot be written: memory, said aloud.
async fn open_store(config: &ServeConfig, location: &Location) -> Result<Arc<dyn Store>, OpenError> {
    let options = config.store.options(config.migrate, config.allow_unsafe_store);
    match open::open(location, &options, Arc::new(SystemClock)).await {
        Err(error @ OpenError::ReadOnly { .. }) if config.store.location.is_none() => {
            tracing::warn!(error = chain(&error), "serving from memory: runs are gone when this process ends");
            open::open(&Location::Memory, &options, Arc::new(SystemClock)).await
        }
        opened => opened,
    }
}

/// Waits for a store that does not answer or whose schema is behind; anything else stops the service.
async fn open_later(config: ServeConfig, location: Location, slot: BackendSlot, supervisor: Supervisor) {
    let stop = supervisor.stop();
    let mut said = String::new();
    loop {
        let attempt = async {
            tokio::time::sleep(OPEN_PAUSE).await;
            open_store(&config, &location).await
        };
        let opened = tokio::select! {
            () = stop.cancelled() => return,
            opened = attempt => opened,
        };
        match opened {
            Ok(store) => {
                tracing::info!(store = store.describe().location, "the store is open");
                return install(&slot, store, &supervisor);
            }
            Err(error) if error.is_temporary() => {
                let reason = chain(&error);
                if said != reason {
                    tracing::warn!(error = reason, "still waiting for the store");
                    said = reason;
                }
            }
            Err(error) => {
                tracing::error!(error = chain(&error), "the store cannot be opened");
                return supervisor.fail("store");
            }
        }
    }
}

fn install(slot: &BackendSlot, store: Arc<dyn Store>, supervisor: &Supervisor) {
    let committed = Arc::new(Notify::new());
    slot.install(Backend {
        engine: Engine::start(store.clone(), supervisor, &committed),
        feed: Feed::start(store.clone(), supervisor, committed),
        store,
    });
}

/// The first signal drains; the second ends the process at once.
fn stop_on_signals(supervisor: &Supervisor) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = supervisor.stop();
    let task = async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if stop.is_cancelled() {
                eprintln!("runledger: stopped at once");
                std::process::exit(130);
            }
            stop.cancel();
        }
    };
    // Of a supervisor that nobody waits for: it lasts as long as the process.
    Supervisor::new().spawn(task);
    Ok(())
}

/// Says where it listens, where the data is, and what to try. The address is the first line's last word.
fn banner(address: SocketAddr, location: &Location, store: Option<&Description>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "Runledger {} listens on {address}", env!("CARGO_PKG_VERSION"))?;
    match store {
        Some(Description { location, not_durable: None, .. }) => writeln!(out, "  store  {location}")?,
        Some(Description { location, not_durable: Some(why), .. }) => {
            writeln!(out, "  store  {location}, NOT DURABLE: {why}")?;
        }
        None => writeln!(out, "  store  {location}, not open yet: waiting for it")?,
    }
    writeln!(out, "  agents are believed, not authenticated: ownership keeps honest agents apart, not hostile ones")?;
    writeln!(
        out,
        "  try    grpcurl -plaintext -d '{{\"task_thread_id\": \"hello\"}}' {address} runledger.v1.RunService/StartRun"
    )?;
    out.flush()
}
