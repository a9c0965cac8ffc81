//! How a connection to the server is protected.

use std::fmt;

/// How a connection to the server is protected, as it came to be and not as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// A Unix socket of this machine, which needs no TLS.
    Socket,
    /// Plain text.
    Plain,
    /// TLS with whoever answered.
    Unverified,
    /// TLS with a server whose certificate comes from a trusted root, whatever its name is.
    Verified,
    /// TLS with a server whose certificate comes from a trusted root and bears its name.
    NameVerified,
}

impl Wire {
    /// The words for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Socket => "a socket of this machine",
            Self::Plain => "not encrypted",
            Self::Unverified => "encrypted, server not verified",
            Self::Verified => "encrypted, server verified but not its name",
            Self::NameVerified => "encrypted, server verified",
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
