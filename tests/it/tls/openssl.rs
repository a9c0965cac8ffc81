//! `openssl s_client` against the port: a TLS that is not ours.

use std::process::Stdio;

use tokio::process::Command;

use super::Served;
use crate::support::tls::Ca;

/// Runs `openssl s_client` with these flags. None where there is no openssl.
async fn s_client(served: &Served, flags: &[&str]) -> Option<String> {
    std::fs::write(served.file("ca.pem"), served.ca.pem()).unwrap();
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &served.server.address.to_string(), "-CAfile"]);
    command.arg(served.file("ca.pem")).args(["-verify_return_error", "-verify_ip", "127.0.0.1"]).args(flags);
    match command.stdin(Stdio::null()).output().await {
        Ok(output) => Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()),
        Err(error) => {
            eprintln!("skipped: openssl cannot be run: {error}");
            None
        }
    }
}

#[tokio::test]
async fn openssl_speaks_tls_1_2_and_1_3_with_it_and_nothing_older() {
    let served = Served::start().await;
    for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let Some(said) = s_client(&served, &[version, "-alpn", "h2"]).await else { return };
        for promise in [name, "ALPN protocol: h2", "Verify return code: 0 (ok)"] {
            assert!(said.contains(promise), "{promise}: {said}");
        }
    }
    let Some(said) = s_client(&served, &["-tls1_1", "-alpn", "h2"]).await else { return };
    assert!(!said.contains("Verify return code: 0 (ok)\n---\nread R BLOCK"), "{said}");
    assert!(said.contains("no peer certificate available"), "{said}");
}

#[tokio::test]
async fn openssl_is_let_in_with_a_certificate_and_is_given_no_ticket() {
    let clients = Ca::new("clients");
    let served = Served::start_with(&[("tls-client-ca", &clients.pem())], &[]).await;
    clients.client(&["spiffe://example.org/a"]).write(&served.file("own.pem"), &served.file("own.key"));
    let (own, key) = (served.file("own.pem").display().to_string(), served.file("own.key").display().to_string());
    let flags = ["-alpn", "h2", "-cert", &own, "-key", &key];
    let Some(said) = s_client(&served, &flags).await else { return };
    assert!(said.contains("Verify return code: 0 (ok)") && said.contains("ALPN protocol: h2"), "{said}");
    assert!(!said.contains("Post-Handshake New Session Ticket"), "{said}");
    assert!(said.contains("Acceptable client certificate CA names") && said.contains("CN = clients"), "{said}");
}
