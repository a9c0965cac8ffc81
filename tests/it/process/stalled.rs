//! Nobody reads what the process says: a pipe is full, or a terminal was stopped. It goes on as if nobody had to.
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use prost_types::Duration as WireDuration;
use runledger_proto::v1::{CompleteRunRequest, CountRunsRequest, HeartbeatRunRequest, StartRunRequest};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use super::admin::{asked, ready};
use super::data::Data;
use super::server::{SOON, Server, client, eventually};
use crate::support::everywhere::Everywhere;
use crate::support::postgres::{Database, variable};

/// The time for which runs are started and ended while nobody reads. `RUNLEDGER_TEST_STALLED` has other seconds.
fn load() -> Duration {
    let seconds = variable("RUNLEDGER_TEST_STALLED").map(|text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds.unwrap_or(1))
}

/// Connections that speak no HTTP/2, each of which is a line or more of the log.
const STRANGERS: usize = 400;

/// More than is queued, and than a pipe takes.
const LINES_BYTES: usize = 1_400_000;

/// Where the server writes to.
#[derive(Clone, Copy, Debug)]
enum To {
    Pipe,
    Terminal,
}

/// A server whose banner was read, and nothing after that.
struct Stalled {
    child: Child,
    pid: String,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Stalled {
    fn start(store: &str, to: To) -> Self {
        let binary = variable("RUNLEDGER_TEST_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_runledger").to_owned());
        let flags = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log", "trace"].join(" ");
        let secured = Everywhere::flags(&[]).join(" ");
        let line = format!("echo pid $$; exec {binary} serve {flags} {secured}");
        let mut command = match to {
            // Standard output and standard error are one pipe.
            To::Pipe => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("exec 2>&1; {line}")]);
                shell
            }
            To::Terminal => {
                let mut script = Command::new("script");
                script.args(["-qefc", &line, "/dev/null"]).env("SHELL", "/bin/sh");
                script
            }
        };
        command.env("RUNLEDGER_STORE", store).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        let out = child.stdout.as_mut().unwrap();
        let mut bytes = [0; 512];
        while !said.contains("grpcurl") {
            let read = out.read(&mut bytes).unwrap();
            assert!(read > 0, "it ended: {said}");
            said.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        let after =
            |mark: &str| said.split(mark).nth(1).unwrap().split([' ', '\r', '\n', '/']).next().unwrap().to_owned();
        let (pid, address, admin) = (after("pid "), after("listens on "), after("  admin  http://"));
        Self { child, pid, address: address.parse().unwrap(), admin: admin.parse().unwrap() }
    }

    /// Makes it log more than a pipe and a terminal take.
    fn is_made_to_talk(&self) {
        for _ in 0..STRANGERS {
            drop(TcpStream::connect(self.address).and_then(|mut stream| {
                std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\n\r\n")?;
                Ok(stream)
            }));
        }
    }

    /// Makes it log so much that what is queued is full as well.
    async fn is_made_to_lose_lines(&self) {
        let lost = async || {
            self.is_made_to_talk();
            (self.lost().await > 0).then_some(())
        };
        eventually(2 * SOON, lost).await.expect("lines are lost, and counted");
    }

    async fn lost(&self) -> u64 {
        let metrics = asked(self.admin, "GET /metrics").await.unwrap();
        let lines = metrics.lines().filter(|line| line.starts_with("runledger_log_lines_lost_total{"));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// Waits until the process is no more, or nobody's but its parent's.
    async fn is_gone(&self) {
        let stat = format!("/proc/{}/stat", self.pid);
        let gone = eventually(SOON, async || {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z')).then_some(())
        });
        gone.await.expect("it stops");
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args(["-s", name, &self.pid]).status().unwrap().success());
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        drop(Command::new("kill").args(["-s", "KILL", &self.pid]).stderr(Stdio::null()).status());
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Runs begin, are kept alive and end, probes are answered, and the stop comes.
async fn it_serves_and_stops_as_if_nobody_had_to_read(data: &Data, to: To) {
    let mut server = Stalled::start(&data.store(), to);
    ready(server.admin).await;
    match to {
        To::Pipe => server.is_made_to_lose_lines().await,
        To::Terminal => server.is_made_to_talk(),
    }
    let mut client = client(server.address);
    let until = Instant::now() + load();
    let mut run = 0;
    while run < 5 || Instant::now() < until {
        run += 1;
        let run_id = format!("{to:?}-{run}");
        let lived = async {
            let asked = StartRunRequest {
                task_thread_id: "t".to_owned(),
                run_id: run_id.clone(),
                lease_ttl: Some(WireDuration { seconds: 60, nanos: 0 }),
                ..StartRunRequest::default()
            };
            client.start_run(asked).await.unwrap();
            let asked =
                HeartbeatRunRequest { run_id: run_id.clone(), lease_epoch: 1, ..HeartbeatRunRequest::default() };
            client.heartbeat_run(asked).await.unwrap();
            let asked = CompleteRunRequest { run_id, lease_epoch: 1, ..CompleteRunRequest::default() };
            client.complete_run(asked).await.unwrap();
            for path in ["GET /livez", "GET /readyz"] {
                assert!(asked_well(server.admin, path).await, "{path}");
            }
        };
        timeout(SOON, lived).await.expect("nothing waits for the reader");
    }
    if matches!(to, To::Pipe) {
        is_told_when_the_reader_goes_on(&mut server).await;
    }
    server.signal("TERM");
    server.is_gone().await;
}

/// The reader goes on, is told of the lines that were lost, and sleeps again.
async fn is_told_when_the_reader_goes_on(server: &mut Stalled) {
    let lost = server.lost().await;
    let mut out = server.child.stdout.take().unwrap();
    let told = tokio::task::spawn_blocking(move || {
        let mut said = Vec::new();
        let mut bytes = [0; 4096];
        let mut told = false;
        while !told && let Ok(read @ 1..) = out.read(&mut bytes) {
            said.extend_from_slice(&bytes[..read]);
            told =
                String::from_utf8_lossy(&said[said.len().saturating_sub(8192)..]).contains("nobody took them lines=");
        }
        (told, said.len(), out)
    });
    let (told, read, out) = timeout(SOON, told).await.expect("it is told").unwrap();
    assert!(told && lost > 0 && read < LINES_BYTES, "{lost} lines were lost, {read} bytes were read");
    server.child.stdout = Some(out);
    server.is_made_to_talk();
}

async fn asked_well(admin: SocketAddr, path: &str) -> bool {
    asked(admin, path).await.is_some_and(|answer| answer.starts_with("HTTP/1.1 200 "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_sqlite_waits_for_no_reader_of_a_pipe_or_a_terminal() {
    for to in [To::Pipe, To::Terminal] {
        let directory = TempDir::new().unwrap();
        let data = Data::Sqlite(directory.path().join("ledger.db"));
        it_serves_and_stops_as_if_nobody_had_to_read(&data, to).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_postgres_waits_for_no_reader_of_a_pipe_or_a_terminal() {
    for to in [To::Pipe, To::Terminal] {
        let database = Database::fresh().await;
        let data = Data::Postgres(database.dsn());
        it_serves_and_stops_as_if_nobody_had_to_read(&data, to).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_measurement_goes_on_although_the_terminal_of_its_progress_was_stopped() {
    let server = Server::start("memory").await;
    server.is_ready().await;
    let binary = env!("CARGO_BIN_EXE_runledger");
    let line = format!("exec {binary} bench start-complete --callers 2 --connections 1 --warm-up 0 --seconds 10");
    let mut script = Command::new("script");
    script.args(["-qefc", &line, "/dev/null"]).env("SHELL", "/bin/sh");
    script.envs(Everywhere::environment()).env("RUNLEDGER_SERVER", server.address.to_string());
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    // Ctrl-S, before there is anything to see.
    keys.write_all(b"\x13").unwrap();
    let measured = async || {
        let all = CountRunsRequest::default();
        let counted = server.client().count_runs(all).await.unwrap().into_inner();
        (counted.counts.iter().map(|of| of.count).sum::<u64>() > 20).then_some(())
    };
    let went_on = eventually(SOON, measured).await;
    // Ctrl-Q: what was measured is printed now.
    keys.write_all(b"\x11").unwrap();
    let ended = eventually(SOON, async || child.try_wait().unwrap()).await;
    let _gone = child.kill();
    assert!(went_on.is_some(), "it waited for the terminal");
    assert!(ended.expect("it ends").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_go_on_answer_signals_and_limits_of_time_although_nobody_reads() {
    let directory = TempDir::new().unwrap();
    let store = Data::Sqlite(directory.path().join("ledger.db")).store();
    let server = Server::start(&store).await;
    server.is_ready().await;
    let mut client = server.client();
    for run in 0..300 {
        let asked = StartRunRequest {
            task_thread_id: "x".repeat(250),
            run_id: format!("run-{run}"),
            ..StartRunRequest::default()
        };
        client.start_run(asked).await.unwrap();
    }
    let address = server.address.to_string();
    let noise = "while :; do echo \"$RUNLEDGER_RUN_ID and a line that fills the pipe sooner or later\"; done";
    for (args, ends, code) in [
        (&["export", "--follow", "--store", &store][..], Some("TERM"), 1),
        (&["watch", "--server", &address, "--output", "json", "--for", "2s"], None, 0),
        // Not by SIGINT, which is ignored in what a shell has started in the background.
        (&["watch", "--server", &address, "--output", "json"], Some("TERM"), -15),
        (
            &[
                "run",
                "worker",
                "--server",
                &address,
                "--task-thread-id",
                "t",
                "--kill-after",
                "1s",
                "--",
                "sh",
                "-c",
                noise,
            ],
            Some("TERM"),
            128 + 15,
        ),
    ] {
        // One page of room, as nothing reads.
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_runledger"));
        command.args(args).stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
        command.env_clear().envs(Everywhere::environment()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        let mut child = command.spawn().unwrap();
        drop(command);
        // It has begun to write.
        let mut first = [0];
        let (_reader, begun) = tokio::task::spawn_blocking(move || {
            let begun = reader.read_exact(&mut first);
            (reader, begun)
        })
        .await
        .unwrap();
        begun.unwrap();
        if let Some(signal) = ends {
            let waits = format!("/proc/{}/stat", child.id());
            assert!(std::path::Path::new(&waits).exists());
            assert!(Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap().success());
        }
        let ended = eventually(SOON, async || child.try_wait().unwrap()).await;
        let Some(status) = ended else {
            let _gone = child.kill();
            panic!("it does not end: {args:?}");
        };
        let number = std::os::unix::process::ExitStatusExt::signal(&status).map_or(0, |number| -number);
        assert_eq!(status.code().unwrap_or(number), code, "{args:?}");
    }
}
