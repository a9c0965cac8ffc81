//! A server of keys on loopback, over TLS with a CA of its own, that says what a test wants.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// What is said at a path: a status line, further headers, and a body.
type Answers = Arc<Mutex<HashMap<String, (String, String)>>>;

pub(super) struct KeyServer {
    pub(super) address: SocketAddr,
    /// The CA of the server's certificate, as PEM.
    pub(super) ca: String,
    scheme: &'static str,
    answers: Answers,
    heard: watch::Receiver<Vec<String>>,
    _task: JoinSet<()>,
}

impl KeyServer {
    pub(super) async fn start() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()].to_vec();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &ca).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
        Self::listen("https", ca.pem(), Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    pub(super) async fn start_plain() -> Self {
        Self::listen("http", String::new(), None).await
    }

    async fn listen(scheme: &'static str, ca: String, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, answers) = (listener.local_addr().unwrap(), Answers::default());
        let (sender, heard) = watch::channel(Vec::new());
        let (said, mut task) = (answers.clone(), JoinSet::new());
        task.spawn(async move {
            let mut calls = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, said, sender) = (tls.clone(), said.clone(), sender.clone());
                calls.spawn(async move {
                    match tls {
                        None => answer(stream, &said, &sender).await,
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            answer(stream, &said, &sender).await;
                        }
                    }
                });
            }
        });
        Self { address, ca, scheme, answers, heard, _task: task }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    /// From now on, a path is answered so.
    pub(super) fn says(&self, path: &str, status: &str, body: &str) {
        self.answers.lock().unwrap().insert(path.to_owned(), (status.to_owned(), body.to_owned()));
    }

    /// The heads of the requests that came.
    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.borrow().clone()
    }

    /// Waits until so many requests came.
    pub(super) async fn hears(&self, requests: usize) {
        let mut heard = self.heard.clone();
        heard.wait_for(|heard| heard.len() >= requests).await.unwrap();
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, said: &Answers, sender: &watch::Sender<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap();
    let answer = said.lock().unwrap().get(path).cloned();
    let (status, body) = answer.unwrap_or_else(|| ("404 Not Found".to_owned(), String::new()));
    sender.send_modify(|heard| heard.push(head.clone()));
    if status == "silence" {
        return std::future::pending().await;
    }
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    drop(stream.write_all(text.as_bytes()).await);
    drop(stream.shutdown().await);
}
