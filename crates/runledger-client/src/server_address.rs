//! The address of a server to call, which may say by its scheme whether the server speaks TLS.

use std::fmt;
use std::str::FromStr;

use crate::host_port::HostPort;

/// A server to call: `HOST:PORT`, or a URL such as `https://runs.example:443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    text: String,
    scheme: Option<Scheme>,
    place: HostPort,
}

/// The scheme of a server's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `http://`: the server is called in plain text, whatever else is asked for.
    Plain,
    /// `https://`: the server is called over TLS.
    Tls,
}

/// The form that an address must have.
const EXPECTED: &str = "expected HOST:PORT or https://HOST:PORT, such as localhost:50051 or [::1]:50051";

impl FromStr for ServerAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // No address has blanks at its ends; a list has them behind its commas, and a file a newline.
        let text = text.trim_ascii();
        let (scheme, place) = match text.split_once("://") {
            None => (None, text),
            Some((name, place)) => {
                let known = [("http", Scheme::Plain), ("https", Scheme::Tls)];
                let scheme = known.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
                (Some(scheme.ok_or(EXPECTED)?.1), place.strip_suffix('/').unwrap_or(place))
            }
        };
        let by_itself = place.parse();
        let place = match (scheme, by_itself) {
            (_, Ok(place)) => place,
            (None, Err(_)) => return Err(EXPECTED),
            // A URL without a port means the port of its scheme.
            (Some(Scheme::Plain), Err(_)) => format!("{place}:80").parse().map_err(|_| EXPECTED)?,
            (Some(Scheme::Tls), Err(_)) => format!("{place}:443").parse().map_err(|_| EXPECTED)?,
        };
        Ok(Self { text: text.to_owned(), scheme, place })
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl ServerAddress {
    /// Several addresses, with commas between them.
    ///
    /// # Errors
    ///
    /// The form that an address must have.
    pub fn several(text: &str) -> Result<Vec<Self>, &'static str> {
        text.split(',').map(str::parse).collect()
    }

    /// Whether both mean the same server, called in the same way: another spelling of a name may lead elsewhere, and is
    /// another server.
    #[must_use]
    pub fn is_the_same(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.place().eq_ignore_ascii_case(other.place())
    }

    /// The scheme, where the address has one.
    #[must_use]
    pub fn scheme(&self) -> Option<Scheme> {
        self.scheme
    }

    /// `HOST:PORT`.
    #[must_use]
    pub fn place(&self) -> &str {
        self.place.as_str()
    }

    /// The host, without the brackets of an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        let host = self.place.as_str().rsplit_once(':').map_or(self.place.as_str(), |(host, _port)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Whether the address is this machine's own by its form. That is a promise of the name alone: the address of a
    /// connection's other end is looked at before anything secret is sent.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let host = self.host();
        host.parse::<std::net::IpAddr>().map_or_else(|_name| is_localhost(host), |address| address.is_loopback())
    }
}

/// Whether a name is one that resolvers keep on this machine (RFC 6761).
fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ServerAddress {
        text.parse().unwrap_or_else(|expected| panic!("{text}: {expected}"))
    }

    #[test]
    fn an_address_is_a_place_or_a_url_without_a_path() {
        for (text, place, host) in [
            ("localhost:50051", "localhost:50051", "localhost"),
            ("https://runs.example", "runs.example:443", "runs.example"),
            ("HTTP://runs.example/", "runs.example:80", "runs.example"),
            ("https://[::1]:7", "[::1]:7", "::1"),
        ] {
            assert_eq!((parsed(text).place(), parsed(text).host()), (place, host), "{text}");
            assert_eq!(parsed(text).to_string(), text);
        }
        assert_eq!(parsed("https://a:1").scheme(), Some(Scheme::Tls));
        for text in [
            "",
            "localhost",
            "https://",
            "https://user:word@a:1",
            "https://a:1/path",
            "ftp://a:1",
            "a:b",
            "a :1",
            "a: 1",
            "https:// a:1",
            "a:1 b:2",
            "a:1\u{a0}",
        ] {
            assert_eq!(text.parse::<ServerAddress>(), Err(EXPECTED), "{text}");
        }
    }

    #[test]
    fn blanks_at_the_ends_are_no_part_of_an_address() {
        for text in [" a:1", "a:1 ", "a:1\n", "\ta:1\r\n"] {
            assert_eq!((parsed(text), parsed(text).to_string()), (parsed("a:1"), "a:1".to_owned()), "{text:?}");
        }
        assert_eq!(ServerAddress::several("a:1, b:2\n"), Ok(vec![parsed("a:1"), parsed("b:2")]));
        assert_eq!(ServerAddress::several("a:1, "), Err(EXPECTED));
    }

    #[test]
    fn a_server_is_the_same_by_its_place_and_the_way_to_it() {
        for (one, other, same) in [
            ("a:1", "A:1", true),
            ("https://a", "https://a:443/", true),
            ("a:1", "a:2", false),
            ("a:443", "https://a", false),
            ("localhost:1", "127.0.0.1:1", false),
        ] {
            assert_eq!(parsed(one).is_the_same(&parsed(other)), same, "{one} {other}");
        }
    }

    #[test]
    fn only_what_stays_on_this_machine_is_loopback() {
        for (text, loopback) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("http://localhost:1", true),
            ("a.localhost:1", true),
            ("localhost.example:1", false),
            ("10.0.0.7:1", false),
            ("0.0.0.0:1", false),
            ("notlocalhost:1", false),
        ] {
            assert_eq!(parsed(text).is_loopback(), loopback, "{text}");
        }
    }
}
