//! One GET of a small document, over a connection of its own.
//!
//! A fetch is rare, so nothing is kept between two: files of trust are read anew, and a server that moved is found. A
//! redirect is not followed, and the answer is bounded in bytes. The time is bounded by the caller.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST, HeaderValue, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{BadFile, KeyUrl, SOURCE_BYTES_MAX, Trust, small_file};
use crate::clock::{HandshakeTime, SystemClock};

/// The most bytes of the head of an answer, which hyper reads before the body.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The reason for which a document was not fetched.
#[derive(Debug, Error)]
pub(super) enum FetchFailed {
    /// A file of trust cannot be read.
    #[error(transparent)]
    File(#[from] BadFile),
    /// The file of CAs has no certificate.
    #[error("{} holds no certificate that can be read", .0.display())]
    NoCa(PathBuf),
    /// The platform has no root certificate.
    #[error("the platform has no root certificates: name a file of CAs")]
    NoRoots,
    /// The file of the bearer token holds something that no header can carry.
    #[error("{} holds no bearer token", .0.display())]
    NoToken(PathBuf),
    /// The host is no name that a certificate can prove.
    #[error("the host is no name that a certificate can prove")]
    Name,
    /// rustls refuses its settings.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The server cannot be reached, or the handshake fails.
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    /// A name of loopback leads elsewhere, and nothing would protect what is fetched.
    #[error("the host is not loopback, and the URL is not https")]
    NotLoopback,
    /// The exchange failed.
    #[error("the exchange with the server failed")]
    Exchange(#[source] hyper::Error),
    /// The request cannot be written.
    #[error("the request cannot be written")]
    Request(#[source] http::Error),
    /// The answer is not 200. A redirect is not followed.
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// The answer is larger than any that is meant.
    #[error("the answer has more than {SOURCE_BYTES_MAX} bytes")]
    TooLarge,
}

/// The document at a URL.
pub(super) async fn fetch(url: &KeyUrl, trust: &Trust) -> Result<Vec<u8>, FetchFailed> {
    let read = {
        let (trust, https) = (trust.clone(), url.is_https());
        move || TrustFiles::files(&trust, https)
    };
    let read = tokio::task::spawn_blocking(read).await.map_err(|lost| FetchFailed::Connect(lost.into()))??;
    let tcp = TcpStream::connect((url.host(), url.port())).await.map_err(FetchFailed::Connect)?;
    match read.tls {
        Some(tls) => {
            let name = ServerName::try_from(url.host().to_owned()).map_err(|_| FetchFailed::Name)?;
            let tls = TlsConnector::from(tls).connect(name, tcp).await.map_err(FetchFailed::Connect)?;
            get(url, read.authorization, tls).await
        }
        None if tcp.peer_addr().is_ok_and(|peer| peer.ip().is_loopback()) => get(url, read.authorization, tcp).await,
        None => Err(FetchFailed::NotLoopback),
    }
}

/// The content of the files of trust. There is no `Debug`: the token is in it.
struct TrustFiles {
    tls: Option<Arc<ClientConfig>>,
    authorization: Option<HeaderValue>,
}

impl TrustFiles {
    fn files(trust: &Trust, https: bool) -> Result<Self, FetchFailed> {
        let tls = if https { Some(tls(trust)?) } else { None };
        let authorization = trust.bearer_token_file.as_deref().map(|path| {
            let token = small_file::read(path)?;
            let token = token.trim_ascii();
            let value = HeaderValue::from_bytes(&[b"Bearer ", token].concat());
            let mut value =
                value.ok().filter(|_| !token.is_empty()).ok_or_else(|| FetchFailed::NoToken(path.to_owned()))?;
            value.set_sensitive(true);
            Ok::<_, FetchFailed>(value)
        });
        Ok(Self { tls, authorization: authorization.transpose()? })
    }
}

fn tls(trust: &Trust) -> Result<Arc<ClientConfig>, FetchFailed> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &trust.ca_file {
        let pem = small_file::read(path)?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|_| FetchFailed::NoCa(path.clone()))?;
            roots.add(certificate).map_err(FetchFailed::Tls)?;
        }
        if roots.is_empty() {
            return Err(FetchFailed::NoCa(path.clone()));
        }
    } else {
        // The platform's own bundle may hold certificates that rustls cannot read: the others are used.
        let _added_and_not = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(FetchFailed::NoRoots);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let time = Arc::new(HandshakeTime(Arc::new(SystemClock)));
    let config = ClientConfig::builder_with_details(provider, time).with_safe_default_protocol_versions();
    let config = config.map_err(FetchFailed::Tls)?.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

async fn get(
    url: &KeyUrl,
    authorization: Option<HeaderValue>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Vec<u8>, FetchFailed> {
    let mut request = Request::get(url.path())
        .header(HOST, url.authority())
        .header(USER_AGENT, concat!("runledger/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "application/json, application/jwk-set+json")
        .header(CONNECTION, "close");
    if let Some(value) = authorization {
        request = request.header(AUTHORIZATION, value);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(FetchFailed::Request)?;
    let builder = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).clone();
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(FetchFailed::Exchange)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(FetchFailed::Exchange)?;
        if response.status() != StatusCode::OK {
            return Err(FetchFailed::Status(response.status()));
        }
        let (mut body, mut document) = (response.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(FetchFailed::Exchange)?.into_data().unwrap_or_default();
            if document.len() + data.len() > SOURCE_BYTES_MAX {
                return Err(FetchFailed::TooLarge);
            }
            document.extend_from_slice(&data);
        }
        Ok(document)
    };
    // The answer is read to its end also when the connection has ended: it is what is waited for.
    let driven = async {
        let _end = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        answer = answer => answer,
        never = driven => match never {},
    }
}
