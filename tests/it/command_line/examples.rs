//! Every example of every help is run as it stands.

use clap::Command;
use tempfile::TempDir;

use super::cli::{Ran, completed, ran, started};
use super::{every_command, examples_of};
use crate::support::server::Server;

/// As it stands, but for the address and for how long it takes.
fn adapted(line: &str) -> String {
    let mut words: Vec<_> = line.split(' ').collect();
    for index in 1..words.len() {
        match words[index - 1] {
            "--for" => words[index] = "1s",
            "--server" => words[index] = "$RUNLEDGER_SERVER",
            _ => {}
        }
    }
    words.join(" ")
}

async fn run(line: &str) -> Ran {
    let server = Server::start("memory").await;
    started(&server, "run-1").await;
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("metadata.json"), "{\"step\": 2}").unwrap();
    let binaries = std::path::Path::new(env!("CARGO_BIN_EXE_runledger")).parent().unwrap();
    let mut shell = tokio::process::Command::new("bash");
    shell.args(["-o", "pipefail", "-ec", &adapted(line)]).current_dir(directory.path());
    shell.env_clear().env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", binaries.display()));
    shell.env("RUNLEDGER_SERVER", server.address());
    let waits = ["runledger run wait", "runledger run watch"].iter().any(|command| line.contains(command));
    let end = async {
        if waits {
            completed(&server, "run-1").await;
        }
    };
    tokio::join!(ran(shell), end).0
}

fn examples(of: impl Fn(&Command) -> bool) -> Vec<String> {
    let commands = every_command().into_iter().filter(of);
    let lines = commands.flat_map(|command| examples_of(&command));
    let lines: Vec<_> = lines.filter(|line| !line.contains("runledger serve") && !line.contains(" migrate ")).collect();
    assert!(!lines.is_empty());
    lines
}

async fn succeed(lines: Vec<String>) {
    for line in lines {
        let Ran { code, out, err } = run(&line).await;
        assert_eq!(code, 0, "{line}\n{out}{err}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_of_the_help_of_run_does_what_it_shows() {
    let root = every_command().swap_remove(0);
    let names: Vec<_> = root.find_subcommand("run").unwrap().get_subcommands().map(Command::get_name).collect();
    // `watch` is also the name of a command of its own, whose examples begin otherwise.
    let mut lines = examples(|command| command.get_name() == "run" || names.contains(&command.get_name()));
    lines.retain(|line| line.contains("runledger run "));
    assert!(lines.len() >= 20, "{lines:?}");
    succeed(lines).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_of_the_other_helps_does_what_it_shows() {
    let mut lines = examples(|command| !["serve", "migrate"].contains(&command.get_name()));
    lines.retain(|line| !line.contains("runledger run "));
    assert!(lines.len() >= 8, "{lines:?}");
    succeed(lines).await;
}
