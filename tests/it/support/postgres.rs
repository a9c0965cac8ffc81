//! Real Postgres: a database of its own for each test, or a whole cluster for tests that kill it.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

/// Drives connections that outlive the runtime of the test that asked for them.
static ADMIN: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());

/// Tells the databases and clusters of one test process apart.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A connection past the store's.
pub(crate) async fn direct(dsn: &str) -> Client {
    let dsn = dsn.to_owned();
    let connected = ADMIN.spawn(async move {
        let (client, connection) = tokio_postgres::connect(&dsn, NoTls).await.unwrap();
        drop(ADMIN.spawn(connection));
        client
    });
    connected.await.unwrap()
}

/// An empty database of the shared cluster, dropped with this value.
#[derive(Debug)]
pub(crate) struct Database {
    name: String,
}

impl Database {
    pub(crate) async fn fresh() -> Self {
        Self::made("").await
    }

    async fn made(how: &str) -> Self {
        let name = format!("test_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        direct(&shared()).await.batch_execute(&format!("create database {name}{how}")).await.unwrap();
        Self { name }
    }

    pub(crate) fn dsn(&self) -> String {
        in_database(&shared(), &self.name)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Database {
    /// The test does not wait for the drop: a database that is left over goes with the cluster.
    fn drop(&mut self) {
        let drop_database = format!("drop database {} with (force)", self.name);
        drop(ADMIN.spawn(async move { direct(&shared()).await.batch_execute(&drop_database).await }));
    }
}

/// A database that is made ready once, and of which each test has a copy.
#[derive(Debug)]
pub(crate) struct Template(OnceCell<Database>);

impl Template {
    pub(crate) const fn new() -> Self {
        Self(OnceCell::const_new())
    }

    /// A copy, for one test. The first who wants one makes it ready.
    pub(crate) async fn copy(&self, make_ready: impl AsyncFnOnce(&str)) -> Database {
        let template = self.0.get_or_init(async || {
            let database = Database::fresh().await;
            make_ready(&database.dsn()).await;
            // A database is copied while nobody is connected to it.
            let leave = "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = $1";
            direct(&shared()).await.query(leave, &[&database.name]).await.unwrap();
            database
        });
        let from = format!(" template {}", template.await.name);
        Database::made(&from).await
    }
}

/// A port for a server that stops and starts: below those which systems give to connections, or another test's would get
/// it meanwhile.
pub(crate) fn port() -> u16 {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(97);
    let ports = std::iter::repeat_with(|| FIRST + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT);
    let mut ports = ports.take(1_000).map(|port| u16::try_from(port).unwrap());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a port that is free")
}

/// A cluster of the test's own, stopped and removed with this value.
#[derive(Debug)]
pub(crate) struct Cluster {
    data: PathBuf,
    port: u16,
    settings: Vec<String>,
    server: Option<Server>,
}

#[derive(Debug)]
struct Server {
    postmaster: Child,
    log: JoinHandle<()>,
}

impl Cluster {
    /// Makes and starts a cluster with these settings.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        let unique = format!("cluster_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let data = PathBuf::from(wanted("RUNLEDGER_TEST_PG_ROOT")).join(unique);
        let made = unprivileged("initdb")
            .args(["--no-sync", "--auth=trust", "--username=runledger", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let port = port();
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut cluster = Self { data, port, settings, server: None };
        cluster.restart();
        cluster
    }

    /// Makes and starts a standby, which follows asynchronously.
    pub(crate) fn standby(&self) -> Self {
        let unique = format!("standby_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let data = PathBuf::from(wanted("RUNLEDGER_TEST_PG_ROOT")).join(unique);
        let from = format!("host=127.0.0.1 port={} user=runledger application_name=standby", self.port);
        let copied = unprivileged("pg_basebackup")
            .args(["--no-sync", "--checkpoint=fast", "--write-recovery-conf", "-d", &from, "-D"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(copied.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr));
        let port = port();
        let mut standby = Self { data, port, settings: self.settings.clone(), server: None };
        standby.restart();
        standby
    }

    pub(crate) fn dsn(&self) -> String {
        format!("postgres://runledger@127.0.0.1:{}/postgres", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// SIGKILL, as by a crash. Returns when no process of the cluster is left.
    pub(crate) fn kill(&mut self) {
        self.end("KILL");
    }

    /// A fast shutdown: sessions are ended, then it stops.
    pub(crate) fn stop(&mut self) {
        self.end("INT");
    }

    /// Starts it, at the same address, stopping it first if it runs.
    pub(crate) fn restart(&mut self) {
        self.stop();
        let mut postmaster = unprivileged("postgres")
            .arg("-D")
            .arg(&self.data)
            .args(["-p", &self.port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="])
            .args(self.settings.iter().flat_map(|setting| ["-c", setting]))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(postmaster.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let ready = log.by_ref().map_while(Result::ok).any(|line| {
            said = said.clone() + &line + "\n";
            line.contains("database system is ready to accept ")
        });
        assert!(ready, "Postgres did not start:\n{said}");
        let log = std::thread::spawn(move || log.map_while(Result::ok).for_each(drop));
        self.server = Some(Server { postmaster, log });
    }

    /// Sends a signal to every process of the cluster.
    pub(crate) fn signal(&self, name: &str) {
        let postmaster = self.server.as_ref().unwrap().postmaster.id().to_string();
        let children = Command::new("pgrep").args(["-P", &postmaster]).output().unwrap().stdout;
        let children = String::from_utf8(children).unwrap();
        let pids = [postmaster.as_str()].into_iter().chain(children.split_whitespace());
        assert!(Command::new("kill").args(["-s", name]).args(pids).status().unwrap().success());
    }

    fn end(&mut self, signal: &str) {
        if let Some(Server { mut postmaster, log }) = self.server.take() {
            let pid = postmaster.id().to_string();
            assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
            postmaster.wait().unwrap();
            // Every process of the cluster holds the log's pipe: it ends with the last of them.
            log.join().unwrap();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end("QUIT");
        let _gone = std::fs::remove_dir_all(&self.data);
    }
}

/// A program of Postgres', run as a user that it accepts: it refuses root.
fn unprivileged(program: &str) -> Command {
    as_server(&self::program(program))
}

/// A program that refuses root, as Postgres does.
pub(crate) fn as_server(bin: &Path) -> Command {
    let mut command = match (variable("RUNLEDGER_TEST_PG_USER"), group()) {
        (Some(user), Some(group)) => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &user, "--regid", &group.to_string(), "--clear-groups", "--"]).arg(bin);
            command
        }
        (None, _) | (_, None) => Command::new(bin),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).current_dir("/").env("LC_ALL", "C");
    command
}

/// The group as which Postgres runs; none where it runs as the caller.
pub(crate) fn group() -> Option<u32> {
    let user = variable("RUNLEDGER_TEST_PG_USER")?;
    let group = Command::new("id").args(["-g", &user]).output().unwrap().stdout;
    Some(String::from_utf8(group).unwrap().trim().parse().unwrap())
}

/// The path of a program of Postgres'.
pub(crate) fn program(name: &str) -> PathBuf {
    Path::new(&wanted("RUNLEDGER_TEST_PG_BIN")).join(name)
}

/// The number of rounds of a long test: one, unless the environment asks for more.
pub(crate) fn rounds() -> usize {
    variable("RUNLEDGER_TEST_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap())
}

fn shared() -> String {
    wanted("RUNLEDGER_TEST_POSTGRES")
}

fn wanted(name: &str) -> String {
    variable(name).expect("run `make test`: it starts a private Postgres")
}

#[expect(
    clippy::disallowed_methods,
    reason = "how the script that starts Postgres tells where it is, and `make` what to do"
)]
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The same server's DSN with another database.
fn in_database(dsn: &str, name: &str) -> String {
    let (address, options) = dsn.split_once('?').map_or((dsn, None), |(address, options)| (address, Some(options)));
    let (scheme, rest) = address.split_once("://").expect("a URL");
    let server = rest.split_once('/').map_or(rest, |(server, _)| server);
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    format!("{scheme}://{server}/{name}{options}")
}
