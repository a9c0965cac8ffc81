//! The forms of tokens: the good ones, and each that is refused, by its reason.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::signing::{Signer, base64, jwks};
use super::{BEGIN, Following, ISSUER, claims, claims_with, follow, issuer};
use crate::auth::jwks::KeySource;
use crate::auth::jwt::{BadIssuers, Issuer, JwtRefused, Jwts, TOKEN_BYTES_MAX, has_form};
use crate::clock::SystemClock;
use crate::domain::Time;

/// `Jwts` with the keys of a file, which were read.
pub(super) async fn with_keys(keys: &[Value]) -> (Following, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    std::fs::write(&path, jwks(keys)).unwrap();
    let following = follow(vec![issuer(KeySource::File(path))]);
    following.looked().await;
    (following, folder)
}

#[tokio::test]
async fn a_good_token_of_each_algorithm_proves_its_bearer() {
    let algorithms = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
    let mut signers = vec![Signer::es256(), Signer::es384(), Signer::ed25519()];
    signers.extend(algorithms.map(Signer::rsa));
    let keys: Vec<_> = signers.iter().map(|signer| signer.jwk(signer.algorithm())).collect();
    let (jwts, _folder) = with_keys(&keys).await;
    for signer in &signers {
        let token = signer.sign(signer.algorithm(), &claims_with(&json!({ "groups": ["a"] })));
        assert!(has_form(token.as_bytes()));
        assert_eq!(jwts.known(token.as_bytes()), None);
        let proof = jwts.verify(token.as_bytes()).await.unwrap();
        assert_eq!((&*proof.issuer, &*proof.subject), (ISSUER, "somebody"), "{}", signer.algorithm());
        assert_eq!(proof.expires_at, Time::from_micros((BEGIN + 600) * 1_000_000));
        assert_eq!(proof.ends_at, Time::from_micros((BEGIN + 630) * 1_000_000));
        assert_eq!(proof.claims["groups"], json!(["a"]));
        assert_eq!(jwts.known(token.as_bytes()), Some(proof));
    }
}

#[tokio::test]
async fn other_ways_to_write_a_good_token_are_taken() {
    let (signer, ed) = (Signer::es256(), Signer::ed25519());
    let (jwts, _folder) = with_keys(&[signer.jwk("a"), ed.jwk("ed")]).await;
    let header = json!({ "alg": "ES256", "kid": "a" });
    for header in [
        header.clone(),
        json!({ "alg": "ES256", "kid": "a", "typ": "at+jwt" }),
        json!({ "alg": "ES256", "kid": "a", "typ": "application/AT+JWT" }),
        json!({ "alg": "ES256", "kid": "a", "jku": "https://evil.example", "jwk": ed.jwk("a"), "extra": [1] }),
    ] {
        jwts.verify(signer.sign_with(&header, &claims()).as_bytes()).await.unwrap();
    }
    jwts.verify(ed.sign_with(&json!({ "alg": "Ed25519", "kid": "ed" }), &claims()).as_bytes()).await.unwrap();
    for members in [
        json!({ "aud": ["other", "runledger"] }),
        json!({ "exp": 1_800_000_600.75 }),
        json!({ "exp": 1.8e300 }),
        json!({ "nbf": BEGIN }),
        json!({ "iat": BEGIN + 1_000_000 }),
    ] {
        let token = signer.sign_with(&header, &claims_with(&members));
        assert!(jwts.verify(token.as_bytes()).await.is_ok(), "{members}");
    }
}

#[tokio::test]
async fn each_bad_claim_is_refused_by_its_name() {
    let signer = Signer::es256();
    let (jwts, _folder) = with_keys(&[signer.jwk("a")]).await;
    for (members, refused) in [
        (json!({ "exp": null }), JwtRefused::NoExpiry),
        (json!({ "exp": "1800000600" }), JwtRefused::BadExpiry),
        (json!({ "exp": [BEGIN + 600] }), JwtRefused::BadExpiry),
        (json!({ "exp": true }), JwtRefused::BadExpiry),
        (json!({ "exp": 0 }), JwtRefused::Expired),
        (json!({ "exp": -1 }), JwtRefused::Expired),
        (json!({ "exp": -1.8e300 }), JwtRefused::Expired),
        (json!({ "exp": BEGIN - 30 }), JwtRefused::Expired),
        (json!({ "nbf": BEGIN + 60 }), JwtRefused::NotYetValid),
        (json!({ "nbf": "1800000000" }), JwtRefused::BadNotBefore),
        (json!({ "iss": null }), JwtRefused::NoIssuer),
        (json!({ "iss": "" }), JwtRefused::NoIssuer),
        (json!({ "iss": [ISSUER] }), JwtRefused::NoIssuer),
        (json!({ "iss": "https://issuer.example/" }), JwtRefused::UnknownIssuer),
        (json!({ "iss": "kubernetes/serviceaccount" }), JwtRefused::LegacyServiceAccount),
        (json!({ "iss": "kubernetes/serviceaccount", "exp": null, "aud": null }), JwtRefused::LegacyServiceAccount),
        (json!({ "aud": null }), JwtRefused::NoAudience),
        (json!({ "aud": [] }), JwtRefused::NoAudience),
        (json!({ "aud": 7 }), JwtRefused::NoAudience),
        (json!({ "aud": ["runledger", 7] }), JwtRefused::NoAudience),
        (json!({ "aud": "Runledger" }), JwtRefused::WrongAudience),
        (json!({ "aud": ["a", "b"] }), JwtRefused::WrongAudience),
        (json!({ "sub": null }), JwtRefused::NoSubject),
        (json!({ "sub": "" }), JwtRefused::NoSubject),
        (json!({ "sub": 7 }), JwtRefused::NoSubject),
        (json!({ "sub": "a\u{0}b" }), JwtRefused::NoSubject),
        (json!({ "sub": "a\nb" }), JwtRefused::NoSubject),
        (json!({ "sub": "s".repeat(1_025) }), JwtRefused::NoSubject),
    ] {
        let token = signer.sign("a", &claims_with(&members));
        assert_eq!(jwts.verify(token.as_bytes()).await.err(), Some(refused), "{members}");
        assert_eq!(jwts.known(token.as_bytes()), None);
    }
}

#[tokio::test]
async fn each_bad_header_is_refused_by_its_name() {
    let signer = Signer::es256();
    let (jwts, _folder) = with_keys(&[signer.jwk("a")]).await;
    for (header, refused) in [
        (json!({ "alg": "none", "kid": "a" }), JwtRefused::Unsigned),
        (json!({ "alg": "nOnE", "kid": "a" }), JwtRefused::Unsigned),
        (json!({ "alg": "", "kid": "a" }), JwtRefused::Unsigned),
        (json!({ "alg": "HS256", "kid": "a" }), JwtRefused::SymmetricAlgorithm),
        (json!({ "alg": "HS512", "kid": "a" }), JwtRefused::SymmetricAlgorithm),
        (json!({ "alg": "ES256K", "kid": "a" }), JwtRefused::UnknownAlgorithm),
        (json!({ "alg": "es256", "kid": "a" }), JwtRefused::UnknownAlgorithm),
        (json!({ "alg": "ES384", "kid": "a" }), JwtRefused::WrongAlgorithm),
        (json!({ "alg": "RS256", "kid": "a" }), JwtRefused::WrongAlgorithm),
        (json!({ "kid": "a" }), JwtRefused::Malformed),
        (json!({ "alg": 7, "kid": "a" }), JwtRefused::Malformed),
        (json!({ "alg": "ES256", "kid": 7 }), JwtRefused::Malformed),
        (json!({ "alg": "ES256", "kid": "b" }), JwtRefused::UnknownKey),
        (json!({ "alg": "ES256", "kid": "a", "crit": ["b64"] }), JwtRefused::Critical),
        (json!({ "alg": "ES256", "kid": "a", "crit": [] }), JwtRefused::Critical),
        (json!({ "alg": "ES256", "kid": "a", "typ": "JWE" }), JwtRefused::Encrypted),
        (json!({ "alg": "ES256", "kid": "a", "enc": "A256GCM" }), JwtRefused::Encrypted),
        (json!({ "alg": "ES256", "kid": "a", "typ": "logout+jwt" }), JwtRefused::Type),
        (json!({ "alg": "ES256", "kid": "a", "typ": "dpop+jwt" }), JwtRefused::Type),
    ] {
        let token = signer.sign_with(&header, &claims());
        assert_eq!(jwts.verify(token.as_bytes()).await.err(), Some(refused), "{header}");
    }
    let twice = base64(r#"{"alg":"none","alg":"ES256","kid":"a"}"#);
    let token = signer.sign("a", &claims());
    let token = format!("{twice}{}", &token[token.find('.').unwrap()..]);
    assert_eq!(jwts.verify(token.as_bytes()).await.err(), Some(JwtRefused::Malformed));
}

#[tokio::test]
async fn a_token_that_the_public_key_signed_as_a_secret_is_refused() {
    for signer in [Signer::es256(), Signer::rsa("RS256")] {
        let (jwts, _folder) = with_keys(&[signer.jwk("a")]).await;
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, signer.public());
        for (algorithm, refused) in
            [("HS256", JwtRefused::SymmetricAlgorithm), (signer.algorithm(), JwtRefused::Signature)]
        {
            let header = json!({ "alg": algorithm, "kid": "a" });
            let signed = format!("{}.{}", base64(header.to_string()), base64(claims().to_string()));
            let token = format!("{signed}.{}", base64(ring::hmac::sign(&key, signed.as_bytes())));
            assert_eq!(jwts.verify(token.as_bytes()).await.err(), Some(refused));
        }
    }
}

#[tokio::test]
async fn a_tampered_token_is_refused_wherever_it_was_changed() {
    let signer = Signer::es256();
    let (jwts, _folder) = with_keys(&[signer.jwk("a")]).await;
    let token = signer.sign("a", &claims()).into_bytes();
    jwts.verify(&token).await.unwrap();
    for place in 0..token.len() {
        for other in *b"A." {
            let mut changed = token.clone();
            changed[place] = other;
            if changed != token {
                assert!(jwts.verify(&changed).await.is_err(), "changed at {place} of {}", token.len());
            }
        }
    }
    let other = Signer::es256().sign("a", &claims());
    assert_eq!(jwts.verify(other.as_bytes()).await.err(), Some(JwtRefused::Signature));
    let zeros = [0; 64];
    let beginning = std::str::from_utf8(&token).unwrap().rsplit_once('.').unwrap().0;
    let forged = format!("{beginning}.{}", base64(zeros));
    assert_eq!(jwts.verify(forged.as_bytes()).await.err(), Some(JwtRefused::Signature));
}

#[tokio::test]
async fn a_token_that_was_cut_short_or_lengthened_is_refused_at_every_byte() {
    let signer = Signer::ed25519();
    let (jwts, _folder) = with_keys(&[signer.jwk("a")]).await;
    let token = signer.sign("a", &claims());
    for end in 0..token.len() {
        assert!(jwts.verify(&token.as_bytes()[..end]).await.is_err(), "cut at {end}");
        assert!(jwts.verify(&token.as_bytes()[end + 1..]).await.is_err(), "without the first {}", end + 1);
    }
    for tail in ["A", ".", ".A", "=", " ", "\n", "\0"] {
        assert!(jwts.verify(format!("{token}{tail}").as_bytes()).await.is_err(), "{tail:?}");
    }
    for noise in ["", ".", "..", "...", "a.b.c", "e30.e30.", "bnVsbA.bnVsbA.bnVsbA", "W10.W10.W10"] {
        assert_eq!(jwts.verify(noise.as_bytes()).await.err(), Some(JwtRefused::Malformed), "{noise:?}");
    }
    assert_eq!(jwts.verify(b"\xff.\xff.\xff").await.err(), Some(JwtRefused::Malformed));
}

#[tokio::test]
async fn a_token_of_8_kib_is_taken_and_a_larger_one_is_not_read() {
    let signer = Signer::ed25519();
    let (jwts, _folder) = with_keys(&[signer.jwk("a")]).await;
    let of = |fill: usize| signer.sign("a", &claims_with(&json!({ "fill": "f".repeat(fill) })));
    let longest = (5_000..9_000).map(of).take_while(|token| token.len() <= TOKEN_BYTES_MAX).last().unwrap();
    assert!(longest.len() > TOKEN_BYTES_MAX - 2, "{}", longest.len());
    jwts.verify(longest.as_bytes()).await.unwrap();
    let too_long = of(longest.len());
    assert_eq!(jwts.verify(too_long.as_bytes()).await.err(), Some(JwtRefused::TooLarge));
    assert_eq!(jwts.known(too_long.as_bytes()), None);
    let deep = format!("{}.{}.AA", base64(r#"{"alg":"EdDSA"}"#), base64("[".repeat(6_000)));
    assert_eq!(jwts.verify(deep.as_bytes()).await.err(), Some(JwtRefused::Malformed));
}

#[test]
fn a_jwt_is_told_from_other_tokens_by_its_form() {
    for token in ["eyJhbGciOiJub25lIn0.e30.", "eyJhbGciOiJFUzI1NiJ9.e30.AAAA", "ey.", "eyJ.a.b.c.d"] {
        assert!(has_form(token.as_bytes()), "{token}");
    }
    let opaque = format!("rl_{}", base64([7; 32]));
    for token in ["", "ey", "eyJhbGciOiJub25lIn0", "a.b.c", &opaque] {
        assert!(!has_form(token.as_bytes()), "{token}");
    }
}

#[test]
fn issuers_that_could_be_taken_for_each_other_or_for_anybody_are_refused() {
    let keys = || KeySource::File(Path::new("/keys").into());
    let new = |issuers| Jwts::new(issuers, std::sync::Arc::new(SystemClock));
    let twice = new(vec![issuer(keys()), issuer(keys())]).unwrap_err();
    assert_eq!(twice, BadIssuers::Twice(ISSUER.into()));
    let nobody = new(vec![Issuer::new(ISSUER, Vec::new(), keys())]).unwrap_err();
    assert_eq!(nobody, BadIssuers::NoAudience(ISSUER.into()));
}

#[tokio::test]
async fn no_debug_and_no_refusal_shows_a_token() {
    let signer = Signer::es256();
    let (jwts, _folder) = with_keys(&[signer.jwk("a")]).await;
    let token = signer.sign("a", &claims_with(&json!({ "secret": "hush-hush" })));
    let proof = jwts.verify(token.as_bytes()).await.unwrap();
    let shown = format!("{proof:?} {:?}", *jwts.jwts);
    assert!(!shown.contains("hush-hush") && !shown.contains(&token[..20]), "{shown}");
}
