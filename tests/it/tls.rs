//! TLS on the real port: who is let in, what is told to those who are not, and what a change of the files does to those
//! who are connected.

mod certificates;
mod crowds;
mod openssl;
mod rotation;
mod spoken;
mod withdrawn;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::process::admin;
use crate::process::server::{Client, SOON, Server};
use crate::support::http2::{Frame, MAGIC, settings};
use crate::support::patient::Patient;
use crate::support::tls::{Ca, Pair, channel, connect};

/// The protocol that the port speaks.
const H2: &[&[u8]] = &[b"h2"];

/// A server that speaks TLS, and its files.
struct Served {
    server: Server,
    files: TempDir,
    /// The CA of the server's certificate.
    ca: Ca,
    /// The server's certificate.
    pair: Pair,
}

impl Served {
    /// A server that asks its clients for nothing.
    async fn start() -> Self {
        Self::start_with(&[], &[]).await
    }

    /// A server with more files, each with its flag and its text, and with more flags.
    async fn start_with(files: &[(&str, &str)], flags: &[&str]) -> Self {
        let (directory, ca) = (TempDir::new().unwrap(), Ca::new("the server's CA"));
        let path = |name: &str| directory.path().join(name).display().to_string();
        let pair = ca.server();
        pair.write(&directory.path().join("server.pem"), &directory.path().join("server.key"));
        let mut args = ["--store", "memory", "--reload-interval", "50ms"].map(str::to_owned).to_vec();
        args.extend(["--tls-cert".to_owned(), path("server.pem"), "--tls-key".to_owned(), path("server.key")]);
        for (flag, text) in files {
            std::fs::write(path(flag), text).unwrap();
            args.extend([format!("--{flag}"), path(flag)]);
        }
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let (server, admin) = admin::start(&args.iter().map(String::as_str).collect::<Vec<_>>()).await;
        admin::ready(admin).await;
        Self { server, files: directory, ca, pair }
    }

    /// The path of a file, by the name of its flag.
    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn trusted(&self, own: Option<&Pair>) -> Arc<ClientConfig> {
        self.ca.trusted(own, H2)
    }

    /// A client with or without a certificate.
    fn client(&self, own: Option<&Pair>) -> Client {
        Client::new(Patient::new(channel(self.server.address, self.trusted(own))))
    }

    /// The handshake of one connection, and HTTP/2's: the first bytes of the server's SETTINGS, or what came instead.
    async fn begins(&self, config: Arc<ClientConfig>) -> Result<(TlsStream<TcpStream>, Vec<u8>), std::io::Error> {
        let mut stream = connect(self.server.address, config).await?;
        stream.write_all(&[MAGIC, &settings(&[])].concat()).await?;
        let mut first = vec![0; 9];
        timeout(SOON, stream.read_exact(&mut first)).await.expect("an answer comes")?;
        Ok((stream, first))
    }
}

/// All that comes until the end, at most for a time.
async fn until_the_end(stream: &mut (impl tokio::io::AsyncRead + Unpin), wait_max: Duration) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = timeout(wait_max, stream.read_to_end(&mut bytes)).await;
    assert!(read.is_ok(), "it is not closed after {wait_max:?}: {bytes:?}");
    bytes
}

/// The frames that these bytes begin with.
fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        frames.push(Frame { kind: head[3], flags: head[4], stream, payload: payload.to_vec() });
        bytes = rest;
    }
    frames
}
