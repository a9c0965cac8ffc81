//! The issuer that every Kubernetes cluster is, by a service account's folder.

use std::path::Path;

use serde_json::json;

use super::key_server::KeyServer;
use super::signing::{Signer, jwks};
use super::{BEGIN, claims_with, follow};
use crate::auth::jwks::{KeyUrl, Trust};
use crate::auth::jwt::{Issuer, JwtRefused, NoIssuer};

/// The name of a cluster at a provider of clusters.
const CLUSTER: &str = "https://oidc.example/id/7";

fn own_token(signer: &Signer) -> String {
    signer.sign("k", &claims_with(&json!({ "iss": CLUSTER, "aud": ["https://kubernetes.default.svc"] })))
}

fn cluster(name: Option<&str>, account: &Path, keys: &KeyServer) -> Result<Issuer, NoIssuer> {
    let url: KeyUrl = keys.url("/openid/v1/jwks").parse().unwrap();
    Issuer::cluster(name, account, Trust::default(), Some(url))
}

#[tokio::test]
async fn a_pods_token_is_verified_with_nothing_but_the_servers_own_account() {
    let (server, signer) = (KeyServer::start().await, Signer::rsa("RS256"));
    server.says("/openid/v1/jwks", "200 OK", &jwks(&[signer.jwk("k")]));
    let account = tempfile::tempdir().unwrap();
    let own = own_token(&signer);
    std::fs::write(account.path().join("token"), &own).unwrap();
    std::fs::write(account.path().join("ca.crt"), &server.ca).unwrap();
    let jwts = follow(vec![cluster(None, account.path(), &server).unwrap()]);
    jwts.looked().await;
    assert!(server.heard()[0].contains(&format!("authorization: Bearer {own}\r\n")));
    let token = |iss: &str, aud: &str| signer.sign("k", &claims_with(&json!({ "iss": iss, "aud": [aud] })));
    let proof = jwts.verify(token(CLUSTER, "runledger").as_bytes()).await.unwrap();
    assert_eq!(&*proof.issuer, CLUSTER, "the own token tells the issuer");
    for (token, refused) in [
        (token(CLUSTER, "https://kubernetes.default.svc"), JwtRefused::WrongAudience),
        (token("https://oidc.example/id/8", "runledger"), JwtRefused::UnknownIssuer),
        (token("kubernetes/serviceaccount", "runledger"), JwtRefused::LegacyServiceAccount),
    ] {
        assert_eq!(jwts.verify(token.as_bytes()).await.err(), Some(refused));
    }
}

#[tokio::test]
async fn a_cluster_whose_name_nobody_tells_is_no_issuer() {
    let (server, signer) = (KeyServer::start().await, Signer::es256());
    let account = tempfile::tempdir().unwrap();
    let made = || cluster(None, account.path(), &server);
    assert!(matches!(made(), Err(NoIssuer::OwnToken(_))));
    for text in ["", "no token", "e30.e30.e30"] {
        std::fs::write(account.path().join("token"), text).unwrap();
        assert!(matches!(made(), Err(NoIssuer::NoName)), "{text:?}");
    }
    let legacy = json!({ "iss": "kubernetes/serviceaccount", "exp": BEGIN });
    std::fs::write(account.path().join("token"), signer.sign("k", &legacy)).unwrap();
    assert!(matches!(made(), Err(NoIssuer::NoName)));
    assert_eq!(&*cluster(Some("told"), account.path(), &server).unwrap().issuer, "told");
}
