//! A connection to a server: TCP, then TLS where it is asked for. Each new connection reads the files of TLS anew, and
//! notes the fault that kept it from coming to be.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tower::{ServiceExt as _, service_fn};

use crate::fault::Fault;
use crate::server_address::ServerAddress;
use crate::tls::Tls;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The way to a server.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) address: ServerAddress,
    pub(crate) endpoint: Endpoint,
    pub(crate) tls: Option<Arc<Tls>>,
}

/// The fault that was met last on a channel, which makes new connections by itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Arc<Mutex<Option<Fault>>>);

impl Faults {
    pub(crate) fn last(&self) -> Option<Fault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, fault: Option<Fault>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }
}

impl Route {
    /// Connects. The channel connects anew by itself where the server has ended the connection.
    pub(crate) async fn connect(&self, faults: &Faults) -> Result<Channel, tonic::transport::Error> {
        let (route, faults) = (self.clone(), faults.clone());
        let connector = service_fn(move |uri: Uri| {
            let (route, faults) = (route.clone(), faults.clone());
            async move {
                faults.note(None);
                let connected = route.dial(uri, &faults).await;
                if let Err(Unconnected::Fault(fault)) = &connected {
                    faults.note(Some(fault.clone()));
                }
                connected.map(TokioIo::new).map_err(BoxError::from)
            }
        });
        self.endpoint.connect_with_connector(connector).await
    }

    async fn dial(&self, uri: Uri, faults: &Faults) -> Result<Stream, Unconnected> {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        let tcp = tcp.oneshot(uri).await.map_err(|error| Unconnected::Tcp(error.into()))?.into_inner();
        let heard = |io, is_tls, has_identity| Stream { io, is_tls, has_identity, has_heard: false, faults: faults.clone() };
        let Some(tls) = &self.tls else { return Ok(heard(Box::new(tcp), false, false)) };
        let loaded = {
            let tls = tls.clone();
            tokio::task::spawn_blocking(move || tls.load()).await
        };
        let config = loaded.map_err(|error| Unconnected::Tcp(error.into()))?;
        let config = config.map_err(|error| Fault::Files(error.to_string()))?;
        let expected = tls.expected_name(self.address.host()).to_owned();
        let name = ServerName::try_from(expected).map_err(|error| Fault::Handshake(error.to_string()))?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
        let stream = stream.map_err(|error| Fault::of_handshake(&error, tls.has_identity()))?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(Fault::NoHttp2.into());
        }
        Ok(heard(Box::new(stream), true, tls.has_identity()))
    }
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
    faults: Faults,
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut this.io).poll_read(cx, buffer));
        if !std::mem::replace(&mut this.has_heard, true) {
            let fault = match &read {
                Ok(()) if this.is_tls => None,
                Ok(()) => Fault::of_first_bytes(&buffer.filled()[before..]),
                Err(error) => Fault::of_first_read(error, this.has_identity),
            };
            if let Some(fault) = fault {
                this.faults.note(Some(fault.clone()));
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault)));
            }
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    /// Over TLS a frame's head and body are copied together, or each would become a record of its own.
    fn is_write_vectored(&self) -> bool {
        !self.is_tls && self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
