//! TLS to Postgres: what libpq does and this program does are compared, one by one, against a real server.

use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use runledger_postgres::{Connector, Settings, Wire};
use runledger_proto::v1::{GetRunRequest, StartRunRequest};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_postgres::SimpleQueryMessage;

use crate::process::server::{Client, Process, SOON, Server, eventually, run};
use crate::support::postgres::{Cluster, direct, group, program};
use crate::support::tls::{Ca, Pair, replace};

/// A cluster whose databases differ in what they let in: `either` anybody, `tls` over TLS, `clear` never over TLS, `proven` by
/// a client certificate, and `secret` by a password.
struct Secured {
    cluster: Cluster,
    folder: TempDir,
    ca: Ca,
}

const LETS_IN: &str = "\
    hostssl tls all all trust\n\
    hostnossl clear all all trust\n\
    hostssl proven all all cert\n\
    host secret all all scram-sha-256\n\
    host either,postgres all all trust\n";

impl Secured {
    async fn start() -> Self {
        let (folder, ca) = (tempfile::tempdir().unwrap(), Ca::new("of the database"));
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(file("hba"), LETS_IN).unwrap();
        std::fs::write(file("ca"), ca.pem()).unwrap();
        std::fs::write(file("other"), Ca::new("of somebody else").pem()).unwrap();
        keep(&ca.server(), folder.path(), "server");
        let [certificate, key, ca_file, hba] = ["server.crt", "server.key", "ca", "hba"].map(file);
        let cluster = Cluster::start(&[
            ("ssl", "on"),
            ("ssl_cert_file", &certificate),
            ("ssl_key_file", &key),
            ("ssl_ca_file", &ca_file),
            ("hba_file", &hba),
            ("password_encryption", "scram-sha-256"),
        ]);
        let admin = direct(&cluster.dsn()).await;
        for database in ["either", "tls", "clear", "proven", "secret"] {
            admin.batch_execute(&format!("create database {database}")).await.unwrap();
        }
        admin.batch_execute("alter role runledger password 'pass-that-nobody-says'").await.unwrap();
        Self { cluster, folder, ca }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A location at loopback with the server named so.
    fn location(&self, host: &str, database: &str, more: &str) -> String {
        let port = self.cluster.port();
        format!("postgres://runledger@{host}:{port}/{database}?hostaddr=127.0.0.1&connect_timeout=10{more}")
    }
}

/// Puts a certificate and its key where Postgres reads them: it wants the key kept from others.
fn keep(pair: &Pair, folder: &Path, name: &str) {
    let (certificate, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    replace(&certificate, &pair.certificate);
    let next = folder.join("next");
    std::fs::write(&next, &pair.key).unwrap();
    match group() {
        None => std::fs::set_permissions(&next, std::fs::Permissions::from_mode(0o600)).unwrap(),
        Some(group) => {
            std::fs::set_permissions(&next, std::fs::Permissions::from_mode(0o640)).unwrap();
            chown(&next, None, Some(group)).unwrap();
        }
    }
    std::fs::rename(next, key).unwrap();
}

/// How a client came in; none where it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CameIn {
    Plain,
    Encrypted,
    No,
}

const IS_ENCRYPTED: &str = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";

fn psql(location: &str, home: &Path) -> (CameIn, String) {
    let mut psql = Command::new(program("psql"));
    psql.args(["--no-psqlrc", "-At", "-c", IS_ENCRYPTED, location]).env_clear().env("HOME", home);
    let ran = psql.output().unwrap();
    let came_in = match (ran.status.success(), String::from_utf8_lossy(&ran.stdout).trim()) {
        (true, "t") => CameIn::Encrypted,
        (true, "f") => CameIn::Plain,
        (true, other) => panic!("psql says {other:?}"),
        (false, _) => CameIn::No,
    };
    (came_in, String::from_utf8_lossy(&ran.stderr).into_owned())
}

/// Connects as the store does. With the way in which the connection is said to be protected, or the failure.
async fn connect(location: &str) -> (CameIn, Result<Wire, String>) {
    let settings = match Settings::parse(location) {
        Ok(settings) => settings,
        Err(error) => return (CameIn::No, Err(error)),
    };
    match Connector::new(settings).connect().await {
        Ok(connected) => {
            let mut driven = JoinSet::new();
            driven.spawn(connected.connection);
            let said = connected.client.simple_query(IS_ENCRYPTED).await.unwrap();
            let is_encrypted =
                said.iter().any(|said| matches!(said, SimpleQueryMessage::Row(row) if row.get(0) == Some("t")));
            (if is_encrypted { CameIn::Encrypted } else { CameIn::Plain }, Ok(connected.wire))
        }
        Err(error) => (CameIn::No, Err(format!("{error:?}"))),
    }
}

#[tokio::test]
async fn every_sslmode_does_what_libpqs_does_but_for_roots_that_libpq_overlooks() {
    let place = Secured::start().await;
    let home = tempfile::tempdir().unwrap();
    let modes = ["", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
    let (mut differ, mut compared) = (Vec::new(), 0);
    for mode in modes {
        for database in ["either", "tls", "clear"] {
            for roots in ["", "ca", "other", "missing"] {
                for host in ["localhost", "elsewhere.example"] {
                    let mut more = String::new();
                    if !mode.is_empty() {
                        write!(more, "&sslmode={mode}").unwrap();
                    }
                    if !roots.is_empty() {
                        write!(more, "&sslrootcert={}", place.file(roots)).unwrap();
                    }
                    let location = place.location(host, database, &more);
                    let (theirs, said) = psql(&location, home.path());
                    let (ours, wire) = connect(&location).await;
                    compared += 1;
                    // Roots that nothing is verified by, or that are not there, are a mistake, which libpq overlooks.
                    let verifies_nothing = !roots.is_empty() && ["", "disable", "allow", "prefer"].contains(&mode);
                    let is_strict = verifies_nothing || (mode == "require" && roots == "missing");
                    let theirs = if is_strict { CameIn::No } else { theirs };
                    let tells = match (&ours, &wire) {
                        (CameIn::Plain, Ok(wire)) => *wire == Wire::Plain,
                        (CameIn::Encrypted, Ok(wire)) => *wire != Wire::Plain,
                        (CameIn::No, Err(_)) => true,
                        _ => false,
                    };
                    if theirs != ours || !tells {
                        differ.push(format!(
                            "{mode:?} {database} {roots:?} {host}: psql {theirs:?}, we {ours:?} {wire:?}; {said}"
                        ));
                    }
                }
            }
        }
    }
    assert_eq!(compared, 168);
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}

#[tokio::test]
async fn a_server_is_verified_by_its_chain_and_its_name_and_is_said_to_be() {
    let place = Secured::start().await;
    let roots = format!("&sslrootcert={}", place.file("ca"));
    for (mode, wire) in
        [("require", Wire::Verified), ("verify-ca", Wire::Verified), ("verify-full", Wire::NameVerified)]
    {
        let (came_in, said) = connect(&place.location("localhost", "tls", &format!("&sslmode={mode}{roots}"))).await;
        assert_eq!((came_in, said), (CameIn::Encrypted, Ok(wire)), "{mode}");
    }
    let (came_in, said) = connect(&place.location("localhost", "tls", "&sslmode=require")).await;
    assert_eq!((came_in, said), (CameIn::Encrypted, Ok(Wire::Unverified)));
    // The platform's roots are not ours.
    let (came_in, _) = connect(&place.location("localhost", "tls", "&sslmode=verify-full&sslrootcert=system")).await;
    assert_eq!(came_in, CameIn::No);
}

#[tokio::test]
async fn a_client_certificate_is_the_way_into_a_database_that_asks_for_one() {
    let place = Secured::start().await;
    let home = tempfile::tempdir().unwrap();
    let own = place.ca.named("runledger");
    for (name, pair) in
        [("own", &own), ("other", &Ca::new("another").named("runledger")), ("wrong", &place.ca.named("somebody"))]
    {
        std::fs::write(place.folder.path().join(format!("{name}.crt")), &pair.certificate).unwrap();
        let key = place.folder.path().join(format!("{name}.key"));
        std::fs::write(&key, &pair.key).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let verified = format!("&sslmode=verify-full&sslrootcert={}", place.file("ca"));
    let with = |name: &str| {
        let (certificate, key) = (place.file(&format!("{name}.crt")), place.file(&format!("{name}.key")));
        place.location("localhost", "proven", &format!("{verified}&sslcert={certificate}&sslkey={key}"))
    };
    for (location, wanted) in [
        (with("own"), CameIn::Encrypted),
        (with("other"), CameIn::No),
        (with("wrong"), CameIn::No),
        (place.location("localhost", "proven", &verified), CameIn::No),
    ] {
        assert_eq!((psql(&location, home.path()).0, connect(&location).await.0), (wanted, wanted), "{location}");
    }
    std::fs::set_permissions(place.file("own.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let (came_in, said) = connect(&with("own")).await;
    let said = said.unwrap_err();
    assert!(came_in == CameIn::No && said.contains("Exposed") && !said.contains("PRIVATE"), "{said}");
}

#[tokio::test]
async fn a_password_goes_by_scram_bound_to_the_channel() {
    let place = Secured::start().await;
    let roots = format!("&sslmode=verify-full&sslrootcert={}", place.file("ca"));
    let with = |password: &str, more: &str| {
        let location = place.location("localhost", "secret", &format!("{roots}{more}"));
        location.replace("runledger@", &format!("runledger:{password}@"))
    };
    let (came_in, said) = connect(&with("pass-that-nobody-says", "&channel_binding=require")).await;
    assert_eq!((came_in, said), (CameIn::Encrypted, Ok(Wire::NameVerified)));
    let (came_in, said) = connect(&with("another", "")).await;
    let said = said.unwrap_err();
    assert!(came_in == CameIn::No && !said.contains("another"), "{said}");
}

async fn begin(client: &mut Client) {
    let run = StartRunRequest { run_id: "run".into(), task_thread_id: "thread".into(), ..Default::default() };
    client.start_run(run).await.unwrap();
}

#[tokio::test]
async fn every_command_that_opens_a_store_verifies_the_server_and_says_so() {
    let place = Secured::start().await;
    let verified = format!("&sslmode=verify-full&sslrootcert={}", place.file("ca"));
    let location = place.location("localhost", "tls", &verified);
    let (code, said) = run(&["migrate", "--store", &location]).await;
    assert_eq!(code, 0, "{said}");
    let server = Server::start_with(&["--store", &location]).await;
    server.is_ready().await;
    server.process.says("encrypted, server verified").await;
    begin(&mut server.client()).await;
    for command in [["verify", "--store", &location], ["doctor", "--store", &location]] {
        let (code, said) = run(&command).await;
        assert_eq!(code, 0, "{command:?}: {said}");
    }
    let wrong = place.location("elsewhere.example", "tls", &verified);
    let mut refused = Process::spawn(&["serve", "--listen", "127.0.0.1:0", "--store", &wrong]);
    refused.says("elsewhere.example").await;
    let said = refused.said();
    assert!(said.contains("cannot be opened") && said.contains("certificate"), "{said}");
    refused.kill();
}

#[tokio::test]
async fn a_certificate_of_the_database_is_replaced_under_a_server_that_goes_on() {
    let place = Secured::start().await;
    let location =
        place.location("localhost", "tls", &format!("&sslmode=verify-full&sslrootcert={}", place.file("ca")));
    let server = Server::start_with(&["--store", &location]).await;
    server.is_ready().await;
    let mut client = server.client();
    begin(&mut client).await;
    // Both roots are trusted while the certificate changes, and then the new one alone.
    let next = Ca::new("of the database, the next one");
    replace(&PathBuf::from(place.file("ca")), &format!("{}{}", place.ca.pem(), next.pem()));
    keep(&next.server(), place.folder.path(), "server");
    place.cluster.signal("HUP");
    let admin = direct(&place.cluster.dsn()).await;
    let get = || GetRunRequest { run_id: "run".into(), ..Default::default() };
    for roots in [None, Some(next.pem())] {
        if let Some(roots) = roots {
            replace(&PathBuf::from(place.file("ca")), &roots);
        }
        let ended = admin.query("select pg_terminate_backend(pid) from pg_stat_activity where datname = 'tls'", &[]);
        assert!(!ended.await.unwrap().is_empty());
        let answered = eventually(SOON, async || client.get_run(get()).await.ok());
        answered.await.expect("new connections trust the new root");
    }
}
