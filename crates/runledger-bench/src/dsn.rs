//! A connection string as it was asked for.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use runledger_postgres::{Settings, is_connection_string};

/// The Postgres to compare with, unread: an error of the command line would show the password that may be in it.
#[derive(Clone)]
pub(crate) struct Dsn(String);

impl Dsn {
    /// The settings that the connection string asks for.
    pub(crate) fn settings(&self) -> Result<Settings, String> {
        if is_connection_string(&self.0) {
            Settings::parse(&self.0)
        } else {
            Err("expected postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned())
        }
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
