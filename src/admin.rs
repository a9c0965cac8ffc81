//! The admin port: what those ask who run the process, by HTTP/1 and in plain text, on a port of its own.
//!
//! It answers until the end of a drain, so that whoever asks learns of the drain. It knows no callers and shows nothing
//! of theirs by name: it must never do more than that, because nobody proves here who he is.

mod answer;
mod places;
mod scrapes;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::places::{Places, YieldingConnection};
use self::scrapes::Scrapes;
use crate::grpc::health::Readiness;
use crate::tasks::Supervisor;
use crate::telemetry::LogThrottle;
use crate::telemetry::meter::Exposition;

/// Connections at once. A further one takes the place of another: see [`places`].
const CONNECTIONS_MAX: usize = 64;

/// Interval at which a new connection looks for a place, where all others are owed an answer.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time for a request's head to come, and so also the time that a connection stays without a request.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(10);

/// Age that a connection reaches.
const AGE_MAX: Duration = Duration::from_mins(1);

/// Time that a connection has to end once it was told to.
const GRACE: Duration = Duration::from_secs(1);

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The pause after a connection could not be accepted: the system has no descriptors or no memory left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers until the stop. Each connection is a task of `connections`.
pub async fn serve(
    listener: TcpListener,
    readiness: watch::Receiver<Readiness>,
    metrics: Exposition,
    connections: Supervisor,
    stop: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (said, metrics) = (LogThrottle::default(), Arc::new(Scrapes::new(metrics)));
    let mut places = Places::default();
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, _address)) => {
                    let held = loop {
                        if room.available_permits() == 0 {
                            places.give_one();
                        }
                        let held = timeout(LOOK_EVERY, room.clone().acquire_owned()).await;
                        if let Ok(held) = held {
                            break held.expect("never closed");
                        }
                    };
                    let place = YieldingConnection::default();
                    places.push(place.clone());
                    let served = connection(stream, readiness.clone(), metrics.clone(), place.clone(), stop.clone());
                    connections.spawn(async move {
                        let is_cut = place.is_cut();
                        let _ended = is_cut.clone().drop_guard();
                        is_cut.run_until_cancelled(served).await;
                        drop(held);
                    });
                }
                Err(error) => {
                    if let Some(unsaid) = said.is_due() {
                        tracing::error!(%error, unsaid, "connections to the admin port cannot be accepted");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = accepting => {}
    }
}

async fn connection(
    stream: TcpStream,
    readiness: watch::Receiver<Readiness>,
    metrics: Arc<Scrapes>,
    place: YieldingConnection,
    stop: CancellationToken,
) {
    let is_last = place.is_last().clone();
    let answers = service_fn(move |request: hyper::Request<_>| {
        let (readiness, metrics, place) = (*readiness.borrow(), metrics.clone(), place.clone());
        async move {
            place.asks();
            let answer = answer::to(request.method(), request.uri().path(), readiness, &metrics).await;
            place.is_answered();
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT_MAX).max_buf_size(HEAD_BYTES_MAX);
    // The date would be of the machine's clock, of which the library bears no year after 9999.
    builder.auto_date_header(false);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), answers));
    let age = Instant::now() + AGE_MAX;
    let over = || async {
        tokio::select! { () = stop.cancelled() => {}, () = sleep_until(age) => {} }
    };
    let ended = tokio::select! {
        biased;
        ended = served.as_mut() => Some(ended),
        () = is_last.cancelled() => {
            served.as_mut().graceful_shutdown();
            tokio::select! { biased; ended = served.as_mut() => Some(ended), () = over() => None }
        }
        () = over() => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        served.as_mut().graceful_shutdown();
        match timeout(GRACE, served).await {
            Ok(ended) => ended,
            Err(_elapsed) => return,
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the admin port ended");
    }
}
