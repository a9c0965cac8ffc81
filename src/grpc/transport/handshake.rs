//! The beginning of a connection: its TLS, where the port speaks it, and HTTP/2's preface.

use std::io;
use std::pin::pin;

use thiserror::Error;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::ciphertext::Ciphertext;
use super::preface::{self, Preface};
use super::read_quantum::Quantum;
use super::rejection;
use crate::tls::{Client, Refused, Tls};

/// The first byte of a client that speaks TLS: its record is a handshake.
pub(super) const TLS_HANDSHAKE: u8 = 0x16;

/// A connection that has begun.
pub(super) struct Begun {
    pub(super) stream: Either<TcpStream, Box<TlsStream<Ciphertext>>>,
    pub(super) preface: Preface,
    pub(super) client: Option<Client>,
}

/// The reason why a connection does not begin.
#[derive(Debug, Error)]
pub(super) enum NotBegun {
    /// It ended, took too long, or did not speak HTTP/2.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Client and port do not agree on how they speak, or who the client is. An operator may have set something wrong.
    #[error("{what}")]
    Disagreed {
        what: String,
        #[source]
        source: Option<io::Error>,
    },
}

/// Begins a connection. Takes as long as the client does.
pub(super) async fn begin(stream: TcpStream, tls: Option<&Tls>, quantum: &Quantum) -> Result<Begun, NotBegun> {
    let begins = async {
        match tls {
            None => plain(stream).await,
            Some(tls) => secured(stream, tls, quantum).await,
        }
    };
    quantum.pace(pin!(begins)).await
}

async fn plain(mut stream: TcpStream) -> Result<Begun, NotBegun> {
    if first_bytes(&stream).await?[0] == TLS_HANDSHAKE {
        // A plain-text answer tells a TLS client more than a closed socket: "wrong version number", "not a TLS handshake".
        rejection::http_1(&mut stream, "This port speaks gRPC without TLS.").await?;
        return Err(disagreed("the client speaks TLS, and this port does not (--tls-cert)"));
    }
    let preface = preface::read(&mut stream).await?;
    Ok(Begun { stream: Either::Left(stream), preface, client: None })
}

async fn secured(mut stream: TcpStream, tls: &Tls, quantum: &Quantum) -> Result<Begun, NotBegun> {
    let first = first_bytes(&stream).await?;
    if first[0] != TLS_HANDSHAKE {
        match &first {
            // A GOAWAY would have some libraries connect again and again until the call's deadline.
            b"PRI" => rejection::tls(&mut stream).await?,
            [b'A'..=b'Z', ..] => rejection::http_1(&mut stream, "This port speaks gRPC by TLS only.").await?,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not begin with TLS").into()),
        }
        return Err(disagreed("the client speaks no TLS, and this port speaks nothing else"));
    }
    let secured = match tls.accept(Ciphertext::new(stream, quantum.clone())).await {
        Ok(secured) => secured,
        Err(refused) => return Err(tell(refused).await),
    };
    let mut stream = secured.stream;
    let preface = preface::read(&mut stream).await?;
    Ok(Begun { stream: Either::Right(Box::new(stream)), preface, client: secured.client })
}

/// The first bytes that come; zeros where fewer have come. They stay unread.
async fn first_bytes(stream: &TcpStream) -> io::Result<[u8; 3]> {
    let mut first = [0; 3];
    match stream.peek(&mut first).await? {
        0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed before it began")),
        _ => Ok(first),
    }
}

/// Tells a client why it is refused, and gives the reason.
async fn tell(refused: Refused<Ciphertext>) -> NotBegun {
    let what = refused.to_string();
    match refused {
        Refused::Handshake { source, stream } => {
            let mut stream = stream.into_inner();
            // The alert has been sent.
            if stream.shutdown().await.is_ok() {
                rejection::linger(&mut stream).await;
            }
            // rustls says so where the client broke a rule, or has another opinion.
            let is_disagreed = source.kind() == io::ErrorKind::InvalidData;
            return if is_disagreed { NotBegun::Disagreed { what, source: Some(source) } } else { source.into() };
        }
        Refused::NoProtocol(mut stream) => {
            let _gone = rejection::http_1(&mut stream, "This port speaks gRPC, over HTTP/2: offer h2 by ALPN.").await;
        }
        Refused::LongChain(mut stream) | Refused::Unnamed { mut stream, .. } => {
            let _gone = rejection::http_2(&mut stream, &what).await;
        }
    }
    NotBegun::Disagreed { what, source: None }
}

fn disagreed(what: &str) -> NotBegun {
    NotBegun::Disagreed { what: what.to_owned(), source: None }
}
