//! The real binary, started as a user starts it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use runledger_proto::v1::run_service_client::RunServiceClient;
use tokio::time::{Instant, timeout};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::everywhere::{Everywhere, Wire, wire};

/// The time that a server may take to begin or to end: far more than it needs on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A `runledger serve`, killed with this value.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: String,
    banner: Arc<Mutex<String>>,
    log: Arc<Mutex<String>>,
    pipes: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts on a free port of loopback and waits until it is ready.
    pub(crate) async fn start(store: &str) -> Self {
        Self::start_with(store, &[], &[]).await
    }

    /// The same, with more arguments and environment variables.
    pub(crate) async fn start_with(store: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let server = Self::spawn(&[&["--store", store], args].concat(), env);
        server.until("readiness", ServingStatus::Serving).await;
        server
    }

    /// Starts and returns as soon as it listens, ready or not.
    pub(crate) fn spawn(args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::spawn_at("127.0.0.1:0", args, env)
    }

    /// The same, where a server was before.
    pub(crate) fn spawn_at(listen: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runledger"));
        command.args(["serve", "--listen", listen]).args(args);
        command.args(Everywhere::flags(args));
        command.env("RUNLEDGER_LOG", "warn,runledger=info").envs(env.iter().copied());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (log, banner) = (Arc::default(), Arc::default());
        let mut pipes = vec![collect(child.stderr.take().unwrap(), &log)];
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        stdout.read_line(&mut first).unwrap();
        pipes.push(collect(stdout, &banner));
        let address = first.split_whitespace().next_back().unwrap_or_default().to_owned();
        let server = Self { child, address, banner, log, pipes };
        assert!(first.starts_with("Runledger "), "it does not listen: {first:?}\n{}", server.log());
        server
    }

    /// The address on which the server listens: `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server's output on stderr so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The server's output on stdout after the first line.
    pub(crate) fn banner(&self) -> String {
        self.banner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A connection of its own.
    pub(crate) async fn channel(&self) -> Wire {
        channel(&self.address).await
    }

    pub(crate) async fn client(&self) -> RunServiceClient<Wire> {
        RunServiceClient::new(self.channel().await)
    }

    /// The status of one of the server's health services; none when it does not answer.
    pub(crate) async fn health(&self, service: &str) -> Option<ServingStatus> {
        let asked = HealthCheckRequest { service: service.to_owned() };
        Some(HealthClient::new(self.channel().await).check(asked).await.ok()?.into_inner().status())
    }

    /// Follows one of its health services until it says this.
    pub(crate) async fn until(&self, service: &str, wanted: ServingStatus) {
        let followed = timeout(PATIENCE, async {
            let asked = HealthCheckRequest { service: service.to_owned() };
            let mut statuses = HealthClient::new(self.channel().await).watch(asked).await.unwrap().into_inner();
            while let Some(said) = statuses.message().await.unwrap() {
                if said.status() == wanted {
                    return;
                }
            }
            panic!("the health watch ended before {service:?} was {wanted:?}");
        });
        assert!(followed.await.is_ok(), "{service:?} is not {wanted:?} in time:\n{}", self.log());
    }

    /// SIGKILL: as by a crash.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    /// SIGTERM, and how it ended.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        let begun = Instant::now();
        loop {
            // Without a signal handler of our own there is no event to wait for.
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not stop:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends a signal by its name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    fn end(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
        for pipe in self.pipes.drain(..) {
            let _ended = pipe.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            eprintln!("the server at {} said:\n{}", self.address, self.log());
        }
    }
}

/// A connection to a server.
pub(crate) async fn channel(address: &str) -> Wire {
    wire(address.parse().unwrap(), |endpoint| endpoint)
}

fn collect(mut pipe: impl std::io::Read + Send + 'static, text: &Arc<Mutex<String>>) -> JoinHandle<()> {
    let text = text.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut bytes) {
            let said = String::from_utf8_lossy(&bytes[..count]);
            text.lock().unwrap_or_else(PoisonError::into_inner).push_str(&said);
        }
    })
}
