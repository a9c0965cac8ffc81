//! A connection string as it was asked for.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// The Postgres to compare with, unread: an error of the command line would show the password that may be in it.
#[derive(Clone)]
pub(crate) struct Dsn(String);

impl Dsn {
    /// The connection string.
    pub(crate) fn url(&self) -> Result<&str, String> {
        let named = ["postgres://", "postgresql://"].iter().any(|scheme| self.0.starts_with(scheme));
        named
            .then_some(self.0.as_str())
            .ok_or_else(|| "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned())
    }
}

impl FromStr for Dsn {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dsn(***)")
    }
}
