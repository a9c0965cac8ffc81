//! The only place that wires everything: bind, open the store, serve, drain.

mod admin_port;
mod banner;
mod credentials;
mod exporters;
mod gauges;
pub mod reloading;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::{TcpListener, lookup_host};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::admin_port::AdminPort;
use self::banner::{Ports, Spoken};
use self::exporters::Telling;
use self::reloading::{Reloaded, Settings};
use crate::auth::reload::AccessFile;
use crate::auth::{Gate, Trusted};
use crate::authority::{self, Authority, AuthoritySlot, Turns, WaitMax};
use crate::claims::{self, Claims};
use crate::clock::{Clock, SystemClock};
use crate::config::{Identity, ServeConfig};
use crate::engine::{self, ANSWER_WAIT_MAX, Engine};
use crate::feed::{self, Feed};
use crate::grpc::server::Served;
use crate::grpc::transport::listener::{self, Limits, Port};
use crate::grpc::transport::{CallerLimits, Lifetime, Totals};
use crate::grpc::{health, server};
use crate::memory::{self, Memory};
use crate::namespaces::Registry;
use crate::reads::Reads;
use crate::retention;
use crate::stdio;
use crate::store::observed::Observed;
use crate::store::open::{self, Location};
use crate::store::{Commits, Description, OpenError, Store, Upkeep};
use crate::tasks::Supervisor;
use crate::tasks::file_poll::{Ask, Looks};
use crate::tasks::signals::Signals;
use crate::telemetry::chain;
use crate::tls::Tls;
use crate::upkeep::progress::ProgressBoard;
use crate::upkeep::renewals::Renewals;
use crate::upkeep::rounds;
use crate::wire::WireFrames;
use crate::wire::seal::Seals;

/// Time that accepted commands may take to be answered, once the stop has come.
const SETTLE_WAIT_MAX: Duration = ANSWER_WAIT_MAX.saturating_add(Duration::from_secs(1));

/// Time that connections may stay after the last command was answered and the watchers were told to come back.
const GOODBYE_WAIT_MAX: Duration = Duration::from_secs(3);

/// Time that the store may take to close.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(3);

/// Time that a stop takes at most. A stop takes less than a second when nothing hangs.
pub const STOP_WAIT_MAX: Duration = SETTLE_WAIT_MAX.saturating_add(GOODBYE_WAIT_MAX).saturating_add(CLOSE_WAIT_MAX);

/// Time that the banner waits for the store: an operator who starts a server wants to know where it listens.
const BANNER_WAIT_MAX: Duration = Duration::from_secs(1);

/// The pause before an unreachable store is tried again.
const OPEN_PAUSE: Duration = Duration::from_secs(1);

/// Interval at which runs are looked for that were kept long enough.
const PURGE_EVERY: Duration = Duration::from_secs(10);

/// Serves until SIGTERM or Ctrl-C, then drains within [`STOP_WAIT_MAX`].
///
/// # Errors
///
/// The service could not begin, or a vital part of it failed.
pub async fn serve(settings: Settings, location: Location, listen: &[SocketAddr]) -> anyhow::Result<()> {
    let supervisor = Supervisor::new();
    let signals = signals(supervisor.stop())?;
    let stop = supervisor.stop();
    let (looks, ask) = Looks::every(settings.config.reload_interval);
    let asks = asks(ask)?;
    let ended = tokio::select! {
        biased;
        never = signals => match never {},
        never = asks => match never {},
        ended = run(settings, looks, location, listen, supervisor) => ended,
    };
    // The parts that are dropped now do not fail: they were given up.
    stop.cancel();
    ended
}

async fn run(
    settings: Settings,
    looks: Looks,
    location: Location,
    listen: &[SocketAddr],
    supervisor: Supervisor,
) -> anyhow::Result<()> {
    let config = settings.config.clone();
    let slot = AuthoritySlot::default();
    let clock = credentials::clock(slot.clone(), &supervisor);
    let tls = config.tls.files().map(|files| Tls::load(files, clock.clone())).transpose()?.map(Arc::new);
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
    let address = listener.local_addr()?;
    let admin = AdminPort::bind(&config).await?;
    let ports = Ports {
        address,
        admin: admin.as_ref().map(|admin| admin.address),
        tls: Spoken::new(&config),
        asks_for_credentials: config.access_file.is_some(),
    };

    // The port answers, and health can be asked, before the store is opened, because opening may take its time.
    let (health, monitor) = health::service(slot.clone(), supervisor.stop()).await;
    let telling = Telling::begin(&config.telemetry, admin.is_some())?;
    let admin = admin.map(|admin| admin.start(monitor.readiness(), telling.exposition(), &supervisor));
    gauges::of_health(monitor.is_well());
    supervisor.vital("health", monitor.run());
    if let Some(tls) = tls.clone() {
        let (looks, stop) = (looks.clone(), supervisor.stop());
        supervisor.vital("tls", async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = tls.follow(looks) => {}
            }
        });
    }
    // The listener has its own supervisor, because the drain waits for it after the committers.
    let listening = Supervisor::new();
    let asked = config.client_connections;
    let connections_max = listener::connections_max(asked, config.store.connections)?;
    if connections_max < asked {
        tracing::warn!(
            connections_max,
            asked,
            "fewer connections are taken than --client-connections: raise ulimit -n"
        );
    }
    let limits = Limits {
        connections_max,
        lifetime: Lifetime { idle_max: config.connection_idle_max, age_max: config.connection_age_max },
    };
    let callers =
        CallerLimits { calls_per_second: config.caller_calls_per_second, open_calls: config.caller_open_calls };
    memory::give_back_freed();
    let memory = Arc::new(Memory::new(config.memory_limit));
    let gate = gate(&config, looks.clone(), clock, &supervisor)?;
    let totals = Arc::new(Totals::new(callers, memory.clone()));
    gauges::of_build(location.kind());
    gauges::of_process(&totals, &slot, tls.as_ref(), &gate);
    let wait_max = WaitMax::new(config.wait_max);
    let reloaded = Reloaded { totals: totals.clone(), wait_max: wait_max.clone() };
    let stop = supervisor.stop();
    supervisor.vital("settings", async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = reloaded.follow(settings, looks) => {}
        }
    });
    let port = Port { listener, tls };
    let served = Served { slot: slot.clone(), health, gate, limits, totals };
    let serving = server::serve(port, served, listening.clone(), supervisor.stop());
    supervisor.vital("listener", serving.map_err(|error| anyhow::anyhow!("reflection: {}", chain(&*error)))?);

    let lost = Arc::new(OnceLock::new());
    // No store is installed after the stop: the drain would not see it.
    let stop = supervisor.stop();
    let opened = tokio::select! {
        biased;
        () = stop.cancelled() => None,
        opened = open(&config, &location, ports, &supervisor) => Some(opened),
    };
    match opened {
        None => {}
        Some(Ok(store)) => {
            supervisor.vital("store", until_lost(store.clone(), lost.clone(), supervisor.stop()));
            supervisor.vital("statistics", gauges::follow_statistics(store.clone(), supervisor.stop()));
            install(&slot, store, &supervisor, wait_max, memory.clone());
            gauges::of_authority(&slot);
            memory.set_base();
        }
        Some(Err(error)) => {
            stop.cancel();
            return Err(error);
        }
    }
    stop.cancelled().await;
    drain(&slot, &supervisor, &listening).await;
    if let Some(admin) = admin {
        admin.stop().cancel();
        admin.finished(GOODBYE_WAIT_MAX).await;
    }
    telling.end().await;
    match (supervisor.failed(), lost.get()) {
        (None, _) => Ok(()),
        (Some(_), Some(why)) => anyhow::bail!("{why}"),
        (Some(task), None) => anyhow::bail!("a vital part failed: {task}"),
    }
}

/// What would keep a server from starting by these settings, but for the store and the port.
pub async fn mistakes(config: &ServeConfig) -> Vec<String> {
    let addresses = match lookup_host(config.listen.as_str()).await {
        Ok(addresses) => Ok(addresses.collect::<Vec<SocketAddr>>()),
        Err(error) => Err(format!("cannot resolve {}: {error}", config.listen)),
    };
    let admitted = addresses.and_then(|addresses| config.admit(&addresses));
    let settings = config.clone();
    // Files may be large, disks slow, and a pipe is waited for.
    let files = tokio::task::spawn_blocking(move || {
        let store = settings.store.location().err();
        store.into_iter().chain(unusable_files(&settings)).collect::<Vec<_>>()
    });
    let files = files.await.unwrap_or_else(|error| vec![error.to_string()]);
    admitted.err().into_iter().chain(files).collect()
}

/// The files that settings name and that cannot be used, and why.
fn unusable_files(config: &ServeConfig) -> Vec<String> {
    let tls = config.tls.files().map(|files| Tls::load(files, Arc::new(SystemClock)).map(drop));
    let access = match config.identity() {
        Ok(Identity::Proven { access_file, kinds }) => {
            Some(AccessFile::open(access_file, kinds, takes_certificates(config)).map(drop))
        }
        Ok(Identity::Believed) | Err(_) => None,
    };
    let collectors = config.telemetry.collectors();
    // What the environment has for all programs keeps no server from starting.
    let named = collectors.metrics.or(collectors.traces).filter(|collector| !collector.is_ambient);
    let collector = named.map(|collector| collector.check().map_err(|error| chain(&error)));
    let tls = tls.map(|tls| tls.map_err(|error| chain(&error)));
    [tls, access, collector].into_iter().flatten().filter_map(Result::err).collect()
}

/// Whether clients are asked for certificates.
fn takes_certificates(config: &ServeConfig) -> bool {
    config.tls.files().is_some_and(|files| files.client.is_some())
}

/// The gate that calls pass. Its rules follow the access file.
fn gate(
    config: &ServeConfig,
    looks: Looks,
    clock: Arc<dyn Clock>,
    supervisor: &Supervisor,
) -> anyhow::Result<Arc<Gate>> {
    let (access_file, kinds) = match config.identity().map_err(anyhow::Error::msg)? {
        Identity::Believed => return Ok(Arc::new(Gate::open())),
        Identity::Proven { access_file, kinds } => (access_file, kinds),
    };
    let (file, kinds, rules) =
        AccessFile::open(access_file, kinds, takes_certificates(config)).map_err(anyhow::Error::msg)?;
    let trusted = Trusted::new(rules, clock.clone())?;
    let gate = Arc::new(Gate::of(kinds, trusted, clock));
    let (stop, following) = (supervisor.stop(), file.follow(gate.clone(), looks));
    supervisor.vital("identity", async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = following => {}
        }
    });
    Ok(gate)
}

/// Ends before the stop once the store is not the ledger any more, and leaves the sentence that tells the reason.
async fn until_lost(store: Arc<dyn Store>, why: Arc<OnceLock<String>>, stop: CancellationToken) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        sentence = store.lost() => {
            tracing::error!(reason = sentence, "the store is lost: no call is acknowledged any more");
            let _first = why.set(sentence);
        }
    }
}

/// Opens the store, and tries again for as long as the store does not answer or its schema is behind; every other
/// failure is an error. Tells where the server listens once the first attempt has ended, or takes long: a server whose
/// store is refused does not say that it listens.
async fn open(
    config: &ServeConfig,
    location: &Location,
    ports: Ports,
    supervisor: &Supervisor,
) -> anyhow::Result<Arc<dyn Store>> {
    let address = ports.address;
    let mut untold = Some(ports);
    let mut tell = |store: Option<&Description>| {
        if let Some(ports) = untold.take() {
            tracing::info!(%address, store = %location, "listening");
            banner::print(&ports, location, store);
        }
    };
    let mut said = String::new();
    loop {
        let mut attempt = pin!(open_store(config, location, supervisor));
        let opened = match timeout(BANNER_WAIT_MAX, &mut attempt).await {
            Ok(opened) => opened,
            Err(_elapsed) => {
                tell(None);
                attempt.await
            }
        };
        match opened {
            Ok(store) => {
                let description = store.describe();
                tell(Some(&description));
                let Description { location, connection, not_durable, .. } = description;
                tracing::info!(%address, store = location, connection, "the store is open");
                if let Some(why) = not_durable {
                    tracing::warn!("NOT DURABLE: {why}");
                }
                let store = Arc::new(Observed::around(store));
                gauges::of_store(&store);
                return Ok(store);
            }
            Err(error) if error.is_temporary() => {
                tell(None);
                let reason = chain(&error);
                if said != reason {
                    tracing::warn!(error = reason, "the store cannot be opened yet: waiting for it");
                    said = reason;
                }
            }
            Err(error) => return Err(error.into()),
        }
        sleep(OPEN_PAUSE).await;
    }
}

/// The health service is told by its own monitor, watches by their sessions: both see the stop. The drain answers every
/// accepted command, and then gives connections a moment to take their answers.
async fn drain(slot: &AuthoritySlot, supervisor: &Supervisor, listening: &Supervisor) {
    tracing::info!("draining");
    let until = Instant::now() + SETTLE_WAIT_MAX + GOODBYE_WAIT_MAX;
    if let Some(backend) = slot.get() {
        backend.engine.close();
    }
    if !supervisor.finished(SETTLE_WAIT_MAX).await {
        tracing::error!("commands in flight were not settled in time: their callers have OUTCOME_UNKNOWN");
    }
    if !listening.finished(GOODBYE_WAIT_MAX).await {
        // Who takes what is sent comes to the answers and the goodbyes behind it. Nobody waits for the others any longer.
        tracing::warn!("connections that did not close are cut");
        listening.stop().cancel();
        listening.finished(until.saturating_duration_since(Instant::now())).await;
    }
    if let Some(backend) = slot.get()
        && timeout(CLOSE_WAIT_MAX, backend.store.close()).await.is_err()
    {
        tracing::warn!("the store did not close in time");
    }
    tracing::info!("stopped");
}

/// Opens the store that the settings name. None is put in the place of one that cannot be opened: an empty ledger that
/// serves would take the ids of runs that have ended.
async fn open_store(
    config: &ServeConfig,
    location: &Location,
    supervisor: &Supervisor,
) -> Result<Arc<dyn Store>, OpenError> {
    let options = config.store.options(config.migrate, config.allow_unsafe_store);
    open::open(location, &options, Arc::new(SystemClock), supervisor).await
}

fn install(
    slot: &AuthoritySlot,
    store: Arc<dyn Store>,
    supervisor: &Supervisor,
    wait_max: WaitMax,
    process_memory: Arc<Memory>,
) {
    let seals = Arc::new(Seals::new(store.ledger()));
    let frames = WireFrames { seals: seals.clone() };
    let committed = Arc::new(Notify::new());
    let (commits, upkeep): (Arc<dyn Commits>, Arc<dyn Upkeep>) = (store.clone(), store.clone());
    let engine = Arc::new(Engine::start(&commits, store.clone(), supervisor, &committed, engine::Limits::default()));
    rounds::start(&upkeep, &engine, supervisor);
    supervisor.vital("retention", retention::keep(store.clone(), PURGE_EVERY, supervisor.stop()));
    let feed =
        Feed::start(store.clone(), store.clone(), supervisor, committed, Arc::new(frames), feed::Limits::default());
    slot.install(Authority {
        renewals: Renewals::start(&upkeep, store.clone(), supervisor),
        progress: ProgressBoard::start(upkeep.clone(), supervisor),
        claims: Claims::new(store.clone(), upkeep, engine.clone(), feed.clone(), supervisor, claims::Limits::default()),
        engine,
        feed,
        reads: Reads::new(store.clone(), supervisor),
        wait_max,
        turns: Turns::default(),
        looks: authority::Looks::default(),
        seals,
        namespaces: Registry::new(store.clone()),
        process_memory,
        store,
    });
}

/// Asks for looks at files whenever a SIGHUP comes.
///
/// # Errors
///
/// The system does not tell of signals.
fn asks(ask: Ask) -> anyhow::Result<impl Future<Output = Infallible>> {
    let mut hangups = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangups.recv().await.is_some() {
            tracing::info!("a SIGHUP came: settings, certificates and access rules are looked at now");
            ask.now();
        }
        std::future::pending().await
    })
}

/// Cancels `stop` at the first signal, SIGTERM or Ctrl-C; the second ends the process at once.
///
/// # Errors
///
/// The system does not tell of signals.
pub fn signals(stop: CancellationToken) -> anyhow::Result<impl Future<Output = Infallible>> {
    let mut signals = Signals::caught(&[SignalKind::interrupt(), SignalKind::terminate()])?;
    Ok(async move {
        loop {
            let _number = signals.next().await;
            if stop.is_cancelled() {
                stdio::err().say("runledger: stopped at once\n");
                stdio::flush();
                std::process::exit(130);
            }
            stop.cancel();
        }
    })
}
