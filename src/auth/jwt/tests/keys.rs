//! The keys of a set: which are used, and how a token's key is chosen.

use serde_json::{Value, json};

use super::claims;
use super::forms::with_keys;
use super::signing::{Signer, base64, jwks};
use crate::auth::jwks::{Algorithm, BadKeySet, Key, KeySet, Skipped};
use crate::auth::jwt::JwtRefused;

/// A key with members changed: null takes a member away.
fn changed(mut jwk: Value, members: &Value) -> Value {
    for (name, value) in members.as_object().unwrap() {
        jwk[name] = value.clone();
    }
    jwk.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    jwk
}

#[test]
fn each_key_that_must_not_be_used_is_skipped_by_its_reason() {
    let (ec, rsa, ed) = (Signer::es256().jwk("a"), Signer::rsa("RS256").jwk("a"), Signer::ed25519().jwk("a"));
    let modulus = |bytes: usize| json!({ "n": base64(vec![0xff; bytes]) });
    for (jwk, reason) in [
        (json!({ "kty": "oct", "k": "c2VjcmV0", "kid": "a" }), Skipped::Symmetric),
        (json!({ "kty": "oct", "k": "c2VjcmV0", "alg": "HS256" }), Skipped::Algorithm),
        (json!({ "kty": "AKP" }), Skipped::Kind),
        (json!({}), Skipped::Malformed),
        (json!("key"), Skipped::Malformed),
        (changed(ec.clone(), &json!({ "use": "enc" })), Skipped::Use),
        (changed(ec.clone(), &json!({ "key_ops": ["sign"] })), Skipped::Operations),
        (changed(ec.clone(), &json!({ "key_ops": [] })), Skipped::Operations),
        (changed(ec.clone(), &json!({ "alg": "ES384" })), Skipped::Algorithm),
        (changed(ec.clone(), &json!({ "alg": "RS256" })), Skipped::Algorithm),
        (changed(ec.clone(), &json!({ "alg": "HS256" })), Skipped::Algorithm),
        (changed(ec.clone(), &json!({ "alg": "ECDH-ES" })), Skipped::Algorithm),
        (changed(ec.clone(), &json!({ "crv": "secp256k1", "alg": null })), Skipped::Kind),
        (changed(ec.clone(), &json!({ "crv": "P-384", "alg": null })), Skipped::Malformed),
        (changed(ec.clone(), &json!({ "x": null })), Skipped::Malformed),
        (changed(ec.clone(), &json!({ "y": "AAAA" })), Skipped::Malformed),
        (changed(ec.clone(), &json!({ "x": "not base64!" })), Skipped::Malformed),
        (changed(ec, &json!({ "d": "AAAA" })), Skipped::Private),
        (changed(ed.clone(), &json!({ "crv": "X25519", "alg": null })), Skipped::Kind),
        (changed(ed, &json!({ "x": "AAAA" })), Skipped::Malformed),
        (changed(rsa.clone(), &modulus(128)), Skipped::RsaLength),
        (changed(rsa.clone(), &modulus(255)), Skipped::RsaLength),
        (changed(rsa.clone(), &modulus(1_025)), Skipped::RsaLength),
        (changed(rsa.clone(), &json!({ "n": base64([&[0x7f][..], &[0xff; 255]].concat()) })), Skipped::RsaLength),
        (changed(rsa.clone(), &json!({ "e": base64([1]) })), Skipped::Malformed),
        (changed(rsa.clone(), &json!({ "e": base64([4]) })), Skipped::Malformed),
        (changed(rsa.clone(), &json!({ "e": "" })), Skipped::Malformed),
        (changed(rsa.clone(), &json!({ "e": base64([1; 9]) })), Skipped::Malformed),
        (changed(rsa.clone(), &json!({ "alg": "ES256" })), Skipped::Algorithm),
        (changed(rsa, &json!({ "alg": "RSA-OAEP" })), Skipped::Algorithm),
    ] {
        assert_eq!(Key::from_jwk(&jwk).unwrap_err(), reason, "{jwk}");
    }
}

#[test]
fn a_key_has_exactly_one_algorithm() {
    let without = |signer: &Signer| changed(signer.jwk("a"), &json!({ "alg": null, "use": null }));
    for (signer, algorithm) in [
        (Signer::es256(), Algorithm::Es256),
        (Signer::es384(), Algorithm::Es384),
        (Signer::ed25519(), Algorithm::EdDsa),
        (Signer::rsa("PS512"), Algorithm::Rs256),
    ] {
        assert_eq!(Key::from_jwk(&without(&signer)).unwrap().algorithm(), algorithm);
    }
    let told = Key::from_jwk(&Signer::rsa("PS512").jwk("a")).unwrap();
    assert_eq!(told.algorithm(), Algorithm::Ps512);
    let operations = changed(Signer::es256().jwk("a"), &json!({ "key_ops": ["sign", "verify"] }));
    assert!(Key::from_jwk(&operations).is_ok());
}

#[test]
fn a_set_is_taken_for_its_usable_keys_and_refused_without_one() {
    let good = Signer::es256().jwk("a");
    let set = KeySet::parse(jwks(&[json!({ "kty": "oct", "k": "" }), good.clone(), json!(7)]).as_bytes()).unwrap();
    assert_eq!((set.keys().len(), set.skipped().len()), (1, 2));
    for document in ["", "{}", "[]", "null", r#"{"keys":{}}"#, "<html>"] {
        assert!(matches!(KeySet::parse(document.as_bytes()), Err(BadKeySet::Malformed(_))), "{document}");
    }
    for keys in [vec![], vec![json!({ "kty": "oct", "k": "c2VjcmV0" })]] {
        let refused = KeySet::parse(jwks(&keys).as_bytes());
        assert!(matches!(refused, Err(BadKeySet::NoUsableKey { .. })), "{refused:?}");
        assert!(!refused.unwrap_err().to_string().contains("c2VjcmV0"));
    }
}

#[tokio::test]
async fn keys_that_share_an_id_are_told_apart_by_algorithm_or_are_not_used() {
    let (first, second, other) = (Signer::es256(), Signer::es256(), Signer::ed25519());
    let (jwts, _folder) = with_keys(&[first.jwk("a"), second.jwk("a"), other.jwk("a"), other.jwk("a")]).await;
    jwts.verify(other.sign("a", &claims()).as_bytes()).await.unwrap();
    for signer in [first, second] {
        let refused = jwts.verify(signer.sign("a", &claims()).as_bytes()).await.err();
        assert_eq!(refused, Some(JwtRefused::WrongAlgorithm), "neither is among the keys");
    }
}

#[tokio::test]
async fn a_token_that_names_no_key_is_taken_where_one_key_fits_its_algorithm() {
    let (one, first, second) = (Signer::ed25519(), Signer::es256(), Signer::es256());
    let (jwts, _folder) = with_keys(&[one.jwk("one"), first.jwk("first"), second.jwk("second")]).await;
    let unnamed = |signer: &Signer| signer.sign_with(&json!({ "alg": signer.algorithm() }), &claims());
    jwts.verify(unnamed(&one).as_bytes()).await.unwrap();
    for signer in [&first, &second] {
        assert_eq!(jwts.verify(unnamed(signer).as_bytes()).await.err(), Some(JwtRefused::AmbiguousKey));
    }
    let none = jwts.verify(unnamed(&Signer::es384()).as_bytes()).await.err();
    assert_eq!(none, Some(JwtRefused::UnknownKey));
}

#[tokio::test]
async fn a_key_without_an_id_is_found_by_tokens_without_one() {
    let signer = Signer::es256();
    let (jwts, _folder) = with_keys(&[changed(signer.jwk(""), &json!({ "kid": null }))]).await;
    let unnamed = signer.sign_with(&json!({ "alg": "ES256" }), &claims());
    jwts.verify(unnamed.as_bytes()).await.unwrap();
    let named = jwts.verify(signer.sign("a", &claims()).as_bytes()).await.err();
    assert_eq!(named, Some(JwtRefused::UnknownKey));
}
