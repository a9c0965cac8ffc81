//! Signed tokens of an issuer: who they let in to the real binary, and which of them are refused.

use std::path::{Path, PathBuf};

use runledger::clock::{Clock as _, SystemClock};
use runledger_proto::v1::{GetRunRequest, ListRunEventsRequest, StartRunRequest, WatchRunsRequest};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::callers::{Caller, Place, entry, grant, reason};
use super::ends::end;
use super::key_server::KeyServer;
use super::signing::{Signer, base64, jwks};
use crate::support::tls::replace;

const ISSUER: &str = "https://issuer.example";

/// The present, in seconds, and so much more.
fn from_now(seconds: i64) -> i64 {
    SystemClock.now().micros() / 1_000_000 + seconds
}

/// Claims of a service account, as Kubernetes makes them.
fn claims(issuer: &str, namespace: &str, account: &str) -> Value {
    json!({
        "iss": issuer,
        "sub": format!("system:serviceaccount:{namespace}:{account}"),
        "aud": ["runledger"],
        "exp": from_now(600),
        "nbf": from_now(0),
        "kubernetes.io": { "namespace": namespace, "serviceaccount": { "name": account, "uid": "7" } },
    })
}

/// The issuer's part of an access file: each service account reports as itself, in the namespace of its own name.
fn issued(lines: &str) -> String {
    format!(
        "[[issuer]]\n{lines}\n[[issuer.subject]]\nname = \"system:serviceaccount:*\"\ngrants = [{}]\n",
        grant("${/kubernetes.io/namespace}", "reporter", "\"${/kubernetes.io/serviceaccount/name}\"")
    )
}

fn with_file(keys: &Path) -> String {
    issued(&format!("issuer = \"{ISSUER}\"\naudience = \"runledger\"\njwks_file = \"{}\"", keys.display()))
}

/// A file with keys, in a folder that lasts as long as the test.
fn key_file(keys: &[Value]) -> (PathBuf, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    std::fs::write(&path, jwks(keys)).unwrap();
    (path, folder)
}

fn cause(status: &Status) -> String {
    status.get_details_error_info().and_then(|info| info.metadata.get("cause").cloned()).unwrap_or_default()
}

fn run(id: &str) -> StartRunRequest {
    StartRunRequest { run_id: id.into(), task_thread_id: "thread".into(), ..Default::default() }
}

async fn refused(place: &Place, token: &str) -> Status {
    let get = GetRunRequest { run_id: "run".into(), ..Default::default() };
    place.client(Caller::of(token)).get_run(get).await.unwrap_err()
}

#[tokio::test]
async fn a_signed_token_names_its_bearer_in_every_event_and_grants_by_its_claims() {
    let signer = Signer::es256();
    let (keys, _folder) = key_file(&[signer.jwk("a")]);
    let place = Place::start(&with_file(&keys)).await;
    let token = signer.sign("a", &claims(ISSUER, "default", "bridge"));
    let mut client = place.client(Caller::of(&token));
    let started = client.start_run(run("run")).await.unwrap().into_inner().run.unwrap();
    assert_eq!(started.agent_id, "bridge");
    let events = ListRunEventsRequest { run_id: "run".into(), ..Default::default() };
    let events = client.list_run_events(events).await.unwrap().into_inner().events;
    let principal = events[0].principal.clone().unwrap();
    assert_eq!(principal.subject, "system:serviceaccount:default:bridge");
    assert_eq!((principal.issuer.as_str(), principal.agent_id.as_str()), (ISSUER, "bridge"));

    let elsewhere = place.client(Caller::of(&token).within("team-a")).start_run(run("run")).await.unwrap_err();
    assert_eq!(reason(&elsewhere), "NAMESPACE_DENIED");
    let other = place.client(Caller::of(&token).acting("other")).start_run(run("run")).await.unwrap_err();
    assert_eq!(reason(&other), "AGENT_DENIED");
    let rules = claims(ISSUER, "default", "b");
    let unknown = json!({ "iss": ISSUER, "sub": "a person", "aud": "runledger", "exp": rules["exp"] });
    assert_eq!(cause(&refused(&place, &signer.sign("a", &unknown)).await), "UNKNOWN");
    assert!(!place.server.process.said().contains(&token));
}

#[tokio::test]
async fn every_bad_token_is_refused_by_its_name() {
    let (signer, other) = (Signer::es256(), Signer::ed25519());
    let (keys, _folder) = key_file(&[signer.jwk("a")]);
    let place = Place::start(&with_file(&keys)).await;
    let good = claims(ISSUER, "default", "bridge");
    let with = |member: &str, value: Value| {
        let mut claims = good.clone();
        claims[member] = value;
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        signer.sign("a", &claims)
    };
    let header = |header: Value| signer.sign_with(&header, &good);
    let sound = signer.sign("a", &good);
    let (head, signature) = sound.rsplit_once('.').unwrap();
    let by_secret = {
        let beginning =
            format!("{}.{}", base64(json!({ "alg": "HS256", "kid": "a" }).to_string()), base64(good.to_string()));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, signer.public());
        format!("{beginning}.{}", base64(ring::hmac::sign(&key, beginning.as_bytes())))
    };
    for (token, name) in [
        (with("exp", json!(from_now(-31))), "EXPIRED"),
        (with("nbf", json!(from_now(60))), "NOT_YET_VALID"),
        (with("exp", Value::Null), "NO_EXPIRY"),
        (with("exp", json!(from_now(600).to_string())), "BAD_EXPIRY"),
        (with("iss", Value::Null), "NO_ISSUER"),
        (with("iss", json!("https://elsewhere.example")), "UNKNOWN_ISSUER"),
        (with("iss", json!("kubernetes/serviceaccount")), "LEGACY_SERVICE_ACCOUNT"),
        (with("aud", Value::Null), "NO_AUDIENCE"),
        (with("aud", json!("somebody")), "WRONG_AUDIENCE"),
        (with("sub", Value::Null), "NO_SUBJECT"),
        (header(json!({ "alg": "none", "kid": "a" })), "UNSIGNED"),
        (by_secret, "SYMMETRIC_ALGORITHM"),
        (other.sign("a", &good), "WRONG_ALGORITHM"),
        (other.sign("unknown", &good), "UNKNOWN_KEY"),
        (header(json!({ "alg": "ES256", "kid": "a", "crit": ["x"] })), "CRITICAL_EXTENSION"),
        (format!("{head}x.{signature}"), "MALFORMED"),
        (format!("{head}.{}", &signature[..signature.len() - 2]), "SIGNATURE"),
        (Signer::es256().sign("a", &good), "SIGNATURE"),
        (format!("{head}."), "SIGNATURE"),
        ("eyJ.b.c".to_owned(), "MALFORMED"),
        ("a.b.c".to_owned(), "UNKNOWN"),
    ] {
        let status = refused(&place, &token).await;
        assert_eq!((status.code(), reason(&status).as_str()), (Code::Unauthenticated, "CREDENTIAL_INVALID"), "{name}");
        assert_eq!(cause(&status), name);
    }
    let status = refused(&place, &sound).await;
    assert_eq!(reason(&status), "RUN_NOT_FOUND", "the good token that the bad ones were made of");
}

#[tokio::test]
async fn a_key_is_replaced_without_a_refused_call_and_its_tokens_end_with_it() {
    let (old, new) = (Signer::es256(), Signer::es256());
    let (keys, _folder) = key_file(&[old.jwk("old")]);
    let place = Place::start(&with_file(&keys)).await;
    let [by_old, by_new] = [(&old, "old"), (&new, "new")].map(|(signer, kid)| {
        let token = signer.sign(kid, &claims(ISSUER, "default", "bridge"));
        place.client(Caller::of(&token))
    });
    let (mut by_old, mut by_new) = (by_old, by_new);
    by_old.start_run(run("first")).await.unwrap();
    // The issuer signs with the key at once: the token asks for the file to be looked at.
    replace(&keys, &jwks(&[old.jwk("old"), new.jwk("new")]));
    by_new.start_run(run("second")).await.unwrap();
    by_old.start_run(run("third")).await.unwrap();
    replace(&keys, &jwks(&[new.jwk("new")]));
    let stranger = place.client(Caller::of(&Signer::es256().sign("x", &claims(ISSUER, "default", "x"))));
    // A token with an unknown key has the file looked at.
    assert_eq!(cause(&stranger.clone().start_run(run("none")).await.unwrap_err()), "UNKNOWN_KEY");
    assert_eq!(cause(&by_old.start_run(run("fourth")).await.unwrap_err()), "UNKNOWN_KEY");
    by_new.start_run(run("fifth")).await.unwrap();
}

#[tokio::test]
async fn a_token_that_cannot_be_verified_now_is_not_called_bad() {
    let signer = Signer::es256();
    let (keys, _folder) = key_file(&[signer.jwk("a")]);
    std::fs::remove_file(&keys).unwrap();
    let place = Place::start(&with_file(&keys)).await;
    place.server.process.says("the issuer's keys cannot be read").await;
    let status = refused(&place, &signer.sign("a", &claims(ISSUER, "default", "bridge"))).await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "CREDENTIAL_UNVERIFIED"));
    assert!(status.get_details_retry_info().is_some());
}

#[tokio::test]
async fn an_issuer_that_new_rules_name_is_known_when_they_hold_and_one_that_they_drop_ends_its_streams() {
    let signer = Signer::es256();
    let (keys, _folder) = key_file(&[signer.jwk("a")]);
    let admin = entry("admin", &grant("*", "admin", "\"*\""));
    let place = Place::start(&admin).await;
    let token = signer.sign("a", &claims(ISSUER, "default", "bridge"));
    assert_eq!(cause(&refused(&place, &token).await), "NOT_TAKEN");
    place.rewrite(&format!("{admin}{}", with_file(&keys)));
    place.server.process.says("new access rules hold").await;
    let mut client = place.client(Caller::of(&token));
    let watched = client.watch_runs(WatchRunsRequest::default()).await.unwrap().into_inner();
    place.rewrite(&admin);
    let status = end(watched).await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "DRAINING"));
    let again = client.watch_runs(WatchRunsRequest::default()).await.unwrap_err();
    assert_eq!((again.code(), cause(&again).as_str()), (Code::Unauthenticated, "NOT_TAKEN"));
}

#[tokio::test]
async fn a_stream_ends_with_its_signed_token_and_goes_on_with_the_next_one() {
    let signer = Signer::es256();
    let (keys, _folder) = key_file(&[signer.jwk("a")]);
    let place = Place::start(&with_file(&keys)).await;
    let token = |exp: i64| {
        let mut claims = claims(ISSUER, "default", "bridge");
        claims["exp"] = exp.into();
        signer.sign("a", &claims)
    };
    // The token's time was over a while ago: clocks may differ by 30 s.
    let watched = place.client(Caller::of(&token(from_now(-26)))).watch_runs(WatchRunsRequest::default()).await;
    let status = match watched {
        Ok(watched) => end(watched.into_inner()).await,
        // The machine took more than the three seconds to begin.
        Err(late) => return assert_eq!(cause(&late), "EXPIRED"),
    };
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    let mut next = place.client(Caller::of(&token(from_now(600))));
    next.watch_runs(WatchRunsRequest::default()).await.unwrap();
}

#[tokio::test]
async fn a_pods_projected_token_is_taken_by_the_clusters_keys_and_the_servers_own_token() {
    let (api, signer) = (KeyServer::start().await, Signer::rsa("RS256"));
    api.says("/openid/v1/jwks", "200 OK", &jwks(&[signer.jwk("k")]));
    let cluster = "https://oidc.cluster.example/id/7";
    let own = signer.sign("k", &claims(cluster, "runledger", "runledger"));
    let account = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(account.path().join(name), text).unwrap();
        account.path().join(name).display().to_string()
    };
    let (ca_file, token_file) = (file("ca.crt", &api.ca), file("token", &format!("{own}\n")));
    let place = Place::start(&issued(&format!(
        "kubernetes = true\njwks_url = \"{}\"\nca_file = \"{ca_file}\"\ntoken_file = \"{token_file}\"",
        api.url("/openid/v1/jwks")
    )))
    .await;
    let token = signer.sign("k", &claims(cluster, "default", "bridge"));
    let started = place.client(Caller::of(&token)).start_run(run("run")).await.unwrap().into_inner().run.unwrap();
    assert_eq!(started.agent_id, "bridge");
    assert!(api.heard()[0].contains(&format!("authorization: Bearer {own}\r\n")), "{:?}", api.heard());
    let mut wrong = claims(cluster, "default", "bridge");
    wrong["aud"] = json!(["https://kubernetes.default.svc"]);
    assert_eq!(cause(&refused(&place, &signer.sign("k", &wrong)).await), "WRONG_AUDIENCE");
    let other = signer.sign("k", &claims("https://another.cluster", "default", "bridge"));
    assert_eq!(cause(&refused(&place, &other).await), "UNKNOWN_ISSUER", "the issuer is that of the server's own token");
    for secret in [&own, &token] {
        assert!(!place.server.process.said().contains(secret.as_str()));
    }
}
