//! What docs/identity.md says to try works as it stands there.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::process::server::Server;

/// The lines of the blocks of shell under a heading of the page.
fn blocks(heading: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/identity.md");
    let page = std::fs::read_to_string(path).unwrap();
    let section = page.split_once(&format!("\n## {heading}\n")).unwrap().1.split("\n## ").next().unwrap().to_owned();
    let blocks = section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.map(|block| block.replace("\\\n", " ").lines().map(str::to_owned).collect()).collect()
}

fn shell(directory: &TempDir, script: &str, server: &str) -> Output {
    let binary = Path::new(env!("CARGO_BIN_EXE_runledger")).parent().unwrap().to_str().unwrap();
    let mut command = Command::new("bash");
    let script = format!("PATH={binary}:$PATH\n{script}");
    command.args(["-euc", &script]).current_dir(directory.path()).env("RUNLEDGER_SERVER", server);
    command.output().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_certificates_and_the_token_of_the_page_let_its_clients_in() {
    let [makes, calls] = blocks("Trying it out").try_into().unwrap();
    let directory = TempDir::new().unwrap();
    let (serve, makes): (Vec<_>, Vec<_>) = makes.into_iter().partition(|line| line.starts_with("runledger serve "));
    let made = shell(&directory, &makes.join("\n"), "");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let here = |word: &str| {
        let file = directory.path().join(word);
        if file.exists() { file.to_str().unwrap().to_owned() } else { word.to_owned() }
    };
    let serve: Vec<String> = serve[0].split(' ').skip(2).map(here).collect();
    let serve: Vec<&str> = serve.iter().map(String::as_str).chain(["--store", "memory"]).collect();
    let server = Server::start_with(&serve).await;
    let script: Vec<String> = calls.into_iter().filter(|line| !line.starts_with("python ")).collect();
    // The server may not have opened its store yet when it says that it listens.
    let until_open = "for _ in $(seq 300); do runledger health >/dev/null 2>&1 && break; sleep 0.1; done";
    let script = script.join("\n").replace("runledger whoami", &format!("{until_open}\nrunledger whoami"));
    let called = shell(&directory, &script, &server.address.to_string());
    let said = String::from_utf8_lossy(&called.stdout).into_owned();
    assert!(called.status.success(), "{said}{}", String::from_utf8_lossy(&called.stderr));
    assert!(said.contains("caller  try\nissuer  runledger\nmay     reporter in default, as agent-7\n"), "{said}");
    assert!(said.contains("agent-7") && said.contains("thread-1"), "{said}");
}
