//! Every example of every help is run as it stands, but for addresses, stores, sizes and times.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;

use clap::Parser as _;
use futures_util::{StreamExt as _, stream};
use runledger::cli::Cli;
use runledger_proto::v1;
use runledger_proto::v1::lifecycle_service_client::LifecycleServiceClient;
use runledger_proto::v1::namespace_service_client::NamespaceServiceClient;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use tonic_health::pb::health_check_response::ServingStatus;

use super::cli::{Going, Ran, completed, ran, started};
use super::{every_command, examples_of};
use crate::support::everywhere::Everywhere;
use crate::support::postgres::{Database, program};
use crate::support::server::{Server, channel};

/// The lifecycle that the examples name, and the same in JSON.
const REVIEW: &str = "name: review\nphases:\n  drafting: {initial: true, next: [approved]}\n  approved: {}\n";
const REVIEW_JSON: &str =
    r#"{"name": "review", "phases": {"drafting": {"initial": true, "next": ["approved"]}, "approved": {}}}"#;

/// The way in which an example is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Listens where it likes or changes what is there: its tests are elsewhere, here it is only understood.
    Understood,
    Run,
    Bench,
    /// The example goes on until it is stopped.
    Follows,
    Other,
}

fn kind(line: &str) -> Kind {
    let after = line.split_once("runledger ").expect("it calls the binary").1;
    match after.split(' ').next() {
        Some("serve" | "migrate" | "retention") => Kind::Understood,
        Some("run") => Kind::Run,
        Some("bench") => Kind::Bench,
        _ if line.contains(" --follow") => Kind::Follows,
        _ => Kind::Other,
    }
}

/// Every example of that kind, once. Each example is of one kind, so none is left out.
fn examples(wanted: Kind, at_least: usize) -> BTreeSet<String> {
    let lines = every_command().into_iter().flat_map(|command| examples_of(&command));
    let lines: BTreeSet<_> = lines.filter(|line| kind(line) == wanted).collect();
    assert!(lines.len() >= at_least, "{wanted:?}: {lines:?}");
    lines
}

/// A rate makes another measurement of it, and only some loads are on runs that were there before: an example without
/// is given neither.
const LOAD: &[(&str, u32)] =
    &[("--callers", 8), ("--rate", 50), ("--runs", 20), ("--seconds", 1), ("--warm-up", 0), ("--rounds", 1)];

const OVERLOAD: &[(&str, u32)] = &[("--callers", 8), ("--rate", 50), ("--seconds", 1), ("--warm-up", 0)];

/// Sizes of measurements that are too much here, and the values used instead, also where an example leaves them to the
/// default.
const SIZES: &[(&str, &[(&str, u32)])] = &[
    ("delay", &[("--rate", 50), ("--seconds", 1), ("--warm-up", 0), ("--watchers", 50)]),
    ("idle", &[("--watchers", 50), ("--seconds", 1)]),
    ("catch-up", &[("--events", 300), ("--watchers", 2)]),
    ("lifecycle", LOAD),
    ("start-complete", LOAD),
    ("hot-run", LOAD),
    ("read", LOAD),
    ("wait", LOAD),
    ("overload", OVERLOAD),
    ("heartbeats", &[("--runs", 50), ("--every", 1), ("--seconds", 1)]),
    ("claims", &[("--runs", 50), ("--workers", 5)]),
    ("waiters", &[("--waiters", 50), ("--runs", 5), ("--seconds", 1), ("--rate", 50)]),
];

/// The example, adapted to this machine. Values that differ from run to run stand in variables of the shell.
fn adapted(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    for index in 1..words.len() {
        let here = match words[index - 1].as_str() {
            "--for" => "1s",
            "--server" | "--watch-server" => "\"$RUNLEDGER_SERVER\"",
            // A file is made where the example is run.
            "--store" if !words[index].contains("://") => continue,
            "--store" | "--database" => "\"$DATABASE\"",
            "--pgbench" => "\"$PGBENCH\"",
            "--server-pid" => "\"$SERVER_PID\"",
            "--cursor" => "\"$CURSOR\"",
            _ => continue,
        };
        here.clone_into(&mut words[index]);
    }
    if kind(line) == Kind::Bench && words[2] == "fill" {
        words[3] = words[3].parse::<u32>().unwrap().min(300).to_string();
    } else if kind(line) == Kind::Bench {
        let named = if ["watch", "leases"].contains(&words[2].as_str()) { &words[3] } else { &words[2] };
        let (_, sizes) = SIZES.iter().find(|(mode, _)| named == mode).expect("a measurement");
        for (flag, size) in *sizes {
            match words.iter().position(|word| word == flag) {
                Some(at) => words[at + 1] = words[at + 1].parse::<u32>().unwrap().min(*size).to_string(),
                // A cursor stands for the events that were missed.
                None if ["--rate", "--runs"].contains(flag) && *sizes == LOAD => {}
                None if ["--rate", "--callers"].contains(flag) && *sizes == OVERLOAD => {}
                None if *flag == "--events" && line.contains("--cursor") => {}
                None => words.extend([(*flag).to_owned(), size.to_string()]),
            }
        }
    }
    words.join(" ")
}

/// A server as the examples expect it, on the store that they name; else on the default one: `try-1` is running, or suspended where it is resumed,
/// `run-2` pending, `run-3` held under epoch 1, and `run-4` claimed under it; the namespace `team-b` is empty.
struct Scene {
    server: Server,
    directory: TempDir,
    database: Option<Database>,
}

/// The commands of the example of `run apply`.
const COMMANDS: &str = r#"{"update": {"runId": "try-1", "workflowId": "checkout"}}
{"complete": {"runId": "try-1"}}
"#;

impl Scene {
    async fn of(line: &str) -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("metadata.json"), "{\"step\": 2}").unwrap();
        std::fs::create_dir(directory.path().join("runledger")).unwrap();
        // The first is the hash of a token that is known; those of the others are of none.
        let first = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned();
        let tokens = [("first", first), ("ci", "c1".repeat(32)), ("grafana", "9a".repeat(32))];
        let access: String = tokens
            .map(|(name, hash)| {
                format!(
                    "[[token]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n\
                     grants = [{{ namespaces = [\"*\"], roles = [\"reader\"] }}]\n"
                )
            })
            .concat();
        std::fs::write(directory.path().join("access.toml"), access).unwrap();
        std::fs::write(directory.path().join("runledger.toml"), "store = \"memory\"\n").unwrap();
        let contexts = "current = \"local\"\n[contexts.local]\nas = \"agent-1\"\n";
        std::fs::write(directory.path().join("runledger/contexts.toml"), contexts).unwrap();
        let crawl = directory.path().join("crawl");
        std::fs::write(&crawl, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&crawl, std::fs::Permissions::from_mode(0o755)).unwrap();
        let database = if line.contains("postgres://") { Some(Database::fresh().await) } else { None };
        let server = match &database {
            Some(database) => Server::start(&database.dsn()).await,
            None => Server::spawn(&[], &[("XDG_DATA_HOME", directory.path().to_str().unwrap())]),
        };
        server.until("readiness", ServingStatus::Serving).await;
        started(&server, "try-1").await;
        if line.contains("run resume") {
            let request = v1::SuspendRunRequest {
                run_id: "try-1".to_owned(),
                kind: "HELP".to_owned(),
                reason: "which account?".to_owned(),
                ..v1::SuspendRunRequest::default()
            };
            server.client().await.suspend_run(request).await.unwrap();
        }
        if line.contains("run archive") || line.contains("run restore") {
            completed(&server, "try-1").await;
        }
        let others = [
            v1::StartRunRequest {
                run_id: "run-2".to_owned(),
                deferred: true,
                labels: [("team", "search"), ("instance", "a")].map(|(key, value)| (key.into(), value.into())).into(),
                ..v1::StartRunRequest::default()
            },
            v1::StartRunRequest {
                run_id: "run-3".to_owned(),
                lease_ttl: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
                ..v1::StartRunRequest::default()
            },
        ];
        for other in others {
            let other = v1::StartRunRequest { task_thread_id: "thread-1".to_owned(), ..other };
            server.client().await.start_run(other).await.unwrap();
        }
        let claimed = v1::StartRunRequest {
            task_thread_id: "thread-1".to_owned(),
            run_id: "run-4".to_owned(),
            deferred: true,
            ..v1::StartRunRequest::default()
        };
        server.client().await.start_run(claimed).await.unwrap();
        let lease_ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
        let claim = v1::ClaimRunRequest { run_id: "run-4".to_owned(), lease_ttl, ..v1::ClaimRunRequest::default() };
        server.client().await.claim_run(claim).await.unwrap();
        std::fs::write(directory.path().join("review.yaml"), REVIEW).unwrap();
        std::fs::write(directory.path().join("review.json"), REVIEW_JSON).unwrap();
        std::fs::write(directory.path().join("commands.jsonl"), COMMANDS).unwrap();
        let mut lifecycles = LifecycleServiceClient::new(channel(server.address()).await);
        let put = v1::PutLifecycleRequest { declaration: REVIEW.to_owned() };
        lifecycles.put_lifecycle(put).await.unwrap();
        let reviewed = v1::StartRunRequest {
            task_thread_id: "thread-1".to_owned(),
            run_id: "run-5".to_owned(),
            lifecycle: "review".to_owned(),
            ..v1::StartRunRequest::default()
        };
        server.client().await.start_run(reviewed).await.unwrap();
        let mut namespaces = NamespaceServiceClient::new(channel(server.address()).await);
        let team = v1::CreateNamespaceRequest { name: "team-b".to_owned(), ..v1::CreateNamespaceRequest::default() };
        namespaces.create_namespace(team).await.unwrap();
        Self { server, directory, database }
    }

    fn shell(&self, line: &str) -> Command {
        let binaries = std::path::Path::new(env!("CARGO_BIN_EXE_runledger")).parent().unwrap();
        let mut shell = Command::new("bash");
        shell.args(["-o", "pipefail", "-ec", line]).current_dir(self.directory.path());
        shell
            .env_clear()
            .envs(Everywhere::environment())
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", binaries.display()));
        shell.env("RUNLEDGER_SERVER", self.server.address()).env("SERVER_PID", self.server.pid().to_string());
        shell.env("XDG_DATA_HOME", self.directory.path());
        if line.contains("context") {
            shell.env("XDG_CONFIG_HOME", self.directory.path());
        }
        shell.env("PGBENCH", program("pgbench"));
        shell.env("DATABASE", self.database.as_ref().map(Database::dsn).unwrap_or_default());
        shell
    }

    /// The cursor of a watcher that has missed something.
    async fn cursor(&self) -> String {
        let Ran { code, out, err } = ran(self.shell("runledger bench watch catch-up --events 300 -o json")).await;
        assert_eq!(code, 0, "{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        report["notes"][0].as_str().unwrap().rsplit(' ').next().unwrap().to_owned()
    }
}

async fn run(line: &str) -> Ran {
    run_in(&Scene::of(line).await, line).await
}

async fn run_in(scene: &Scene, line: &str) -> Ran {
    let mut shell = scene.shell(&adapted(line));
    if line.contains("--cursor ") {
        shell.env("CURSOR", scene.cursor().await);
    }
    for namespace in ["team-a", "team-b"].into_iter().filter(|name| line.contains("export") && line.contains(name)) {
        let create = format!("runledger namespace create {namespace} --if-missing");
        assert_eq!(ran(scene.shell(&create)).await.code, 0);
    }
    if line.contains("--cursor-file") {
        let export = "runledger export --namespace team-b --output team-b.jsonl --cursor-output team-b.cursor";
        assert_eq!(ran(scene.shell(export)).await.code, 0);
    }
    let waits = ["runledger run wait", "runledger run watch"].iter().any(|command| line.contains(command));
    let end = async {
        if waits {
            completed(&scene.server, "try-1").await;
        }
    };
    tokio::join!(ran(shell), end).0
}

fn succeeded(line: &str, Ran { code, out, err }: &Ran) {
    assert_eq!(*code, 0, "{line}\n{out}{err}");
}

/// Each on a scene of its own, a few at a time: much of it is waiting.
async fn succeed(lines: BTreeSet<String>) {
    let ran = lines.into_iter().map(async |line| succeeded(&line, &run(&line).await));
    stream::iter(ran).buffer_unordered(3).collect::<()>().await;
}

/// Measurements keep to runs of their own: those on one kind of store share a scene.
async fn measure(lines: BTreeSet<String>) {
    let (on_postgres, others): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line.contains("postgres://"));
    for lines in [on_postgres, others] {
        let scene = Scene::of(&lines[0]).await;
        for line in lines {
            succeeded(&line, &run_in(&scene, &line).await);
        }
    }
}

#[test]
fn every_example_that_serves_or_migrates_is_understood() {
    for line in examples(Kind::Understood, 5) {
        let words = line.split_whitespace().skip_while(|word| word.contains("RUNLEDGER_"));
        Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_of_a_run_does_what_it_shows() {
    succeed(examples(Kind::Run, 20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_of_a_measurement_does_what_it_shows() {
    measure(examples(Kind::Bench, 10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_other_example_does_what_it_shows() {
    succeed(examples(Kind::Other, 15)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_that_follows_goes_on_until_it_is_told_to_stop() {
    for line in examples(Kind::Follows, 1) {
        let scene = Scene::of(&line).await;
        let mut going = Going::of(scene.shell(&format!("exec {}", adapted(&line))));
        let mut client = scene.server.client().await;
        let mut changes = tokio::time::interval(std::time::Duration::from_millis(50));
        let mut step = 0;
        // The example shows events once it follows, and does not say when that is.
        let first = loop {
            tokio::select! {
                first = going.out.next_line() => break first.unwrap().expect("it ended"),
                _ = changes.tick() => {
                    step += 1;
                    let label = [("step".to_owned(), step.to_string())];
                    let run_id = "try-1".to_owned();
                    let update = v1::UpdateRunRequest { run_id, labels: label.into(), ..Default::default() };
                    client.update_run(update).await.unwrap();
                }
            }
        };
        assert!(first.contains("\"runId\":\"try-1\""), "{first}");
        going.signal("INT");
        let (code, _, err) = going.ended().await;
        assert_eq!(code, 0, "{line}: {err}");
    }
}
