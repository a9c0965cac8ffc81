//! The listener: it accepts connections up to a bound.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::yield_now;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::routes::Routes;
use super::connection::{Accepted, Lifetime};
use super::totals::Totals;
use crate::auth::Gate;
use crate::tasks::Supervisor;
use crate::telemetry::LogThrottle;
use crate::tls::Tls;

/// Descriptors that are kept for the store, its files, and everything else that the process opens.
const DESCRIPTORS_KEPT: u64 = 90;

/// The pause after a connection could not be accepted: the system has no descriptors or no memory left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The bound of connections at once: as many as were asked for, but fewer than the process may have descriptors, whose
/// limit is raised as far as the system lets it. `of_store`: connections that the store may have of its own.
///
/// # Errors
///
/// The limit is so low that nobody could be served.
pub fn connections_max(asked: usize, of_store: usize) -> io::Result<usize> {
    let kept = DESCRIPTORS_KEPT + of_store as u64;
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(u64::MAX).min(asked as u64 + kept);
    if getrlimit(Resource::Nofile).current.is_some_and(|current| current < wanted) {
        // A limit that cannot be raised stays as it is.
        let _unchanged = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    match descriptors.saturating_sub(kept) {
        0 => Err(io::Error::other(format!(
            "this process may open {descriptors} files and connections; it needs more than {kept}: raise \
             its limit (ulimit -n, or LimitNOFILE of its unit)"
        ))),
        left => Ok(asked.min(usize::try_from(left).unwrap_or(usize::MAX))),
    }
}

/// The limits of all connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once.
    pub connections_max: usize,
    pub lifetime: Lifetime,
}

/// Bytes of one connection that were written, and that the kernel has not sent yet.
#[cfg(target_os = "linux")]
const KERNEL_UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// A port that was bound.
#[derive(Debug)]
pub struct Port {
    /// The port.
    pub listener: TcpListener,
    /// How the port speaks TLS, if it does.
    pub tls: Option<Arc<Tls>>,
}

/// Accepts connections until the stop, and serves each in a task of `connections`.
pub(in crate::grpc) async fn listen(
    port: Port,
    routes: Routes,
    gate: Arc<Gate>,
    limits: Limits,
    totals: Arc<Totals>,
    connections: Supervisor,
    stop: CancellationToken,
) {
    let Port { listener, tls } = port;
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let crowded = watch::Sender::new(false);
    let mut log = AcceptLog::default();
    let accepting = async {
        loop {
            let is_full = places.available_permits() == 0;
            if is_full {
                log.full(limits.connections_max);
            }
            crowded.send_if_modified(|crowded| std::mem::replace(crowded, is_full) != is_full);
            let place = places.clone().acquire_owned().await.expect("never closed");
            crowded.send_if_modified(std::mem::take);
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    log.failed(&error);
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            log.is_over();
            // An answer waits for nothing.
            let _unset = stream.set_nodelay(true);
            bound_unsent(&stream);
            let (stop, leave) = (stop.clone(), connections.stop());
            let accepted = Accepted { stream, tls: tls.clone(), address, lifetime: limits.lifetime, stop, leave };
            let served = accepted.serve(routes.clone(), gate.clone(), totals.clone(), crowded.subscribe());
            connections.spawn(async move {
                served.await;
                drop(place);
            });
            // A crowd that connects would else be accepted in one go, while calls of others wait.
            yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = accepting => {}
        () = totals.follow() => {}
    }
}

/// Keeps what a peer does not take out of the kernel, which would hold megabytes of it: here it is counted for the
/// connection, and the goodbye of a server that stops comes soon behind it.
#[cfg(target_os = "linux")]
fn bound_unsent(stream: &TcpStream) {
    let _unset = socket2::SockRef::from(stream).set_tcp_notsent_lowat(KERNEL_UNSENT_BYTES_MAX);
}

/// Elsewhere the kernel's buffer is as large as it is.
#[cfg(not(target_os = "linux"))]
fn bound_unsent(_stream: &TcpStream) {}

/// Logs failures to accept, not more often than somebody wants to read of them.
#[derive(Debug, Default)]
struct AcceptLog {
    full: LogThrottle,
    failed: LogThrottle,
    failing: bool,
}

impl AcceptLog {
    fn full(&mut self, connections_max: usize) {
        if self.full.is_due().is_some() {
            tracing::warn!(
                connections_max,
                "all connections are taken (--client-connections, ulimit -n): idle ones are closed, new ones wait"
            );
        }
    }

    fn failed(&mut self, error: &io::Error) {
        if self.failed.is_due().is_some() {
            self.failing = true;
            tracing::error!(%error, "connections cannot be accepted: trying again until they can");
        }
    }

    fn is_over(&mut self) {
        if std::mem::take(&mut self.failing) {
            tracing::info!("connections are accepted again");
        }
    }
}
