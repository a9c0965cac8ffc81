//! The real binary as a process: started, signalled, killed, and everything that it said.

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use runledger_client::{Client as Caller, Health};
use runledger_proto::v1::run_service_client::RunServiceClient;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::everywhere::{Everywhere, Wire, wire};
use crate::support::patient::Patient;
use crate::support::postgres::variable;

/// The time within which an event must come: long enough for a busy machine, short enough to fail a test.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) type Client = RunServiceClient<Patient>;

/// A process of the binary. Killed with this value.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    said: watch::Receiver<Said>,
    /// It is the command that shows a token, once.
    makes_tokens: bool,
}

#[derive(Debug, Default)]
struct Said {
    text: String,
    /// Standard output and standard error that have ended.
    ended: usize,
}

impl Process {
    /// Starts the binary, or another one that `RUNLEDGER_TEST_BINARY` names, with these arguments, and with nothing
    /// of this process's own settings.
    pub(crate) fn spawn(args: &[&str]) -> Self {
        Self::spawn_with(args, &[])
    }

    pub(crate) fn spawn_with(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let binary = variable("RUNLEDGER_TEST_BINARY");
        Self::spawn_of(binary.as_deref().unwrap_or(env!("CARGO_BIN_EXE_runledger")), args, environment)
    }

    /// Starts the release before this one, which `make test` builds.
    pub(crate) fn spawn_older(args: &[&str]) -> Self {
        Self::spawn_older_with(args, &[])
    }

    pub(crate) fn spawn_older_with(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let binary = variable("RUNLEDGER_TEST_OLDER").expect("`make test` says where the release before this one is");
        Self::spawn_of(&binary, args, environment)
    }

    /// The same, with so many files and connections that it may open.
    pub(crate) fn spawn_with_files(files_max: u32, args: &[&str]) -> Self {
        let binary = variable("RUNLEDGER_TEST_BINARY");
        let binary = binary.as_deref().unwrap_or(env!("CARGO_BIN_EXE_runledger"));
        let limited = format!("ulimit -n {files_max} && exec \"$0\" \"$@\"");
        Self::spawn_of("/bin/sh", &[&["-c", &limited, binary], args].concat(), &[])
    }

    /// Starts the binary as a user that owns nothing; none where this process may not become one.
    pub(crate) fn spawn_as_nobody(args: &[&str], environment: &[(&str, &str)]) -> Option<Self> {
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let binary = env!("CARGO_BIN_EXE_runledger");
        let mut tried = Command::new("setpriv");
        let tried = tried.args(nobody).args([binary, "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !tried.is_ok_and(|tried| tried.success()) {
            eprintln!("SKIPPED: no process of another user can be started here");
            return None;
        }
        let flags = if args.first() == Some(&"serve") { Everywhere::flags(args) } else { Vec::new() };
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Some(Self::spawn_of("setpriv", &[&nobody[..], &[binary], args, &flags].concat(), environment))
    }

    fn spawn_of(binary: &str, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(binary);
        let flags = if args.first() == Some(&"serve") { Everywhere::flags(args) } else { Vec::new() };
        command.args(args).args(flags).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_clear().envs(Everywhere::environment()).envs(environment.iter().copied());
        let mut child = command.spawn().unwrap();
        let (sender, said) = watch::channel(Said::default());
        let out = child.stdout.take().unwrap();
        let err = child.stderr.take().unwrap();
        listen(out, sender.clone());
        listen(err, sender);
        Self { child, said, makes_tokens: args.starts_with(&["token", "new"]) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All output of the process so far, standard error included.
    pub(crate) fn said(&self) -> String {
        self.said.borrow().text.clone()
    }

    /// Waits until it has printed this: what it prints before an answer may be read after it.
    pub(crate) async fn says(&self, text: &str) {
        let mut said = self.said.clone();
        let found = said.wait_for(|said| said.text.contains(text) || said.ended == 2);
        let ended = timeout(SOON, found).await.map(|found| !found.unwrap().text.contains(text));
        assert_eq!(ended, Ok(false), "it never said {text:?} but:\n{}", self.said());
    }

    /// Sends it a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status().unwrap();
        assert!(sent.success(), "SIG{name} was not sent: {}", self.said());
    }

    /// Waits for its end, and gives its exit status and what it said.
    pub(crate) async fn ended(&mut self, wait_max: Duration) -> (ExitStatus, String) {
        let end = eventually(wait_max, async || self.child.try_wait().unwrap()).await;
        let status = end.unwrap_or_else(|| panic!("it still runs after {wait_max:?}:\n{}", self.said()));
        timeout(SOON, self.said.wait_for(|said| said.ended == 2)).await.unwrap().unwrap();
        (status, self.said())
    }

    /// Waits for its end, and gives its exit code and what it said.
    pub(crate) async fn exited(&mut self, wait_max: Duration) -> (i32, String) {
        let (status, said) = self.ended(wait_max).await;
        (status.code().unwrap_or_else(|| panic!("{status}:\n{said}")), said)
    }

    /// SIGKILL. Returns when it is gone.
    pub(crate) fn kill(&mut self) {
        let _gone = self.child.kill();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    /// What every process of every test has said is held against what must never be said.
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("--- a process said:\n{}", self.said());
        } else if let Some(secret) = secret(&self.said()).filter(|_| !self.makes_tokens) {
            panic!("it said a secret that begins with {:?}:\n{}", &secret[..6], self.said());
        }
    }
}

/// A secret in a text: a token of ours, a signed token, a private key, or a password of these tests.
fn secret(text: &str) -> Option<&str> {
    let is_word = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let mut words = text.split(|character| !is_word(character));
    let token = words.find(|word| {
        let is_token = word.strip_prefix("rl_").is_some_and(|rest| rest.len() >= 40);
        is_token || (word.starts_with("eyJ") && word.matches('.').count() == 2)
    });
    let key = || text.find("PRIVATE KEY-----").map(|at| &text[at..]);
    let password = || text.find(PASSWORD).map(|at| &text[at..]);
    token.or_else(key).or_else(password)
}

/// The password of each test's own that must be said nowhere.
pub(crate) const PASSWORD: &str = "pass-that-nobody-says";

#[test]
fn a_secret_is_found_in_what_was_said() {
    let token = format!("before rl_{} after", "a".repeat(43));
    for text in
        [token.as_str(), "x=eyJh.eyJi.c2ln", "-----BEGIN EC PRIVATE KEY-----", "postgres://u:pass-that-nobody-says@h"]
    {
        assert!(secret(text).is_some(), "{text}");
    }
    for text in ["rl_short", "eyJh", "listening on 127.0.0.1:1", "PRIVATE KEY"] {
        assert!(secret(text).is_none(), "{text}");
    }
}

/// Runs the binary to its end.
pub(crate) async fn run(args: &[&str]) -> (i32, String) {
    Process::spawn(args).exited(SOON).await
}

/// A server that listens.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Serves a store on a free port. Returns when it listens, which may be before the store is open.
    pub(crate) async fn start(store: &str) -> Self {
        Self::start_with(&["--store", store]).await
    }

    pub(crate) async fn start_with(args: &[&str]) -> Self {
        let args = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
        Self::of(Process::spawn(&args)).await
    }

    /// Waits for the banner.
    pub(crate) async fn of(process: Process) -> Self {
        process.says("listens on ").await;
        let said = process.said();
        let line = said.lines().find(|line| line.contains("listens on ")).unwrap();
        let address = line.rsplit(' ').next().unwrap().parse().unwrap();
        Self { process, address }
    }

    pub(crate) fn client(&self) -> Client {
        client(self.address)
    }

    pub(crate) fn hasty(&self) -> Client {
        hasty(self.address)
    }

    pub(crate) fn wire(&self) -> Wire {
        wire(self.address, |endpoint| endpoint)
    }

    pub(crate) async fn health(&self, service: &str) -> Option<Health> {
        if Everywhere::get().is_none() {
            let client = Caller::new(&self.address.to_string(), None).unwrap();
            return client.health(service, Instant::now() + Duration::from_secs(2)).await.ok();
        }
        let mut client = HealthClient::new(self.wire());
        let mut asked = Request::new(HealthCheckRequest { service: service.to_owned() });
        asked.set_timeout(Duration::from_secs(2));
        match client.check(asked).await {
            Ok(answer) if answer.get_ref().status() == ServingStatus::Serving => Some(Health::Serving),
            Ok(_) => Some(Health::NotServing),
            Err(status) if status.code() == Code::NotFound => Some(Health::Unknown),
            Err(_) => None,
        }
    }

    /// Waits until a health service says this, and gives how long that took.
    pub(crate) async fn becomes(&self, service: &str, wanted: Health, wait_max: Duration) -> Duration {
        let begun = Instant::now();
        let mut last = None;
        let became = eventually(wait_max, async || {
            last = self.health(service).await;
            (last == Some(wanted)).then_some(())
        });
        let became = became.await;
        let said = self.process.said();
        assert!(became.is_some(), "{service:?} is {last:?} and not {wanted:?} after {wait_max:?}:\n{said}");
        begun.elapsed()
    }

    pub(crate) async fn is_ready(&self) {
        self.becomes("readiness", Health::Serving, SOON).await;
    }
}

/// A client that connects when it is first used, and again after each cut. Where a busy server wrote nothing, it asks again.
pub(crate) fn client(address: SocketAddr) -> Client {
    RunServiceClient::new(Patient::new(of_a_client(address)))
}

/// The same, which is told how a busy server refuses.
pub(crate) fn hasty(address: SocketAddr) -> Client {
    RunServiceClient::new(Patient::hasty(of_a_client(address)))
}

fn of_a_client(address: SocketAddr) -> Wire {
    wire(address, |endpoint: Endpoint| endpoint.tcp_nodelay(true).connect_timeout(Duration::from_secs(5)))
}

/// Looks again and again until there is something to see, or not any more after `wait_max`.
pub(crate) async fn eventually<T>(wait_max: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + wait_max;
    loop {
        if let Some(seen) = look().await {
            return Some(seen);
        }
        if Instant::now() >= deadline {
            return None;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

fn listen(pipe: impl Read + Send + 'static, said: watch::Sender<Said>) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            said.send_modify(|said| {
                said.text.push_str(&String::from_utf8_lossy(&line));
                said.text.push('\n');
            });
        }
        said.send_modify(|said| said.ended += 1);
    });
}
