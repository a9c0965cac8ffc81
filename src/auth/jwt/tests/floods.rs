//! Many bad tokens at once, and what the good ones feel of it.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::json;

use super::forms::with_keys;
use super::key_server::KeyServer;
use super::signing::{Signer, jwks};
use super::{claims, claims_with, follow, follow_by, issuer};
use crate::auth::jwks::{KeySource, Trust};
use crate::auth::jwt::JwtRefused;
use crate::fairness::{CallerKey, Turns};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn invented_keys_ask_the_issuer_once_and_hold_up_nobody() {
    let (server, signer, bad) = (KeyServer::start_plain().await, Signer::es256(), Signer::es256());
    server.says("/keys", "200 OK", &jwks(&[signer.jwk("a")]));
    let url = server.url("/keys").parse().unwrap();
    let jwts = follow(vec![issuer(KeySource::Url { url, trust: Trust::default() })]);
    jwts.looked().await;
    let began = tokio::time::Instant::now();
    let refused = join_all((0..10_000).map(|number| {
        let token = bad.sign(&format!("invented-{number}"), &claims());
        let jwts = &jwts;
        async move { jwts.verify(token.as_bytes()).await.unwrap_err() }
    }));
    for refused in refused.await {
        assert!(matches!(refused, JwtRefused::UnknownKey | JwtRefused::Busy), "{refused:?}");
    }
    jwts.verify(signer.sign("a", &claims()).as_bytes()).await.unwrap();
    let looks = 1 + began.elapsed().as_secs() / 25;
    assert!(server.heard().len() as u64 <= looks, "{} requests in {:?}", server.heard().len(), began.elapsed());
}

#[tokio::test]
async fn bad_signatures_put_no_good_token_out_of_memory() {
    let (signer, bad) = (Signer::es256(), Signer::es256());
    let (jwts, _folder) = with_keys(&[signer.jwk("a")]).await;
    let good = signer.sign("a", &claims());
    jwts.verify(good.as_bytes()).await.unwrap();
    for number in 0..6_000 {
        let token = bad.sign("a", &claims_with(&json!({ "jti": number })));
        assert_eq!(jwts.verify(token.as_bytes()).await.err(), Some(JwtRefused::Signature));
    }
    assert!(jwts.known(good.as_bytes()).is_some());
}

#[tokio::test]
async fn a_caller_that_asks_rarely_comes_before_one_that_floods() {
    let (signer, bad) = (Signer::es256(), Signer::es256());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    std::fs::write(&path, jwks(&[signer.jwk("a")])).unwrap();
    let turns = Turns::new(1);
    let jwts = follow_by(vec![issuer(KeySource::File(path))], Some(turns.clone()));
    jwts.looked().await;
    let (forged, good) = (bad.sign("a", &claims()), signer.sign("a", &claims()));
    let order = Mutex::new(Vec::new());
    let verify = async |token: &str, caller: CallerKey| {
        let verified = jwts.jwts.verify(token.as_bytes(), caller).await.err();
        order.lock().unwrap().push(caller);
        verified
    };
    let [flood, rare, another] = [7, 8, 9].map(|number| CallerKey::new(number, None));
    verify(&forged, flood).await;
    let taken = turns.turn(another, SOON).await.unwrap();
    let mut waiting: FuturesUnordered<_> = (0..100).map(|_| verify(&forged, flood)).collect();
    let mut rare_one = pin!(verify(&good, rare));
    assert!((&mut rare_one).now_or_never().is_none());
    assert!(waiting.next().now_or_never().is_none());
    drop(taken);
    assert_eq!(rare_one.await, None);
    while let Some(refused) = waiting.next().await {
        assert_eq!(refused, Some(JwtRefused::Signature));
    }
    let order = order.lock().unwrap().clone();
    assert_eq!((order.len(), order[1]), (102, rare), "the one that flooded before waits");
}

#[tokio::test]
async fn calls_that_come_with_one_new_token_at_once_are_all_let_in() {
    let signer = Signer::es256();
    let (jwts, _folder) = with_keys(&[signer.jwk("a")]).await;
    let token = signer.sign("a", &claims());
    let proofs = join_all((0..100).map(|_| jwts.verify(token.as_bytes()))).await;
    let first = proofs[0].as_ref().unwrap();
    assert!(proofs.iter().all(|proof| Arc::ptr_eq(proof.as_ref().unwrap(), first)), "it was verified once");
}
