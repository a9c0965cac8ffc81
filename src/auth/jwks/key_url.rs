//! The URL of keys: https, or http on loopback, where nobody else can answer.

use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;
use http::uri::Scheme;
use thiserror::Error;

/// A URL that keys may be fetched from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUrl {
    uri: Uri,
    host: String,
}

/// The reason for which a text is no URL of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadKeyUrl {
    /// The text is no absolute URL.
    #[error("not a URL with a scheme and a host")]
    Malformed,
    /// The scheme is another, or http to a host that is not loopback.
    #[error("must begin with https:// (http:// only for a loopback address)")]
    Scheme,
    /// The URL has a name or a password before the host.
    #[error("must have no user name or password in it: use a file with a bearer token")]
    UserInfo,
}

impl FromStr for KeyUrl {
    type Err = BadKeyUrl;

    fn from_str(text: &str) -> Result<Self, BadKeyUrl> {
        let uri: Uri = text.parse().map_err(|_| BadKeyUrl::Malformed)?;
        let authority = uri.authority().ok_or(BadKeyUrl::Malformed)?;
        if authority.as_str().contains('@') {
            return Err(BadKeyUrl::UserInfo);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if host.is_empty() || uri.scheme().is_none() {
            return Err(BadKeyUrl::Malformed);
        }
        let url = Self { uri, host };
        if url.is_https() || (url.uri.scheme() == Some(&Scheme::HTTP) && url.names_loopback()) {
            Ok(url)
        } else {
            Err(BadKeyUrl::Scheme)
        }
    }
}

impl std::fmt::Display for KeyUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.uri.fmt(f)
    }
}

impl KeyUrl {
    /// Whether TLS protects what is fetched from here.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.uri.scheme() == Some(&Scheme::HTTPS)
    }

    /// The host, in lower case; an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, which the scheme tells where the URL does not.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    /// The path with the query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.uri.path_and_query().map_or("/", |path| path.as_str())
    }

    /// The host with its port, as the header `host` names it.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.uri.authority().map_or(&self.host, |authority| authority.as_str())
    }

    /// Whether the other URL is of the same server: the same scheme, host and port.
    #[must_use]
    pub fn same_server(&self, other: &Self) -> bool {
        self.is_https() == other.is_https() && self.host == other.host && self.port() == other.port()
    }

    fn names_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_fetched_by_https_or_from_loopback() {
        for (text, server) in [
            ("https://issuer.example/jwks", ("issuer.example", 443, "/jwks")),
            ("https://Issuer.example:8443", ("issuer.example", 8443, "/")),
            ("https://[2001:db8::1]/a?b=c", ("2001:db8::1", 443, "/a?b=c")),
            ("http://127.0.0.1:80/jwks", ("127.0.0.1", 80, "/jwks")),
            ("http://[::1]:9/jwks", ("::1", 9, "/jwks")),
            ("http://localhost/jwks", ("localhost", 80, "/jwks")),
        ] {
            let url: KeyUrl = text.parse().unwrap();
            assert_eq!((url.host(), url.port(), url.path()), server, "{text}");
        }
        for (text, reason) in [
            ("http://issuer.example/jwks", BadKeyUrl::Scheme),
            ("http://127.0.0.1.example/jwks", BadKeyUrl::Scheme),
            ("http://10.0.0.1/jwks", BadKeyUrl::Scheme),
            ("ftp://127.0.0.1/jwks", BadKeyUrl::Scheme),
            ("file:///etc/passwd", BadKeyUrl::Malformed),
            ("/jwks", BadKeyUrl::Malformed),
            ("issuer.example", BadKeyUrl::Malformed),
            ("", BadKeyUrl::Malformed),
            ("https://user:word@issuer.example/", BadKeyUrl::UserInfo),
        ] {
            assert_eq!(text.parse::<KeyUrl>().unwrap_err(), reason, "{text}");
        }
    }
}
