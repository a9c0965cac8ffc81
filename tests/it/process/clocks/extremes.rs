//! Clocks that show what cannot be written: a server does not begin by one, and goes on under one.

use std::path::Path;

use rustls::ClientConfig;
use tempfile::TempDir;

use super::{HOUR, shifted};
use crate::process::calls::{Step, ask};
use crate::process::data::Data;
use crate::process::server::{Client, Process, SOON, Server, eventually, run};
use crate::support::patient::Patient;
use crate::support::tls::{Ca, channel};

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

/// Sets the clock of the processes that read this file.
fn set(file: &Path, by: i64) {
    // A file that is half written would be read as another number.
    std::fs::write(file.with_extension("next"), by.to_string()).unwrap();
    std::fs::rename(file.with_extension("next"), file).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_outlives_a_clock_that_is_set_where_no_time_can_be_written() {
    let directory = TempDir::new().unwrap();
    let (library, file) = (shifted(&directory), directory.path().join("off"));
    let set = |by: i64| set(&file, by);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_with_tls_are_taken_under_a_clock_before_1970() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (library, file) = (shifted(&directory), path("off"));
    let (ca, clients) = (Ca::new("the server's CA"), Ca::new("the clients' CA"));
    ca.server().write(&path("server.pem"), &path("server.key"));
    std::fs::write(path("clients.pem"), clients.pem()).unwrap();
    let own = clients.client(&["urn:one"]);
    let environment = [("LD_PRELOAD", library.to_str().unwrap()), ("CLOCK_FILE", file.to_str().unwrap())];
    let shown = |name: &str| path(name).display().to_string();
    let (certificate, key, client_ca) = (shown("server.pem"), shown("server.key"), shown("clients.pem"));
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    for asks in [&[][..], &["--tls-client-ca", &client_ca]] {
        set(&file, 0);
        let serve = ["serve", "--listen", "127.0.0.1:0", "--store", "memory"];
        let args: Vec<&str> = serve.iter().chain(&tls).chain(asks).copied().collect();
        let server = Server::of(Process::spawn_with(&args, &environment)).await;
        let trusted = || ca.trusted((!asks.is_empty()).then_some(&own), &[b"h2"]);
        let calls = async |config: std::sync::Arc<ClientConfig>, run_id: &str| {
            let mut client = Client::new(Patient::new(channel(server.address, config)));
            ask(&mut client, run_id, Step::Start, run_id).await.map(drop)
        };
        let is_open = eventually(SOON, async || calls(trusted(), "before").await.ok());
        assert!(is_open.await.is_some(), "{asks:?}: {}", server.process.said());
        set(&file, -60 * YEAR);
        let under = calls(trusted(), "under").await;
        assert!(under.is_ok(), "{asks:?}: {under:?}: {}", server.process.said());
        assert!(!server.process.said().contains("panic"), "{asks:?}: {}", server.process.said());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_sends_to_a_collector_outlives_a_clock_before_1970() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let shown = |name: &str| path(name).display().to_string();
    let (library, file) = (shifted(&directory), path("off"));
    let (clock, preload) = (file.display().to_string(), library.display().to_string());
    let ca = Ca::new("the collector's CA");
    ca.server().write(&path("server.pem"), &path("server.key"));
    std::fs::write(path("ca.pem"), ca.pem()).unwrap();
    let own = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (collector, own_ca) = (format!("https://localhost:{}", own.port()), shown("ca.pem"));
    set(&file, 0);
    let flags = ["--otlp-endpoint", &collector, "--otlp-ca", &own_ca, "--otlp-interval", "1s"];
    let args = [&["serve", "--listen", "127.0.0.1:0", "--store", "memory"], &flags[..]].concat();
    let server = Server::of(Process::spawn_with(&args, &[("LD_PRELOAD", &preload), ("CLOCK_FILE", &clock)])).await;
    server.is_ready().await;
    set(&file, -60 * YEAR);
    // Its first handshake with a collector is under that clock: any server that speaks TLS is one.
    let (certificate, key, listen) = (shown("server.pem"), shown("server.key"), own.to_string());
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    let _collector =
        Server::of(Process::spawn(&[&["serve", "--listen", &listen, "--store", "memory"], &tls[..]].concat())).await;
    let unsent = "the collector does not take what it is sent";
    let is_told = eventually(SOON, async || server.process.said().contains(unsent).then_some(())).await;
    assert!(is_told.is_some() && !server.process.said().contains("panic"), "{}", server.process.said());
}
