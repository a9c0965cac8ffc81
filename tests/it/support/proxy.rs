//! A proxy in front of Postgres that knows a COMMIT when it sees one, and can cut, delay or hold it. A statement that
//! is a whole commit of its own counts as one.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// A rule for COMMITs.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// The connection is cut before the server hears the COMMIT.
    CutBefore,
    /// The connection is cut once the server has answered the COMMIT, and the client never hears.
    CutAfter,
    /// The connection is cut at once, and the server hears the COMMIT this much later.
    CutAndDeliver(Duration),
    /// The client hears the answer this much later.
    DelayAnswer(Duration),
    /// The server hears the COMMIT when this becomes true.
    HoldUntil(watch::Receiver<bool>),
}

/// A proxy at work.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    plan: Arc<Plan>,
    _connections: JoinSet<()>,
}

#[derive(Debug)]
struct Plan {
    /// The rule, and for how many COMMITs more.
    rule: Mutex<Option<(Rule, usize)>>,
    /// The COMMITs that a rule was for, so far.
    met: watch::Sender<usize>,
    /// True: no bytes are passed on, and no connection is closed.
    silent: watch::Sender<bool>,
    /// The port that new connections lead to.
    port: AtomicU16,
}

impl Plan {
    fn next(&self) -> Option<Rule> {
        let mut planned = self.rule.lock().unwrap();
        let (rule, times) = planned.take()?;
        if times > 1 {
            *planned = Some((rule.clone(), times - 1));
        }
        drop(planned);
        Some(rule)
    }

    fn is_met(&self) {
        self.met.send_modify(|met| *met += 1);
    }

    async fn may_speak(&self) {
        drop(self.silent.subscribe().wait_for(|silent| !silent).await);
    }
}

impl Proxy {
    /// Stands in front of the server of a DSN.
    pub(crate) async fn start(dsn: &str) -> Self {
        let config: tokio_postgres::Config = dsn.parse().unwrap();
        let port = config.get_ports()[0];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let plan = Arc::new(Plan {
            rule: Mutex::new(None),
            met: watch::channel(0).0,
            silent: watch::channel(false).0,
            port: AtomicU16::new(port),
        });
        let mut connections = JoinSet::new();
        let shared = plan.clone();
        connections.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let port = shared.port.load(Ordering::SeqCst);
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                connections.spawn(connection(client, server, shared.clone()));
            }
        });
        Self { address, plan, _connections: connections }
    }

    /// The DSN with the proxy in the server's place.
    pub(crate) fn in_front_of(&self, dsn: &str) -> String {
        let config: tokio_postgres::Config = dsn.parse().unwrap();
        let upstream = format!("127.0.0.1:{}", config.get_ports()[0]);
        assert!(dsn.contains(&upstream), "a DSN with {upstream} in it");
        // The proxy reads the protocol in clear.
        let joint = if dsn.contains('?') { '&' } else { '?' };
        format!("{}{joint}sslmode=disable", dsn.replace(&upstream, &self.address.to_string()))
    }

    /// Stands in front of another server from now on. Connections that are open stay where they are.
    pub(crate) fn lead_to(&self, dsn: &str) {
        let config: tokio_postgres::Config = dsn.parse().unwrap();
        self.plan.port.store(config.get_ports()[0], Ordering::SeqCst);
    }

    /// Does this to the next COMMITs.
    pub(crate) fn meet(&self, rule: Rule, times: usize) {
        *self.plan.rule.lock().unwrap() = Some((rule, times));
    }

    /// Lets every COMMIT through from now on.
    pub(crate) fn relent(&self) {
        *self.plan.rule.lock().unwrap() = None;
    }

    /// Passes nothing on any more, as a network that swallows everything; or passes on what it kept, and all that
    /// follows.
    pub(crate) fn silence(&self, silent: bool) {
        self.plan.silent.send_replace(silent);
    }

    /// COMMITs that a rule was for, so far.
    pub(crate) fn met(&self) -> usize {
        *self.plan.met.borrow()
    }

    /// Waits until rules were for so many COMMITs.
    pub(crate) async fn has_met(&self, commits: usize) {
        let mut met = self.plan.met.subscribe();
        let reached = tokio::time::timeout(Duration::from_secs(30), met.wait_for(|met| *met >= commits)).await;
        assert!(reached.is_ok(), "the proxy met {} COMMITs and not {commits}", self.met());
    }
}

/// The handling of the server's answers from now on.
#[derive(Clone, Copy, Debug)]
enum Answers {
    Pass,
    /// The answers come this much later, up to the commit's.
    Late(Duration, Last),
    /// The answers are withheld; after the commit's the connection is cut.
    Withheld(Last),
}

/// The last answer to a commit.
#[derive(Clone, Copy, Debug)]
enum Last {
    /// To COMMIT.
    Commit,
    /// To a statement that is a commit: that the server is ready for the next.
    Ready,
}

impl Last {
    fn is(self, message: &[u8]) -> bool {
        match self {
            Self::Commit => message.starts_with(b"C") && message.ends_with(b"COMMIT\0"),
            Self::Ready => message.starts_with(b"Z"),
        }
    }
}

/// Cut when either direction ends.
async fn connection(client: TcpStream, server: TcpStream, plan: Arc<Plan>) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (from_client, to_client) = client.into_split();
    let to_client = AsyncMutex::new(to_client);
    let (from_server, to_server) = server.into_split();
    let (sender, answers) = watch::channel(Answers::Pass);
    tokio::select! {
        _ = up(from_client, to_server, &to_client, &plan, &sender) => {}
        _ = down(from_server, &to_client, &plan, &answers, &sender) => {}
    }
}

async fn up(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    back: &AsyncMutex<OwnedWriteHalf>,
    plan: &Plan,
    answers: &watch::Sender<Answers>,
) -> std::io::Result<()> {
    // The first message of a connection has no type.
    let length = from.read_u32().await?;
    let mut startup = vec![0; length as usize - 4];
    from.read_exact(&mut startup).await?;
    plan.may_speak().await;
    to.write_u32(length).await?;
    to.write_all(&startup).await?;
    let mut commits = Commits::default();
    loop {
        let mut message = match message(&mut from).await {
            Ok(message) => message,
            Err(gone) => {
                // A network that swallows everything swallows the end of a connection.
                plan.may_speak().await;
                return Err(gone);
            }
        };
        let last = commits.last_answer(&message);
        if let Some(Last::Ready) = last {
            Commits::rest(&mut message, &mut from).await?;
        }
        let rule = last.and_then(|last| plan.next().map(|rule| (rule, last)));
        let (rule, last) = rule.map_or((None, Last::Commit), |(rule, last)| (Some(rule), last));
        match rule {
            None => {}
            Some(Rule::CutBefore) => {
                plan.is_met();
                return Ok(());
            }
            Some(Rule::CutAfter) => {
                answers.send_replace(Answers::Withheld(last));
            }
            Some(Rule::CutAndDeliver(late)) => {
                answers.send_replace(Answers::Withheld(last));
                back.lock().await.shutdown().await?;
                sleep(late).await;
                to.write_all(&message).await?;
                // The other direction sees what the server says to it, and ends the connection.
                return std::future::pending().await;
            }
            Some(Rule::DelayAnswer(late)) => {
                answers.send_replace(Answers::Late(late, last));
            }
            Some(Rule::HoldUntil(mut released)) => {
                plan.is_met();
                let _gone = released.wait_for(|released| *released).await;
            }
        }
        plan.may_speak().await;
        to.write_all(&message).await?;
    }
}

async fn down(
    mut from: OwnedReadHalf,
    to: &AsyncMutex<OwnedWriteHalf>,
    plan: &Plan,
    answers: &watch::Receiver<Answers>,
    reset: &watch::Sender<Answers>,
) -> std::io::Result<()> {
    loop {
        let message = message(&mut from).await?;
        let current = *answers.borrow();
        match current {
            Answers::Withheld(last) if last.is(&message) => {
                plan.is_met();
                return Ok(());
            }
            Answers::Withheld(_) => continue,
            Answers::Late(late, last) if last.is(&message) => {
                plan.is_met();
                reset.send_replace(Answers::Pass);
                sleep(late).await;
            }
            Answers::Late(..) | Answers::Pass => {}
        }
        plan.may_speak().await;
        to.lock().await.write_all(&message).await?;
    }
}

/// One whole message: a type, its length, its body.
async fn message(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let kind = from.read_u8().await?;
    let length = from.read_u32().await?;
    let mut message = vec![0; length as usize + 1];
    message[0] = kind;
    message[1..5].copy_from_slice(&length.to_be_bytes());
    from.read_exact(&mut message[5..]).await?;
    Ok(message)
}

/// Knows the commits among a connection's messages.
#[derive(Debug, Default)]
struct Commits {
    /// Prepared statements that are whole commits.
    at_once: HashSet<Vec<u8>>,
    /// Such a statement is a part of this transaction, and COMMIT comes later.
    in_transaction: bool,
}

impl Commits {
    /// The last answer to a message, if the message commits.
    fn last_answer(&mut self, message: &[u8]) -> Option<Last> {
        let mut texts = message.get(5..)?.split(|byte| *byte == 0);
        match message[0] {
            b'Q' => {
                let query = texts.next()?.to_ascii_lowercase();
                self.in_transaction = query.windows(6).any(|word| word == b"begin ");
                query.ends_with(b"commit").then_some(Last::Commit)
            }
            b'P' => {
                let name = texts.next()?;
                if texts.next()?.starts_with(b"-- commit.at_once") {
                    self.at_once.insert(name.to_owned());
                }
                None
            }
            b'B' => {
                let statement = texts.nth(1)?;
                (!self.in_transaction && self.at_once.contains(statement)).then_some(Last::Ready)
            }
            _ => None,
        }
    }

    /// The rest of what is sent with the beginning of a statement.
    async fn rest(message: &mut Vec<u8>, from: &mut OwnedReadHalf) -> std::io::Result<()> {
        loop {
            let next = self::message(from).await?;
            message.extend_from_slice(&next);
            if next[0] == b'S' {
                return Ok(());
            }
        }
    }
}
