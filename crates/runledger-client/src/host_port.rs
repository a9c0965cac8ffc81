//! The address of a server.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// The address to listen on, or of a server to call: a name or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort(String);

impl FromStr for HostPort {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = || {
            let (host, port) = text.rsplit_once(':')?;
            let of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
            let sound = !host.is_empty() && !host.starts_with('-') && host.bytes().all(of_a_name) && is_port;
            sound.then_some(())
        };
        let sound = text.parse::<SocketAddr>().is_ok() || named().is_some();
        sound.then(|| Self(text.to_owned())).ok_or("expected HOST:PORT, such as localhost:50051 or [::1]:50051")
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HostPort {
    /// The text as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
