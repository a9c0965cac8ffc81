//! Limits that the shell sets on the process: each is told by a sentence, and what it has cut short goes on without it.

use std::process::Command;

use tempfile::TempDir;

use super::server::{Process, SOON, run};

/// Runs a server under a limit of `ulimit`, to its end.
fn limited(limit: &str, args: &[&str]) -> (Option<i32>, String) {
    let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_runledger")]).args(args).env_clear();
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_that_had_no_room_is_told_and_the_next_one_with_room_serves() {
    for blocks in [0, 1, 4, 8, 16, 32, 64, 128] {
        let place = TempDir::new().unwrap();
        let store = format!("sqlite:{}", place.path().join("ledger.db").display());
        let serve = ["serve", "--listen", "127.0.0.1:0", "--store", &store];
        let (code, said) = limited(&format!("-f {blocks}"), &serve);
        assert!(code == Some(1) && said.contains("ulimit -f"), "{blocks}: {code:?}: {said}");
        let mut server = Process::spawn(&serve);
        server.says("the store is open").await;
        server.signal("TERM");
        let (code, said) = server.exited(SOON).await;
        assert_eq!(code, 0, "{blocks}: {said}");
        let (code, said) = run(&["verify", "--store", &store]).await;
        assert_eq!(code, 0, "{blocks}: {said}");
    }
}

#[test]
fn too_few_descriptors_are_a_sentence_and_no_panic() {
    for files in 4..12 {
        let (code, said) = limited(&format!("-n {files}"), &["serve", "--listen", "127.0.0.1:0", "--store", "memory"]);
        assert!(
            code == Some(1) && said.starts_with("runledger: ") && !said.contains("panic"),
            "{files}: {code:?}: {said}"
        );
    }
}
