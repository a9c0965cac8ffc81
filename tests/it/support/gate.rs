//! A front before a real server that speaks TLS, asks for a token, and passes on every call that has it: what a server
//! is that has TLS and identity, for the tests of clients.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tower::ServiceExt as _;

/// A front at work, ended with this value.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    rules: Arc<Rules>,
    ends: watch::Sender<u64>,
    _accepting: JoinSet<()>,
}

#[derive(Debug)]
struct Rules {
    /// None: plain text.
    tls: Mutex<Option<Arc<ServerConfig>>>,
    /// The tokens that are accepted; none: no token is asked for.
    tokens: Mutex<Option<Vec<String>>>,
    /// The headers of each call that came.
    calls: Mutex<Vec<HeaderMap>>,
}

impl Gate {
    /// A front on a free port of loopback. Without a TLS configuration it speaks plain text.
    pub(crate) async fn before(server: &str, tls: Option<ServerConfig>) -> Self {
        let behind = Endpoint::from_shared(format!("http://{server}")).unwrap().tcp_nodelay(true).connect_lazy();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let rules = Rules { tls: Mutex::new(tls.map(Arc::new)), tokens: Mutex::default(), calls: Mutex::default() };
        let (rules, ends) = (Arc::new(rules), watch::Sender::new(0));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, rules.clone(), ends.subscribe(), behind));
        Self { address, rules, ends, _accepting: accepting }
    }

    pub(crate) fn speaks(&self, tls: ServerConfig) {
        *lock(&self.rules.tls) = Some(Arc::new(tls));
    }

    /// From now on these tokens are accepted, and no others.
    pub(crate) fn accepts(&self, tokens: &[&str]) {
        *lock(&self.rules.tokens) = Some(tokens.iter().map(|token| format!("Bearer {token}")).collect());
    }

    /// Lets all connections end in an orderly way: GOAWAY, and the calls that were begun.
    pub(crate) fn ends_connections(&self) {
        self.ends.send_modify(|times| *times += 1);
    }

    /// The headers of the calls so far.
    pub(crate) fn calls(&self) -> Vec<HeaderMap> {
        lock(&self.rules.calls).clone()
    }

    /// The values of one header in the calls so far.
    pub(crate) fn sent(&self, name: &str) -> Vec<String> {
        let calls = self.calls();
        calls.iter().map(|call| call.get(name).map_or("", |value| value.to_str().unwrap()).to_owned()).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, rules: Arc<Rules>, ends: watch::Receiver<u64>, behind: Channel) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut ends = ends.clone();
        ends.mark_unchanged();
        connections.spawn(serve(stream, rules.clone(), ends, behind.clone()));
    }
}

async fn serve(stream: TcpStream, rules: Arc<Rules>, mut ends: watch::Receiver<u64>, behind: Channel) {
    let tls = lock(&rules.tls).clone();
    let answers = service_fn(move |request| answer(request, rules.clone(), behind.clone()));
    macro_rules! serve {
        ($io:expr) => {{
            let mut connection =
                std::pin::pin!(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new($io), answers));
            let ended = tokio::select! {
                ended = &mut connection => Some(ended),
                _ = ends.changed() => None,
            };
            if ended.is_none() {
                connection.as_mut().graceful_shutdown();
                let _ended = connection.await;
            }
        }};
    }
    match tls {
        None => serve!(stream),
        Some(tls) => match TlsAcceptor::from(tls).accept(stream).await {
            Ok(stream) => serve!(stream),
            Err(_refused) => {}
        },
    }
}

async fn answer(
    request: Request<Incoming>,
    rules: Arc<Rules>,
    behind: Channel,
) -> Result<Response<Body>, tonic::transport::Error> {
    lock(&rules.calls).push(request.headers().clone());
    let bearer = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let refused = lock(&rules.tokens).as_ref().is_some_and(|tokens| !bearer.is_some_and(|it| tokens.contains(&it)));
    if refused {
        return Ok(Status::unauthenticated("the token is not known").into_http());
    }
    let (mut parts, body) = request.into_parts();
    parts.headers.remove("authorization");
    parts.headers.remove("runledger-namespace");
    behind.oneshot(Request::from_parts(parts, Body::new(body))).await
}
