//! Every command that calls a server does so over TLS and with a token, and says what to do where that fails.

use std::path::PathBuf;

use super::cli::{Going, Ran, command, ran};
use crate::support::authorities::Authority;
use crate::support::gate::Gate;
use crate::support::server::Server;

/// A server behind TLS that asks for a token.
struct Scene {
    server: Server,
    authority: Authority,
    gate: Gate,
}

impl Scene {
    async fn new() -> Self {
        let (server, authority) = (Server::start("memory").await, Authority::new("a"));
        let gate = Gate::before(server.address(), Some(authority.server())).await;
        gate.accepts(&["s3cret"]);
        Self { server, authority, gate }
    }

    fn address(&self) -> String {
        self.gate.address.to_string()
    }

    fn token(&self, token: &str) -> PathBuf {
        self.authority.write("token", token)
    }

    /// A command that trusts the server and has the token.
    fn command(&self, args: &[&str]) -> tokio::process::Command {
        let mut command = command(&self.address(), args);
        command
            .env("RUNLEDGER_CLIENT_TLS_CA", self.authority.file())
            .env("RUNLEDGER_TOKEN_FILE", self.token("s3cret\n"));
        command
    }

    async fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args)).await
    }

    async fn done(&self, args: &[&str]) -> String {
        let ran = self.run(args).await;
        assert_eq!(ran.code, 0, "{args:?}: {}{}", ran.out, ran.err);
        assert!(!format!("{}{}", ran.out, ran.err).contains("s3cret"), "{args:?} shows the token");
        ran.out
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_calls_over_tls_with_its_token_and_namespace() {
    let scene = Scene::new().await;
    let store = scene.authority.file().with_file_name("ledger.db");
    let store = format!("sqlite:{}", store.display());
    let other = Server::start(&store).await;
    let doctor = ["doctor", "--store", &store, "--server", &scene.address(), "--timeout", "5s"];
    let bench = ["--seconds", "1", "--warm-up", "0", "--callers", "2", "--connections", "2"];
    for (args, code) in [
        (&["run", "start", "--task-thread-id", "t", "--run-id", "r"][..], 0),
        (&["run", "list"], 0),
        (&["run", "watch", "r", "--no-reconnect"], 0),
        (&["run", "complete", "r"], 0),
        (&["run", "wait", "r"], 0),
        (&["run", "claim-next", "--timeout", "5s"], 4),
        (&["run", "worker", "--task-thread-id", "t", "--", "true"], 0),
        (&["watch", "--for", "1s", "--timeout", "5s"], 0),
        (&["health", "--service", "liveness"], 0),
        (&[&["bench", "lifecycle"][..], &bench].concat(), 0),
        // The doctor reaches the replica, which serves another ledger.
        (&doctor, 1),
    ] {
        let before = scene.gate.calls().len();
        let mut command = scene.command(args);
        command.env("RUNLEDGER_NAMESPACE", "qa");
        let mut going = Going::of(command);
        if args[0] == "run" && args[1] == "watch" {
            going.frame().await;
            scene.done(&["run", "complete", "r"]).await;
        }
        let (ended, out, err) = going.ended().await;
        assert_eq!(ended, code, "{args:?}: {out:?}{err}");
        assert!(!format!("{out:?}{err}").contains("s3cret"), "{args:?} shows the token");
        assert!(scene.gate.calls().len() > before, "{args:?} has called");
        if args[0] == "doctor" {
            assert!(out.iter().any(|line| line.contains("serves another ledger")), "{out:?}");
        }
    }
    assert!(scene.gate.sent("authorization").iter().all(|sent| sent == "Bearer s3cret"));
    let namespaces = scene.gate.sent("runledger-namespace");
    assert_eq!(namespaces.iter().filter(|sent| *sent != "qa").count(), 1, "all but the call beside the watch");
    drop(other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_failure_of_the_connection_says_what_to_do() {
    let scene = Scene::new().await;
    let (address, ca, token) = (scene.address(), scene.authority.file(), scene.token("s3cret"));
    let (ca, token) = (ca.display().to_string(), token.display().to_string());
    let other = Authority::new("b").file();
    let get = ["run", "get", "r"];
    let plain = scene.server.address();
    for (server, flags, code, said) in [
        (&*address, &[][..], 3, "it speaks TLS, and was called in plain text\n  --tls, or an https:// address,"),
        (&address, &["--tls-ca", &ca][..], 1, ": no token was sent\n  --token-file or RUNLEDGER_TOKEN_FILE names"),
        (&address, &["--tls-ca", other.to_str().unwrap()], 2, "the CA file"),
        (
            &address,
            &["--tls-ca", &ca, "--tls-server-name", "x.example"],
            3,
            " and not for x.example\n  --tls-server-name",
        ),
        (plain, &["--tls-ca", &ca], 3, "\n  it is called in plain text without the flags of TLS"),
        (plain, &["--tls-ca", "/nowhere"], 2, "the CA file /nowhere cannot be read: "),
        (plain, &["--tls-cert", &ca], 2, "--tls-key"),
        (plain, &["--token-file", "/nowhere"], 2, "the token file /nowhere cannot be read: "),
        (
            "10.0.0.7:1",
            &["--token-file", &token],
            2,
            "in plain text, for everybody on the way to read; --tls calls over",
        ),
        ("http://10.0.0.7:1", &["--tls"], 2, "plain text, and TLS was asked for; name it without http://"),
        ("ftp://a:1", &[], 2, "expected HOST:PORT or https://HOST:PORT"),
    ] {
        let ran = ran(command("", &[&get[..], &["--server", server], flags].concat())).await;
        assert_eq!(ran.code, code, "{server} {flags:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{server} {flags:?}: {}", ran.err);
        assert!(!ran.err.contains("transport error"), "{}", ran.err);
    }
    let mut wrong = command(&address, &[&get[..], &["--tls-ca", &ca]].concat());
    wrong.env("RUNLEDGER_TOKEN", "wr0ng");
    let refused = ran(wrong).await;
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains(": the token that was sent is not accepted\n"), "{}", refused.err);
    assert!(!refused.err.contains("wr0ng"), "{}", refused.err);
    let mut broken = command(&address, &get);
    broken.env("RUNLEDGER_TOKEN", "two words");
    let broken = ran(broken).await;
    assert_eq!((broken.code, broken.err.contains("two")), (2, false), "{}", broken.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workers_program_calls_the_same_server_in_the_same_way() {
    let scene = Scene::new().await;
    let program = "exec \"$0\" run update \"$RUNLEDGER_RUN_ID\" --lease-epoch \"$RUNLEDGER_LEASE_EPOCH\" --label a=b";
    let (ca, token) = (scene.authority.file(), scene.token("s3cret"));
    let connection = ["--tls-ca", ca.to_str().unwrap(), "--token-file", token.to_str().unwrap()];
    let worker = ["run", "worker", "--task-thread-id", "t", "--as", "a", "--namespace", "qa"];
    let binary = env!("CARGO_BIN_EXE_runledger");
    let args = [&worker[..], &connection, &["--", "bash", "-c", program, binary]].concat();
    let mut command = command(&scene.address(), &args);
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let ran = ran(command).await;
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("a=b"), "{}", ran.out);
    assert!(scene.gate.sent("runledger-namespace").iter().all(|sent| sent == "qa"));
    assert!(scene.gate.sent("runledger-agent-id").iter().all(|sent| sent == "a"));
}
