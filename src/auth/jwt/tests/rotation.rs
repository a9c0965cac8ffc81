//! Keys that change, sources that are gone, and clocks that differ.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{advance, sleep};

use super::signing::{Signer, jwks};
use super::{BEGIN, Following, claims, claims_with, follow, issuer};
use crate::auth::jwks::KeySource;
use crate::auth::jwt::JwtRefused;

/// Replaces the file by one step.
fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).unwrap();
    std::fs::rename(next, path).unwrap();
}

async fn with_file(keys: &[Value]) -> (Following, PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    replace(&path, &jwks(keys));
    let jwts = follow(vec![issuer(KeySource::File(path.clone()))]);
    jwts.looked().await;
    (jwts, path, folder)
}

/// A token that is good for two days.
fn token(signer: &Signer, kid: &str) -> String {
    signer.sign(kid, &claims_with(&json!({ "exp": BEGIN + 200_000 })))
}

async fn refused(jwts: &Following, token: &str) -> Option<JwtRefused> {
    jwts.verify(token.as_bytes()).await.err()
}

#[tokio::test(start_paused = true)]
async fn no_good_token_is_refused_while_keys_are_replaced() {
    let mut old = (Signer::es256(), "0".to_owned());
    let (jwts, path, _folder) = with_file(&[old.0.jwk(&old.1)]).await;
    for turn in 1..=5 {
        let new = (Signer::es256(), turn.to_string());
        replace(&path, &jwks(&[old.0.jwk(&old.1), new.0.jwk(&new.1)]));
        // Every other time, the issuer signs at once, and the token waits for the look that it asks for.
        if turn % 2 == 0 {
            sleep(Duration::from_secs(15)).await;
        }
        for (signer, kid) in [&new, &old, &new] {
            assert_eq!(refused(&jwts, &token(signer, kid)).await, None, "turn {turn}, key {kid}");
        }
        old = new;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_taken_out_is_refused_from_the_next_look_on_also_for_a_token_that_was_known() {
    let (old, new) = (Signer::es256(), Signer::es256());
    let (jwts, path, _folder) = with_file(&[old.jwk("old"), new.jwk("new")]).await;
    let (by_old, by_new) = (token(&old, "old"), token(&new, "new"));
    for token in [&by_old, &by_new] {
        assert_eq!(refused(&jwts, token).await, None);
        assert!(jwts.known(token.as_bytes()).is_some());
    }
    replace(&path, &jwks(&[new.jwk("new")]));
    sleep(Duration::from_secs(15)).await;
    assert!(jwts.known(by_old.as_bytes()).is_none() && jwts.known(by_new.as_bytes()).is_none());
    assert_eq!(refused(&jwts, &by_old).await, Some(JwtRefused::UnknownKey));
    assert_eq!(refused(&jwts, &by_new).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_file_behind_links_is_followed_as_kubernetes_replaces_it() {
    let (old, new) = (Signer::es256(), Signer::es256());
    let folder = tempfile::tempdir().unwrap();
    for (name, signer) in [("1", &old), ("2", &new)] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name).join("jwks.json"), jwks(&[signer.jwk(name)])).unwrap();
    }
    let link = |target: &str| {
        let next = folder.path().join("..next");
        std::os::unix::fs::symlink(target, &next).unwrap();
        std::fs::rename(&next, folder.path().join("..data")).unwrap();
    };
    link("1");
    std::os::unix::fs::symlink("..data/jwks.json", folder.path().join("jwks.json")).unwrap();
    let jwts = follow(vec![issuer(KeySource::File(folder.path().join("jwks.json")))]);
    jwts.looked().await;
    assert_eq!(refused(&jwts, &token(&old, "1")).await, None);
    link("2");
    assert_eq!(refused(&jwts, &token(&new, "2")).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_no_good_leaves_the_one_before() {
    let signer = Signer::es256();
    let (jwts, path, _folder) = with_file(&[signer.jwk("a")]).await;
    for bad in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"a"}]}"#] {
        replace(&path, bad);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(refused(&jwts, &token(&signer, "a")).await, None, "{bad:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_whose_source_is_gone_hold_for_a_day_and_come_back_with_it() {
    let (signer, new) = (Signer::es256(), Signer::es256());
    let (jwts, path, _folder) = with_file(&[signer.jwk("a")]).await;
    std::fs::remove_file(&path).unwrap();
    sleep(Duration::from_hours(1)).await;
    assert_eq!(refused(&jwts, &token(&signer, "a")).await, None);
    assert_eq!(refused(&jwts, &token(&new, "new")).await, Some(JwtRefused::KeysUnavailable), "it may be good");
    let age = jwts.key_ages().next().unwrap().1;
    assert!((3_590..3_660).contains(&age.as_secs()), "{age:?}");
    sleep(Duration::from_hours(24)).await;
    assert_eq!(refused(&jwts, &token(&signer, "a")).await, Some(JwtRefused::KeysUnavailable));
    assert!(jwts.key_ages().next().unwrap().1 > Duration::from_hours(24), "whoever looks at the age sees it");
    replace(&path, &jwks(&[signer.jwk("a"), new.jwk("new")]));
    sleep(Duration::from_secs(40)).await;
    for token in [token(&signer, "a"), token(&new, "new")] {
        assert_eq!(refused(&jwts, &token).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_may_differ_by_half_a_minute_and_no_more() {
    let signer = Signer::es256();
    let (jwts, _path, _folder) = with_file(&[signer.jwk("a")]).await;
    let refused = async |members: Value| refused(&jwts, &signer.sign("a", &claims_with(&members))).await;
    // The look may have taken paused time.
    for (members, refusal) in [
        (json!({ "exp": BEGIN - 29 }), None),
        (json!({ "exp": BEGIN - 30 }), Some(JwtRefused::Expired)),
        (json!({ "nbf": BEGIN + 30 }), None),
        (json!({ "nbf": BEGIN + 31 }), Some(JwtRefused::NotYetValid)),
    ] {
        assert_eq!(refused(members.clone()).await, refusal, "{members}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_known_is_no_longer_so_at_its_end() {
    let signer = Signer::es256();
    let (jwts, _path, _folder) = with_file(&[signer.jwk("a")]).await;
    let token = signer.sign("a", &claims_with(&json!({ "exp": BEGIN + 40 })));
    assert_eq!(refused(&jwts, &token).await, None);
    assert!(jwts.known(token.as_bytes()).is_some());
    advance(Duration::from_secs(45)).await;
    assert!(jwts.known(token.as_bytes()).is_none());
    assert_eq!(refused(&jwts, &token).await, None, "clocks may differ");
    advance(Duration::from_secs(30)).await;
    assert_eq!(refused(&jwts, &token).await, Some(JwtRefused::Expired));
    let fresh = signer.sign("a", &claims());
    assert_eq!(refused(&jwts, &fresh).await, None);
    advance(Duration::from_secs(61)).await;
    assert!(jwts.known(fresh.as_bytes()).is_none(), "a token is known for a minute");
}
