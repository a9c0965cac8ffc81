//! A connection to a server: TCP, then TLS where it is asked for. Each new connection reads the files of TLS anew, and
//! notes the fault that kept it from coming to be.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tower::{ServiceExt as _, service_fn};

use crate::fault::Fault;
use crate::server_address::ServerAddress;
use crate::tls::Tls;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The way to a server.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) address: ServerAddress,
    pub(crate) endpoint: Endpoint,
    pub(crate) tls: Option<Arc<Tls>>,
    /// Whether nothing may be sent to another machine, because a token would cross the network for everybody to read.
    pub(crate) loopback_only: bool,
}

/// The beginnings of a channel's connections: a channel makes new ones by itself.
#[derive(Clone, Debug)]
pub(crate) struct Beginnings(watch::Sender<(u64, Beginning)>);

/// The state of the newest connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Beginning {
    /// The server has said nothing yet.
    Silent,
    /// The server speaks HTTP/2.
    Heard,
    /// The connection ended before the server said anything, for this reason.
    Ended(String),
    Fault(Fault),
}

/// The reason why a server is not called: it speaks no HTTP/2 with this client.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotHeard(String);

impl Beginnings {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new((0, Beginning::Silent)))
    }

    /// The fault of the newest connection.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match &self.0.borrow().1 {
            Beginning::Fault(fault) => Some(fault.clone()),
            Beginning::Silent | Beginning::Heard | Beginning::Ended(_) => None,
        }
    }

    /// A new connection, by its number.
    fn next(&self) -> u64 {
        self.0.send_modify(|(number, beginning)| (*number, *beginning) = (*number + 1, Beginning::Silent));
        self.0.borrow().0
    }

    /// Notes the state of a connection, unless there is a newer one.
    fn is(&self, number: u64, beginning: Beginning) {
        self.0.send_if_modified(|newest| {
            let is_newest = newest.0 == number;
            if is_newest {
                newest.1 = beginning;
            }
            is_newest
        });
    }

    /// Waits until the server has said its first bytes.
    async fn heard(&self) -> Result<(), NotHeard> {
        let mut beginning = self.0.subscribe();
        let begun = beginning.wait_for(|(_, beginning)| *beginning != Beginning::Silent).await;
        match &begun.expect("the sender is borrowed").1 {
            Beginning::Silent | Beginning::Heard => Ok(()),
            Beginning::Ended(reason) => Err(NotHeard(reason.clone())),
            Beginning::Fault(fault) => Err(NotHeard(fault.to_string())),
        }
    }
}

impl Route {
    /// Connects, and waits for the server's first word before a call is sent to it. The kernel takes connections for a
    /// server that hangs; and over TLS, a server that refuses the client's certificate says so only after the handshake.
    /// The channel connects anew by itself where the server has ended the connection.
    pub(crate) async fn connect(&self, beginnings: &Beginnings) -> Result<Channel, BoxError> {
        let (route, noted) = (self.clone(), beginnings.clone());
        let connector = service_fn(move |uri: Uri| {
            let (route, beginnings) = (route.clone(), noted.clone());
            async move {
                let number = beginnings.next();
                let connected = route.dial(uri, number, &beginnings).await;
                if let Err(Unconnected::Fault(fault)) = &connected {
                    beginnings.is(number, Beginning::Fault(fault.clone()));
                }
                connected.map(TokioIo::new).map_err(BoxError::from)
            }
        });
        let channel = self.endpoint.connect_with_connector(connector).await?;
        beginnings.heard().await?;
        Ok(channel)
    }

    async fn dial(&self, uri: Uri, number: u64, beginnings: &Beginnings) -> Result<Stream, Unconnected> {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        let tcp = tcp.oneshot(uri).await.map_err(|error| Unconnected::Tcp(error.into()))?.into_inner();
        if self.loopback_only {
            stays_here(&tcp)?;
        }
        let stream = |io, is_tls, has_identity| {
            let beginnings = beginnings.clone();
            Stream { io, is_tls, has_identity, has_heard: false, failed: None, number, beginnings }
        };
        let Some(tls) = &self.tls else { return Ok(stream(Box::new(tcp), false, false)) };
        let loaded = {
            let tls = tls.clone();
            tokio::task::spawn_blocking(move || tls.load()).await
        };
        let config = loaded.map_err(|error| Unconnected::Tcp(error.into()))?;
        let config = config.map_err(|error| Fault::Files(error.to_string()))?;
        let expected = tls.expected_name(self.address.host()).to_owned();
        let name = ServerName::try_from(expected).map_err(|error| Fault::Handshake(error.to_string()))?;
        let secured = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
        let secured = secured.map_err(|error| Fault::of_handshake(&error, tls.has_identity()))?;
        if secured.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(Fault::NoHttp2.into());
        }
        Ok(stream(Box::new(secured), true, tls.has_identity()))
    }
}

/// Refuses a connection that leads to another machine. A name says nothing of that: whoever answers for it decides where
/// `x.localhost` leads, and that is known only of the connection itself.
fn stays_here(tcp: &TcpStream) -> Result<(), Unconnected> {
    let peer = tcp.peer_addr().map_err(|error| Unconnected::Tcp(error.into()))?.ip();
    if peer.to_canonical().is_loopback() { Ok(()) } else { Err(Fault::TokenInPlainText(peer).into()) }
}

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
enum Unconnected {
    #[error(transparent)]
    Tcp(BoxError),
    #[error(transparent)]
    Fault(#[from] Fault),
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection that looks at what the server says first: a server of another protocol, or one that refuses the
/// client's certificate, shows by that.
struct Stream {
    io: Box<dyn Io>,
    is_tls: bool,
    has_identity: bool,
    has_heard: bool,
    /// The error of a write before anything was heard: it is told when what the server said before is read.
    failed: Option<io::Error>,
    number: u64,
    beginnings: Beginnings,
}

impl Stream {
    /// Notes what the server said first. A fault is an error of the read.
    fn hear(&mut self, read: Result<&[u8], &io::Error>) -> io::Result<()> {
        if std::mem::replace(&mut self.has_heard, true) {
            return Ok(());
        }
        let beginning = match read {
            Ok([]) => self.ended("the connection was closed"),
            Ok(_) if self.is_tls => Beginning::Heard,
            Ok(said) => Fault::of_first_bytes(said).map_or(Beginning::Heard, Beginning::Fault),
            Err(error) => match Fault::of_first_read(error, self.has_identity) {
                Some(fault) => Beginning::Fault(fault),
                None => self.ended(&error.to_string()),
            },
        };
        self.beginnings.is(self.number, beginning.clone());
        match beginning {
            Beginning::Fault(fault) => Err(io::Error::new(io::ErrorKind::InvalidData, fault)),
            Beginning::Silent | Beginning::Heard | Beginning::Ended(_) => Ok(()),
        }
    }

    /// Writes. A server that refuses the first bytes says why and closes, and a further write may then fail before that
    /// was read: so it is read.
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut dyn Io>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.failed.is_none() {
            match ready!(write(Pin::new(&mut *self.io), cx)) {
                Err(error) if !self.has_heard => self.failed = Some(error),
                written => return Poll::Ready(written),
            }
        }
        let mut first = [0; 16];
        let mut buffer = ReadBuf::new(&mut first);
        let read = ready!(Pin::new(&mut *self.io).poll_read(cx, &mut buffer));
        self.hear(read.as_ref().map(|()| buffer.filled()))?;
        Poll::Ready(Err(self.failed.take().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())))
    }

    /// The state of a connection that the server ended before it said anything. Over TLS that is how a client may see
    /// that its certificate is missing or refused: what the server says of it can get lost.
    fn ended(&self, reason: &str) -> Beginning {
        match (self.is_tls, self.has_identity) {
            (false, _) => Beginning::Ended(reason.to_owned()),
            (true, true) => Beginning::Fault(Fault::Ended("it may not accept the client certificate")),
            (true, false) => Beginning::Fault(Fault::Ended("it may ask for a client certificate")),
        }
    }
}

impl Drop for Stream {
    /// A connection may end by a failed write, without a read.
    fn drop(&mut self) {
        if !self.has_heard {
            self.beginnings.is(self.number, self.ended("the connection ended"));
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut *this.io).poll_read(cx, buffer));
        this.hear(read.as_ref().map(|()| &buffer.filled()[before..]))?;
        Poll::Ready(read)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.written(cx, |io, cx| io.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.written(cx, |io, cx| io.poll_write_vectored(cx, slices))
    }

    /// Over TLS a frame's head and body are copied together, or each would become a record of its own.
    fn is_write_vectored(&self) -> bool {
        !self.is_tls && self.io.is_write_vectored()
    }

    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method by its name is not general enough in its lifetimes"
    )]
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.written(cx, |io, cx| io.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, UdpSocket};

    use tokio::net::TcpListener;

    use super::*;

    /// An address of this machine that others may have as well. A machine without a network has none.
    fn of_the_network() -> Option<IpAddr> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        // Nothing is sent: the system only looks up by which of its addresses it would go.
        socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).ok()?;
        socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
    }

    async fn tried(place: IpAddr, loopback_only: bool) -> (Option<Fault>, bool) {
        let listener = TcpListener::bind((place, 0)).await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        // The name is what was promised, and the endpoint where it led.
        let (address, endpoint) = ("x.localhost:1".parse().unwrap(), Endpoint::from_shared(uri).unwrap());
        let route = Route { address, endpoint, tls: None, loopback_only };
        let beginnings = Beginnings::new();
        let served = async {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut said = Vec::new();
            // What came: nothing, or the beginning of HTTP/2.
            let _ended = tokio::io::AsyncReadExt::read_buf(&mut tcp, &mut said).await;
            !said.is_empty()
        };
        let (connected, was_told) = tokio::join!(route.connect(&beginnings), served);
        assert!(connected.is_err(), "nobody speaks HTTP/2 there");
        (beginnings.fault(), was_told)
    }

    #[tokio::test]
    async fn the_other_end_of_the_connection_says_whether_a_token_stays_here_and_not_its_name() {
        let loopback = Ipv4Addr::LOCALHOST.into();
        assert_eq!(tried(loopback, true).await, (None, true));
        if let Some(elsewhere) = of_the_network() {
            assert_eq!(tried(elsewhere, true).await, (Some(Fault::TokenInPlainText(elsewhere)), false));
            assert_eq!(tried(elsewhere, false).await, (None, true));
        }
    }
}
