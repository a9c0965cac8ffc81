//! The place of the keys, as an issuer's OpenID configuration tells it.

use serde::Deserialize;
use thiserror::Error;

use super::fetch::{FetchFailed, fetch};
use super::{BadKeyUrl, KeyUrl, Trust};

/// The reason for which the place was not learned.
#[derive(Debug, Error)]
pub(super) enum DiscoveryFailed {
    /// The configuration was not fetched.
    #[error("the OpenID configuration was not fetched")]
    Fetch(#[from] FetchFailed),
    /// The issuer's URL cannot be lengthened by the well-known path.
    #[error("the issuer's URL is no place of an OpenID configuration")]
    Place(#[source] BadKeyUrl),
    /// The document is no OpenID configuration.
    #[error("the OpenID configuration cannot be read")]
    Malformed(#[source] serde_json::Error),
    /// The configuration is another issuer's.
    #[error("the OpenID configuration is another issuer's")]
    OtherIssuer,
    /// `jwks_uri` is no URL that keys may be fetched from.
    #[error("the `jwks_uri` of the OpenID configuration is no URL of keys")]
    Url(#[source] BadKeyUrl),
    /// `jwks_uri` leads to another server.
    #[error("the `jwks_uri` of the OpenID configuration is on another host: give the URL of the keys instead")]
    OtherHost,
}

#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

/// The URL of the keys. It is on the same server as the issuer, so that an issuer's page cannot send our requests, with
/// our bearer token, to a third one.
pub(super) async fn discover(name: &str, issuer: &KeyUrl, trust: &Trust) -> Result<KeyUrl, DiscoveryFailed> {
    let place = format!("{}/.well-known/openid-configuration", issuer.to_string().trim_end_matches('/'));
    let document = fetch(&place.parse().map_err(DiscoveryFailed::Place)?, trust).await?;
    let configuration: Configuration = serde_json::from_slice(&document).map_err(DiscoveryFailed::Malformed)?;
    if configuration.issuer != name {
        return Err(DiscoveryFailed::OtherIssuer);
    }
    let keys: KeyUrl = configuration.jwks_uri.parse().map_err(DiscoveryFailed::Url)?;
    if keys.same_server(issuer) { Ok(keys) } else { Err(DiscoveryFailed::OtherHost) }
}
