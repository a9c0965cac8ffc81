//! Options that the binary accepts and refuses before it serves, in words and in exit codes.

use std::net::TcpListener;

use runledger_client::Health;
use tempfile::TempDir;

use super::data::Data;
use super::server::{Process, SOON, Server, run};
use crate::support::postgres::Database;

/// Starts a server that must not come to serve.
async fn refused(args: &[&str]) -> String {
    let args = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
    let (code, said) = run(&args).await;
    assert_eq!(code, 1, "{args:?}: {said}");
    assert!(!said.contains("listens on") && !said.contains("listening"), "it never says that it serves: {said}");
    said
}

async fn a_newer_release_is_named(data: Data) {
    let (code, said) = run(&["migrate", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    let newer = "update ledger set min_release = '98.7.6' returning min_release";
    assert_eq!(data.sql(newer).await, [[Some("98.7.6".to_owned())]]);
    let said = refused(&["--store", &data.store()]).await;
    assert!(said.contains("wants Runledger 98.7.6 or later"), "{said}");
    let (code, said) = run(&["migrate", "--store", &data.store()]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("98.7.6"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_sqlite_file_that_wants_a_newer_release_is_refused_by_that_releases_name() {
    let directory = TempDir::new().unwrap();
    a_newer_release_is_named(Data::Sqlite(directory.path().join("ledger.db"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_wants_a_newer_release_is_refused_by_that_releases_name() {
    let database = Database::fresh().await;
    a_newer_release_is_named(Data::Postgres(database.dsn())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_server_on_one_sqlite_file_is_refused_with_the_first_ones_pid() {
    let directory = TempDir::new().unwrap();
    let data = Data::Sqlite(directory.path().join("ledger.db"));
    let mut first = Server::start(&data.store()).await;
    first.is_ready().await;
    let said = refused(&["--store", &data.store()]).await;
    let pid = first.process.pid();
    assert!(said.contains(&format!("in use by another server (pid {pid})")), "{said}");
    let (code, said) = run(&["migrate", "--store", &data.store()]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("(pid {pid})")), "{said}");
    // The first one's lock goes with it, however it goes.
    first.process.kill();
    Server::start(&data.store()).await.is_ready().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_no_database_is_refused_and_nothing_is_made_beside_it() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("notes.txt");
    std::fs::write(&path, "milk, bread").unwrap();
    let store = format!("sqlite:{}", path.display());
    let said = refused(&["--store", &store]).await;
    assert!(said.contains("the file is no SQLite database: name another with --store"), "{said}");
    let (code, said) = run(&["doctor", "--store", &store]).await;
    assert!(code == 1 && said.contains("PROBLEM  The file is no SQLite database.\n"), "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_others_can_reach_needs_insecure() {
    let (code, said) = run(&["serve", "--store", "memory", "--listen", "0.0.0.0:0"]).await;
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("0.0.0.0:0 is open to whoever reaches it") && said.contains("--insecure"), "{said}");
    let open = Process::spawn(&["serve", "--store", "memory", "--listen", "0.0.0.0:0", "--insecure"]);
    Server::of(open).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_an_address_too() {
    let server = Server::of(Process::spawn(&["serve", "--store", "memory", "--listen", "localhost:0"])).await;
    assert!(server.address.ip().is_loopback());
    server.is_ready().await;
    let by_name = format!("localhost:{}", server.address.port());
    let (code, said) = run(&["health", "--server", &by_name]).await;
    assert_eq!(code, 0, "{said}");
    let (code, said) = run(&["serve", "--store", "memory", "--listen", "no-such-host.invalid:0"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("cannot resolve no-such-host.invalid:0"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_variable_is_refused_unless_its_flag_is_given() {
    let empty = [("RUNLEDGER_STORE", ""), ("RUNLEDGER_LISTEN", ""), ("XDG_DATA_HOME", "/nonexistent")];
    let given = ["serve", "--store", "memory", "--listen", "127.0.0.1:0"];
    Server::of(Process::spawn_with(&given, &empty)).await.is_ready().await;
    for (given, wanted) in
        [(&given[..3], "RUNLEDGER_LISTEN"), (&["serve", "--listen", "127.0.0.1:0"], "RUNLEDGER_STORE")]
    {
        let (code, said) = Process::spawn_with(given, &empty).exited(SOON).await;
        let sentence = format!("the variable {wanted} is empty: give it a value, or unset it");
        assert!(code == 2 && said.contains(&sentence), "{given:?}: {code}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_usage_error_shows_no_password() {
    for given in ["postgres://u:hunter2@h/d", "postgres://h/d?user=u&password=hunter2", "host=h password=hunter2"] {
        let listen = format!("--listen={given}");
        for args in
            [&["serve", given][..], &["serve", "--listen", given], &["serve", &listen], &["health", given], &[given]]
        {
            let (code, said) = run(args).await;
            assert_eq!(code, 2, "{args:?}: {said}");
            assert!(said.contains("error: ") && said.contains("***") && !said.contains("hunter2"), "{args:?}: {said}");
        }
        let (code, said) = Process::spawn_with(&["serve"], &[("RUNLEDGER_LISTEN", given)]).exited(SOON).await;
        assert_eq!(code, 2, "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_string_where_a_file_is_meant_makes_none_and_shows_no_password() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("location");
    for given in ["postgres://u:hunter2@h/d", "POSTGRES://u:hunter2@h/d", "host=h password=hunter2", "u:hunter2@h/d"] {
        let sqlite = format!("sqlite:{given}");
        std::fs::write(&file, &sqlite).unwrap();
        let in_file = file.to_str().unwrap();
        for command in [
            &["serve", "--listen", "127.0.0.1:0"][..],
            &["migrate"],
            &["migrate", "--dry-run"],
            &["doctor"],
            &["verify"],
            &["export"],
            &["retention", "preview"],
            &["retention", "run"],
        ] {
            for store in [["--store", &sqlite], ["--store-file", in_file], ["--store-file", given]] {
                let (code, said) = run(&[command, &store].concat()).await;
                assert_eq!(code, 2, "{command:?} {store:?}: {said}");
                assert!(said.contains("--store") && !said.contains("hunter2"), "{command:?} {store:?}: {said}");
            }
        }
        assert!(!std::path::Path::new(given).exists() && !std::path::Path::new("postgres:").exists());
    }
    for flags in [
        &["--config", "postgres://u:hunter2@h/d"][..],
        &["--access-file", "postgres://u:hunter2@h/d"],
        &["--tls-cert", "postgres://u:hunter2@h/d", "--tls-key", "host=h password=hunter2"],
    ] {
        let (code, said) = run(&[&["serve", "--store", "memory", "--listen", "127.0.0.1:0"], flags].concat()).await;
        assert!(code != 0 && !said.contains("hunter2"), "{flags:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, said) = run(&["serve", "--store", "memory", "--listen", &address]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("cannot listen on {address}")), "{said}");
    assert!(said.contains("in use"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_understood_is_a_usage_error() {
    for args in [
        &["serve", "--no-such-flag"][..],
        &["serve", "--listen", "nowhere"],
        &["serve", "--listen", "localhost:65536"],
        &["serve", "--store", "memory", "--listen", "127.0.0.1:0", "--log", "a=b=c"],
        &["health", "--server", "not an address"],
        &["health", "--server", "http://localhost:50051/runs"],
        &["serve", "--store", "mysql://nowhere"],
        &["serve", "--store", "sqlite:"],
        &["serve", "--shards", "0"],
        &["serve", "--connections", "2"],
        &["serve", "--log-format", "xml"],
        &["migrate", "--listen", "127.0.0.1:0"],
        &["health", "--timeout", "soon"],
        &["no-such-command"],
        &[],
    ] {
        let (code, said) = run(args).await;
        assert_eq!(code, 2, "{args:?}: {said}");
        let explains = ["error: ", "Usage: ", "runledger: --"].iter().any(|word| said.contains(word));
        assert!(explains, "{args:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_subcommand_explains_itself() {
    for (args, words) in [
        (&["--help"][..], &["serve", "migrate", "health", "Examples"][..]),
        (&["serve", "--help"], &["--listen", "--store", "--insecure", "RUNLEDGER_STORE", "Examples", "Exit codes"]),
        (&["migrate", "--help"], &["--store", "RUNLEDGER_STORE", "Example", "Exit codes"]),
        (&["health", "--help"], &["--server", "--service", "Examples", "Exit codes"]),
        (&["--version"], &[env!("CARGO_PKG_VERSION")]),
    ] {
        let (code, said) = run(args).await;
        assert_eq!(code, 0, "{args:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{args:?} says {word:?}: {said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_environment_says_what_flags_can_and_a_password_in_it_is_not_shown() {
    let dsn = "postgres://user:hunter2@127.0.0.1:1/nothing";
    let (code, said) = Process::spawn_with(&["serve", "--help"], &[("RUNLEDGER_STORE", dsn)]).exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    let settings =
        [("RUNLEDGER_STORE", "memory"), ("RUNLEDGER_LISTEN", "127.0.0.1:0"), ("RUNLEDGER_LOG_FORMAT", "json")];
    let mut server = Server::of(Process::spawn_with(&["serve"], &settings)).await;
    server.is_ready().await;
    server.process.signal("TERM");
    let (code, said) = server.process.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    let log: Vec<&str> = said.lines().filter(|line| line.starts_with('{')).collect();
    assert!(log.iter().any(|line| line.contains("\"message\":\"stopped\"")), "{said}");
    let address = format!("\"address\":\"{}\"", server.address);
    for message in ["listening", "the store is open"] {
        let line = log.iter().find(|line| line.contains(&format!("\"message\":\"{message}\""))).copied();
        let line = line.unwrap_or_else(|| panic!("no line says {message:?}: {said}"));
        assert!(line.contains(&address) && line.contains("\"store\":\"memory\""), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_health_command_tells_serving_from_not_serving_from_nobody_there() {
    let server = Server::start("memory").await;
    server.is_ready().await;
    server.becomes("durability", Health::NotServing, SOON).await;
    let address = server.address.to_string();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (args, wanted, word) in [
        (&["--server", &address][..], 0, "readiness: serving"),
        (&["--server", &address, "--service", "liveness"], 0, "liveness: serving"),
        (&["--server", &address, "--service", "durability"], 1, "durability: not serving"),
        (&["--server", &address, "--service", "nonsense"], 1, "no health service named"),
        (&["--server", &nobody], 3, "does not answer"),
    ] {
        let (code, said) = run(&[&["health"], args].concat()).await;
        assert_eq!(code, wanted, "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
    }
    let (code, said) = Process::spawn_with(&["health"], &[("RUNLEDGER_SERVER", &address)]).exited(SOON).await;
    assert_eq!(code, 0, "{said}");
}
