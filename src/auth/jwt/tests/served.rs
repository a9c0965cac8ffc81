//! Keys from a URL: what is sent to the server, and which of its answers are taken.

use std::time::Duration;

use serde_json::json;

use super::key_server::KeyServer;
use super::signing::{Signer, jwks};
use super::{Following, ISSUER, claims, claims_with, follow, issuer};
use crate::auth::jwks::{KeySource, Trust};
use crate::auth::jwt::{Issuer, JwtRefused};

/// A folder with the server's CA and a token, and the trust in them.
fn trust(server: &KeyServer, token: Option<&str>) -> (Trust, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let trust =
        Trust { ca_file: Some(file("ca.crt", &server.ca)), bearer_token_file: token.map(|token| file("token", token)) };
    (trust, folder)
}

fn url(server: &KeyServer, path: &str, trust: Trust) -> KeySource {
    KeySource::Url { url: server.url(path).parse().unwrap(), trust }
}

/// Follows an issuer with these keys until they were looked for.
async fn looked(keys: KeySource) -> Following {
    let following = follow(vec![issuer(keys)]);
    following.looked().await;
    following
}

fn has_keys(jwts: &Following) -> bool {
    jwts.issuers.iter().all(|followed| followed.keys.has_keys())
}

async fn refused(jwts: &Following, signer: &Signer) -> Option<JwtRefused> {
    jwts.verify(signer.sign("a", &claims()).as_bytes()).await.err()
}

#[tokio::test]
async fn keys_are_fetched_over_tls_with_the_bearer_token_of_the_moment() {
    let (server, signer) = (KeyServer::start().await, Signer::es256());
    server.says("/keys?a=b", "200 OK", &jwks(&[signer.jwk("a")]));
    let (trust, folder) = trust(&server, Some("first\n"));
    let jwts = looked(url(&server, "/keys?a=b", trust)).await;
    assert_eq!(refused(&jwts, &signer).await, None);
    std::fs::write(folder.path().join("token"), "second").unwrap();
    drop(jwts);
    let jwts = looked(url(&server, "/keys?a=b", self::trust(&server, None).0)).await;
    drop(jwts);
    let heard = server.heard();
    assert!(heard[0].starts_with("GET /keys?a=b HTTP/1.1\r\n"), "{heard:?}");
    assert!(heard[0].contains("authorization: Bearer first\r\n"), "{heard:?}");
    assert!(heard[0].contains(&format!("host: {}\r\n", server.address)), "{heard:?}");
}

#[tokio::test]
async fn files_of_trust_are_read_anew_for_each_fetch() {
    let (server, other, signer) = (KeyServer::start().await, KeyServer::start().await, Signer::es256());
    server.says("/keys", "200 OK", &jwks(&[signer.jwk("a")]));
    let (trust, folder) = trust(&server, Some("first"));
    let source = url(&server, "/keys", trust);
    for (ca, token, taken) in [
        (&server.ca, "first", true),
        (&other.ca, "first", false),
        (&server.ca, "second", true),
        (&server.ca, "", false),
    ] {
        std::fs::write(folder.path().join("ca.crt"), ca).unwrap();
        std::fs::write(folder.path().join("token"), token).unwrap();
        let before = server.heard().len();
        let jwts = looked(source.clone()).await;
        assert_eq!(has_keys(&jwts), taken, "{token:?}");
        assert_eq!(server.heard().len(), before + usize::from(taken), "{token:?}");
        if taken {
            assert!(server.heard()[before].contains(&format!("authorization: Bearer {token}\r\n")));
        }
    }
    for broken in ["ca.crt", "token"] {
        std::fs::remove_file(folder.path().join(broken)).unwrap();
        assert!(!has_keys(&looked(source.clone()).await), "{broken}");
        std::fs::write(folder.path().join(broken), "no certificate\n").unwrap();
    }
}

#[tokio::test]
async fn an_answer_that_is_no_set_of_keys_is_not_taken() {
    let (server, signer) = (KeyServer::start().await, Signer::es256());
    let good = jwks(&[signer.jwk("a")]);
    let (trust, _folder) = trust(&server, None);
    let redirect = format!("302 Found\r\nlocation: {}", server.url("/good"));
    server.says("/good", "200 OK", &good);
    for (path, status, body) in [
        ("/redirect", redirect.as_str(), good.as_str()),
        ("/gone", "410 Gone", &good),
        ("/large", "200 OK", &format!("{}{good}", " ".repeat(256 * 1024))),
        ("/empty", "200 OK", ""),
        ("/page", "200 OK", "<html></html>"),
        ("/none", "200 OK", r#"{"keys":[]}"#),
    ] {
        server.says(path, status, body);
        let jwts = looked(url(&server, path, trust.clone())).await;
        assert!(!has_keys(&jwts), "{path}");
    }
    assert!(!server.heard().iter().any(|head| head.starts_with("GET /good")), "a redirect is not followed");
    assert_eq!(refused(&looked(url(&server, "/good", trust)).await, &signer).await, None);
}

#[tokio::test]
async fn keys_in_clear_are_taken_from_loopback() {
    let (server, signer) = (KeyServer::start_plain().await, Signer::es256());
    server.says("/keys", "200 OK", &jwks(&[signer.jwk("a")]));
    assert_eq!(refused(&looked(url(&server, "/keys", Trust::default())).await, &signer).await, None);
}

#[tokio::test]
async fn a_server_that_says_nothing_holds_up_a_token_for_five_seconds_and_a_look_for_ten() {
    let (server, signer) = (KeyServer::start().await, Signer::es256());
    server.says("/keys", "silence", "");
    let (trust, _folder) = trust(&server, None);
    let jwts = follow(vec![issuer(url(&server, "/keys", trust))]);
    server.hears(1).await;
    let began = tokio::time::Instant::now();
    tokio::time::pause();
    assert_eq!(refused(&jwts, &signer).await, Some(JwtRefused::KeysUnavailable));
    assert_eq!(began.elapsed().as_secs(), 5);
    jwts.looked().await;
    assert!((9..=11).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(11));
}

#[tokio::test]
async fn an_issuers_own_document_tells_where_its_keys_are_on_its_own_host() {
    let (server, elsewhere, signer) = (KeyServer::start().await, KeyServer::start().await, Signer::es256());
    let (trust, _folder) = trust(&server, Some("secret"));
    let name = server.url("/realm");
    for path in ["/keys", "/realm/keys"] {
        server.says(path, "200 OK", &jwks(&[signer.jwk("a")]));
    }
    elsewhere.says("/keys", "200 OK", &jwks(&[signer.jwk("a")]));
    for (says, taken) in [
        (json!({ "issuer": name, "jwks_uri": server.url("/realm/keys") }), true),
        (json!({ "issuer": name, "jwks_uri": server.url("/keys"), "more": 7 }), true),
        (json!({ "issuer": name, "jwks_uri": elsewhere.url("/keys") }), false),
        (json!({ "issuer": name, "jwks_uri": format!("http://{}/keys", server.address) }), false),
        (json!({ "issuer": name, "jwks_uri": "/keys" }), false),
        (json!({ "issuer": format!("{name}/"), "jwks_uri": server.url("/keys") }), false),
        (json!({ "jwks_uri": server.url("/keys") }), false),
        (json!({ "issuer": name }), false),
    ] {
        server.says("/realm/.well-known/openid-configuration", "200 OK", &says.to_string());
        let jwts = follow(vec![Issuer::discovered(&name, vec!["runledger".into()], trust.clone()).unwrap()]);
        jwts.looked().await;
        assert_eq!(has_keys(&jwts), taken, "{says}");
        if taken {
            let token = signer.sign("a", &claims_with(&json!({ "iss": name })));
            jwts.verify(token.as_bytes()).await.unwrap();
        }
    }
    assert!(elsewhere.heard().is_empty(), "nobody else is asked, with our token or without it");
    assert!(Issuer::discovered("no url", vec!["runledger".into()], Trust::default()).is_err());
    assert!(Issuer::discovered(ISSUER, vec!["runledger".into()], Trust::default()).is_ok());
}
