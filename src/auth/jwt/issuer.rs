//! An issuer whose tokens are taken, and the issuer that every Kubernetes cluster is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use thiserror::Error;

use super::super::jwks::{BadFile, BadKeyUrl, KeySource, KeyUrl, Trust, read_small_file};
use super::JwtRefused;
use super::token::Token;

/// The difference between clocks that is forgiven.
const LEEWAY: Duration = Duration::from_secs(30);
/// The audience that tokens are for, where none is named.
pub(in crate::auth) const AUDIENCE: &str = "runledger";

/// The place where a pod finds its own token and the cluster's CA.
pub(in crate::auth) const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The issuer of the tokens that Kubernetes kept in secrets, which have no expiry.
const LEGACY_SERVICE_ACCOUNT: &str = "kubernetes/serviceaccount";
/// The keys by which the cluster signs the tokens of service accounts.
const KUBERNETES_KEYS: &str = "https://kubernetes.default.svc/openid/v1/jwks";

/// One issuer whose tokens are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// The claim `iss` of its tokens, to the letter.
    pub issuer: Arc<str>,
    /// The audiences of which a token must name one in `aud`.
    pub audience: Vec<String>,
    /// The place of its keys.
    pub keys: KeySource,
    /// The difference between its clock and ours that is forgiven, for `exp` and for `nbf`.
    pub leeway: Duration,
}

/// The reason for which an issuer cannot be made.
#[derive(Debug, Error)]
pub enum NoIssuer {
    /// The pod's own token cannot be read.
    #[error("the pod's own token tells the cluster's issuer, and cannot be read: project one, or name the issuer")]
    OwnToken(#[from] BadFile),
    /// The pod's own token is no token that names an issuer.
    #[error("the pod's own token names no issuer that can be used: name the issuer")]
    NoName,
    /// The issuer's name is no URL, and no place of the keys was named.
    #[error("the issuer is no URL, so its keys must be named as a file or a URL")]
    NotUrl(#[source] BadKeyUrl),
}

impl Issuer {
    /// An issuer with the leeway of 30 s.
    #[must_use]
    pub fn new(issuer: &str, audience: Vec<String>, keys: KeySource) -> Self {
        Self { issuer: issuer.into(), audience, keys, leeway: LEEWAY }
    }

    /// An issuer whose keys are where its OpenID configuration says, on the same host.
    ///
    /// # Errors
    ///
    /// The issuer's name is no URL of https.
    pub fn discovered(issuer: &str, audience: Vec<String>, trust: Trust) -> Result<Self, NoIssuer> {
        let url = issuer.parse().map_err(NoIssuer::NotUrl)?;
        Ok(Self::new(issuer, audience, KeySource::Discovery { issuer: url, trust }))
    }

    /// The cluster that this process runs in, for tokens with the audience `runledger`. Its keys are asked for with the
    /// pod's own token. The issuer's name differs between clusters: where none is told, the pod's own token tells it.
    /// It blocks, for a small file.
    ///
    /// # Errors
    ///
    /// No issuer is told, and the pod has no token that names one.
    pub fn kubernetes(issuer: Option<&str>) -> Result<Self, NoIssuer> {
        Self::cluster(issuer, Path::new(SERVICE_ACCOUNT), Trust::default(), None)
    }

    /// A cluster, by the folder of a service account, which holds what `trust` does not name.
    ///
    /// # Errors
    ///
    /// See [`Issuer::kubernetes`].
    pub(in crate::auth) fn cluster(
        issuer: Option<&str>,
        account: &Path,
        trust: Trust,
        keys: Option<KeyUrl>,
    ) -> Result<Self, NoIssuer> {
        let url = keys.map_or_else(|| KUBERNETES_KEYS.parse().map_err(NoIssuer::NotUrl), Ok)?;
        let ca_file = trust.ca_file.unwrap_or_else(|| account.join("ca.crt"));
        let token_file = trust.bearer_token_file.unwrap_or_else(|| account.join("token"));
        let name: Arc<str> = match issuer {
            Some(told) => told.into(),
            None => own_issuer(&token_file)?,
        };
        let trust = Trust { ca_file: Some(ca_file), bearer_token_file: Some(token_file) };
        Ok(Self::new(&name, vec![AUDIENCE.to_owned()], KeySource::Url { url, trust }))
    }
}

/// The issuer that a token names. Before the signature holds, it chooses the keys, and nothing else.
pub(super) fn named_in(claims: &Map<String, Value>) -> Result<&str, JwtRefused> {
    match claims.get("iss").and_then(Value::as_str) {
        None | Some("") => Err(JwtRefused::NoIssuer),
        Some(LEGACY_SERVICE_ACCOUNT) => Err(JwtRefused::LegacyServiceAccount),
        Some(name) => Ok(name),
    }
}

/// The issuer of the pod's own token. Whoever can write this file runs the pod, so it is believed without a proof.
fn own_issuer(token_file: &Path) -> Result<Arc<str>, NoIssuer> {
    let token = read_small_file(token_file)?;
    let token = Token::parse(token.trim_ascii()).map_err(|_| NoIssuer::NoName)?;
    named_in(&token.claims).map(Arc::from).map_err(|_| NoIssuer::NoName)
}
