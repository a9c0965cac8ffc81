//! Clocks that show what cannot be written: a server does not begin by one, and goes on under one.

use tempfile::TempDir;

use super::{HOUR, shifted};
use crate::process::calls::{Step, ask};
use crate::process::data::Data;
use crate::process::server::{Process, SOON, Server, eventually, run};

/// Years, as long as they are on average.
const YEAR: i64 = 31_556_952;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_begins_before_1970_or_after_9999_and_nothing_is_left_of_the_try() {
    let directory = TempDir::new().unwrap();
    let library = shifted(&directory);
    let store = Data::Sqlite(directory.path().join("ledger.db")).store();
    for (off_by, wanted) in [
        (-60 * YEAR, "before 1970"),
        (-300 * YEAR, "before 1970"),
        (8_200 * YEAR, "after the year 9999"),
        (9_000 * YEAR, "after the year 9999"),
    ] {
        let environment = [("LD_PRELOAD", library.to_str().unwrap()), ("CLOCK_OFF_BY", &off_by.to_string())];
        let serve = ["serve", "--listen", "127.0.0.1:0", "--store", &store];
        for args in [&serve[..], &["migrate", "--store", &store], &["run", "list"], &["doctor", "--store", &store]] {
            let (code, said) = Process::spawn_with(args, &environment).exited(SOON).await;
            let sentence = format!("the clock of this machine shows a time {wanted}: set it first");
            assert!(code == 1 && said.contains(&sentence) && !said.contains("panic"), "{args:?}: {code}: {said}");
        }
    }
    let made: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(made.len(), 2, "the library alone: {made:?}");
    let server = Server::start(&store).await;
    server.is_ready().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_outlives_a_clock_that_is_set_where_no_time_can_be_written() {
    let directory = TempDir::new().unwrap();
    let (library, file) = (shifted(&directory), directory.path().join("off"));
    let set = |by: i64| {
        // A file that is half written would be read as another number.
        std::fs::write(directory.path().join("next"), by.to_string()).unwrap();
        std::fs::rename(directory.path().join("next"), &file).unwrap();
    };
    set(0);
    let store = Data::Sqlite(directory.path().join("ledger.db")).store();
    let environment = [("LD_PRELOAD", library.to_str().unwrap()), ("CLOCK_FILE", file.to_str().unwrap())];
    let args = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--store", &store];
    let server = Server::of(Process::spawn_with(&args, &environment)).await;
    server.is_ready().await;
    for (number, by) in [8_200 * YEAR, 9_000 * YEAR, 200 * YEAR, -60 * YEAR, HOUR, 0].into_iter().enumerate() {
        let before = server.process.said().matches("the clock was set").count();
        set(by);
        let is_noticed = eventually(SOON, async || {
            (server.process.said().matches("the clock was set").count() > before).then_some(())
        });
        assert!(is_noticed.await.is_some(), "{by}: {}", server.process.said());
        let run_id = format!("run-{number}");
        ask(&mut server.client(), &run_id, Step::Start, "request").await.unwrap();
        ask(&mut server.client(), &run_id, Step::Complete, "completion").await.unwrap();
        server.becomes("readiness", runledger_client::Health::Serving, SOON).await;
    }
    let said = server.process.said();
    assert!(!said.contains("panic") && !said.contains("ERROR"), "{said}");
    drop(server);
    let (code, said) = run(&["verify", "--store", &store]).await;
    assert_eq!(code, 0, "{said}");
}
