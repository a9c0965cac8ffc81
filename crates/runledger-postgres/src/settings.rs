//! The settings that a connection string asks for, checked against each other before anything is connected.

use std::fmt;
use std::path::PathBuf;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode, SslNegotiation};

use crate::dsn::{Parts, parts};

/// libpq's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// No TLS.
    Disable,
    /// TLS only where the server refuses a connection without.
    Allow,
    /// TLS where the server has it.
    Prefer,
    /// TLS with whoever answers.
    Require,
    /// TLS with a server whose certificate comes from a trusted root.
    VerifyCa,
    /// As before, and the certificate bears the server's name.
    VerifyFull,
}

impl Mode {
    const ALL: [Self; 6] = [Self::Disable, Self::Allow, Self::Prefer, Self::Require, Self::VerifyCa, Self::VerifyFull];

    /// The value of `sslmode`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Allow => "allow",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }

    fn verifies(self) -> bool {
        self >= Self::VerifyCa
    }
}

/// The roots that a server's certificate must come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// The certificates in a file.
    File(PathBuf),
    /// The platform's.
    System,
}

/// A certificate of this client's, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `sslcert`.
    pub certificate: PathBuf,
    /// `sslkey`.
    pub key: PathBuf,
}

/// What a connection string asks for.
#[derive(Clone)]
pub struct Settings {
    /// The driver's part. Its mode is set for each attempt to connect.
    pub config: Config,
    /// The mode that is kept: `require` with roots is `verify-ca`.
    pub mode: Mode,
    /// `sslrootcert`.
    pub roots: Option<Roots>,
    /// `sslcrl`.
    pub revoked: Option<PathBuf>,
    /// `sslcert` and `sslkey`.
    pub identity: Option<Identity>,
}

impl Settings {
    /// Reads a connection string, without connecting and without a look at any file.
    ///
    /// # Errors
    ///
    /// A sentence that says what to do, with nothing of the string in it: any part of it may be a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Parts { drivers, ours } = parts(text)?;
        let mut config: Config = drivers.parse().map_err(|_: tokio_postgres::Error| {
            "the connection string cannot be read: expected postgres://USER:PASSWORD@HOST:PORT/DATABASE, with `%3A`, \
             `%2F`, `%3F` and `%40` for `:`, `/`, `?` and `@` in user and password"
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err("the connection string names no host".to_owned());
        }
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err(
                "the connection string names no database: postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned()
            );
        }
        // As libpq does it, the last of several counts, and an empty value is none.
        let given = |name| ours.iter().rfind(|(key, _)| *key == name).map(|(_, value)| value.as_str());
        let given = |name| given(name).filter(|value| !value.is_empty());
        let asked = given("sslmode").map(|value| one_of("sslmode", value, Mode::ALL.map(|mode| (mode.name(), mode))));
        let asked = asked.transpose()?;
        let roots = given("sslrootcert").map(|value| match value {
            "system" => Roots::System,
            path => Roots::File(path.into()),
        });
        let negotiation = [("postgres", SslNegotiation::Postgres), ("direct", SslNegotiation::Direct)];
        if let Some(value) = given("sslnegotiation") {
            config.ssl_negotiation(one_of("sslnegotiation", value, negotiation)?);
        }
        let bindings = [
            ("disable", ChannelBinding::Disable),
            ("prefer", ChannelBinding::Prefer),
            ("require", ChannelBinding::Require),
        ];
        if let Some(value) = given("channel_binding") {
            config.channel_binding(one_of("channel_binding", value, bindings)?);
        }
        let identity = match (given("sslcert"), given("sslkey")) {
            (Some(certificate), Some(key)) => Some(Identity { certificate: certificate.into(), key: key.into() }),
            (Some(_), None) => return Err("sslcert needs sslkey, the file of its key".to_owned()),
            (None, Some(_)) => return Err("sslkey needs sslcert, the file of its certificate".to_owned()),
            (None, None) => None,
        };
        let mode = mode(asked, roots.as_ref())?;
        let settings = Self { config, mode, roots, revoked: given("sslcrl").map(PathBuf::from), identity };
        settings.agreeing()
    }

    /// Whether every host is a Unix socket: libpq's `sslmode` does not count there.
    #[must_use]
    pub fn is_socket(&self) -> bool {
        self.config.get_hostaddrs().is_empty() && self.sockets() == self.config.get_hosts().len()
    }

    fn sockets(&self) -> usize {
        self.config.get_hosts().iter().filter(|host| matches!(host, Host::Unix(_))).count()
    }

    /// Whether every host is this machine.
    pub(crate) fn is_here(&self) -> bool {
        let addresses = self.config.get_hostaddrs();
        let here = |host: &Host| match host {
            Host::Tcp(name) => name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()),
            Host::Unix(_) => true,
        };
        if addresses.is_empty() {
            self.config.get_hosts().iter().all(here)
        } else {
            addresses.iter().all(std::net::IpAddr::is_loopback)
        }
    }

    /// Refuses settings that cannot all be meant.
    fn agreeing(mut self) -> Result<Self, String> {
        let name = self.mode.name();
        if self.is_socket() {
            self.config.ssl_mode(SslMode::Disable);
            return Ok(self);
        }
        if self.sockets() > 0 && self.mode >= Mode::Require {
            return Err(format!("sslmode={name} with a Unix socket among several hosts: name one kind of host only"));
        }
        if self.mode < Mode::Require && self.config.get_ssl_negotiation() == SslNegotiation::Direct {
            return Err(format!("sslnegotiation=direct needs sslmode=require or stricter, and not {name}"));
        }
        if self.mode == Mode::Disable && self.config.get_channel_binding() == ChannelBinding::Require {
            return Err("channel_binding=require needs TLS, and sslmode=disable has none".to_owned());
        }
        if self.mode == Mode::Disable && self.identity.is_some() {
            return Err("sslcert needs TLS, and sslmode=disable has none".to_owned());
        }
        if !self.mode.verifies() && self.revoked.is_some() {
            return Err("sslcrl needs sslrootcert, and sslmode=verify-full or verify-ca".to_owned());
        }
        if self.config.get_hosts().is_empty() {
            if self.mode == Mode::VerifyFull {
                return Err("sslmode=verify-full needs `host`, the name to verify, beside `hostaddr`".to_owned());
            }
            // The driver makes no handshake without a name, which nobody verifies here.
            for address in self.config.get_hostaddrs().to_vec() {
                self.config.host(address.to_string());
            }
        }
        Ok(self)
    }
}

/// The mode that is kept. A user who names roots wants them used: libpq takes a bad certificate for a reason to go on
/// without TLS in its weak modes, and that is refused here.
fn mode(asked: Option<Mode>, roots: Option<&Roots>) -> Result<Mode, String> {
    match (asked, roots) {
        (None, Some(Roots::System)) | (Some(Mode::VerifyFull), Some(_)) => Ok(Mode::VerifyFull),
        (Some(mode), Some(Roots::System)) => {
            let name = mode.name();
            Err(format!("sslrootcert=system needs sslmode=verify-full, and not {name}: anybody can have a certificate"))
        }
        (Some(Mode::Require | Mode::VerifyCa), Some(Roots::File(_))) => Ok(Mode::VerifyCa),
        (None | Some(Mode::Disable | Mode::Allow | Mode::Prefer), Some(Roots::File(_))) => {
            let name = asked.unwrap_or(Mode::Prefer).name();
            Err(format!("sslrootcert is given, but sslmode={name} verifies nothing: sslmode=verify-full uses it"))
        }
        (Some(mode @ (Mode::VerifyCa | Mode::VerifyFull)), None) => {
            let name = mode.name();
            Err(format!("sslmode={name} needs sslrootcert: the file of the roots, or `system` for the platform's"))
        }
        (Some(mode @ (Mode::Disable | Mode::Allow | Mode::Prefer | Mode::Require)), None) => Ok(mode),
        (None, None) => Ok(Mode::Prefer),
    }
}

/// The value of a parameter that has few.
fn one_of<T: Copy, const N: usize>(parameter: &str, value: &str, values: [(&str, T); N]) -> Result<T, String> {
    values.into_iter().find_map(|(name, meant)| (name == value).then_some(meant)).ok_or_else(|| {
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        format!("{parameter} must be one of {}", names.join(", "))
    })
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The driver's part hides its password, and shows `options`, where one may stand.
        f.debug_struct("Settings")
            .field("hosts", &self.config.get_hosts())
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Settings {
        Settings::parse(&format!("postgres://u:secret@h/d?{query}")).unwrap()
    }

    #[test]
    fn the_mode_is_libpqs() {
        for (query, mode) in [
            ("", Mode::Prefer),
            ("sslmode=", Mode::Prefer),
            ("sslmode=disable", Mode::Disable),
            ("sslmode=allow", Mode::Allow),
            ("sslmode=prefer", Mode::Prefer),
            ("sslmode=require", Mode::Require),
            ("sslmode=require&sslrootcert=/ca.pem", Mode::VerifyCa),
            ("sslmode=verify-ca&sslrootcert=/ca.pem", Mode::VerifyCa),
            ("sslmode=verify-full&sslrootcert=/ca.pem", Mode::VerifyFull),
            ("sslmode=disable&sslmode=verify-full&sslrootcert=/ca.pem", Mode::VerifyFull),
            ("sslrootcert=system", Mode::VerifyFull),
            ("sslmode=verify-full&sslrootcert=system", Mode::VerifyFull),
        ] {
            assert_eq!(parsed(query).mode, mode, "{query}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_the_parameters_name() {
        for (query, named) in [
            ("sslmode=Require", "sslmode must be one of disable, allow, prefer, require, verify-ca, verify-full"),
            ("sslmode=secret", "sslmode"),
            ("sslnegotiation=tls", "sslnegotiation must be one of postgres, direct"),
            ("channel_binding=yes", "channel_binding must be one of disable, prefer, require"),
            ("sslmode=verify-ca", "needs sslrootcert"),
            ("sslmode=verify-full", "needs sslrootcert"),
            ("sslrootcert=/secret.pem", "sslmode=prefer verifies nothing"),
            ("sslmode=disable&sslrootcert=/ca.pem", "sslmode=disable verifies nothing"),
            ("sslmode=require&sslrootcert=system", "sslrootcert=system needs sslmode=verify-full"),
            ("sslcert=/secret.pem", "sslcert needs sslkey"),
            ("sslkey=/secret.pem", "sslkey needs sslcert"),
            ("sslmode=disable&sslcert=/c&sslkey=/k", "sslcert needs TLS"),
            ("sslmode=disable&channel_binding=require", "channel_binding=require needs TLS"),
            ("sslnegotiation=direct", "sslnegotiation=direct needs sslmode=require"),
            ("sslmode=require&sslcrl=/crl", "sslcrl needs sslrootcert"),
            ("sslpassword=secret", "sslpassword is not supported"),
        ] {
            let said = Settings::parse(&format!("postgres://u:secret@h/d?{query}")).unwrap_err();
            assert!(said.contains(named) && !said.contains("secret"), "{query}: {said}");
        }
    }

    #[test]
    fn what_can_be_found_without_connecting_is() {
        for dsn in [
            "postgres://u:secret@h:1/d",
            "postgresql://u@[::1]/d?sslmode=prefer",
            "postgres://h1,h2/d",
            "host=h dbname=d password='se cret'",
        ] {
            assert!(Settings::parse(dsn).is_ok(), "{dsn}");
        }
        for (dsn, why) in [
            ("postgres://u:se@cret@h/d", "%40"),
            ("postgres://u:secret@h:port/d", "cannot be read"),
            ("postgres://u:secret@h/d?secret=1", "a parameter that is none"),
            ("postgres://", "names no host"),
            ("postgres://u:secret@h:1", "names no database"),
            ("postgres://u:secret@h/", "names no database"),
            ("postgres://u:secret@h?sslmode=disable", "names no database"),
            ("dbname=d password=secret", "names no host"),
            ("host=h password=secret", "names no database"),
        ] {
            let said = Settings::parse(dsn).unwrap_err();
            assert!(said.contains(why) && !said.contains("secret"), "{dsn}: {said}");
        }
    }

    #[test]
    fn a_socket_has_no_tls_whatever_the_mode_is() {
        let settings = Settings::parse("postgres:///d?host=%2Frun%2Fpostgresql&sslmode=require").unwrap();
        assert!(settings.is_socket());
        assert_eq!(settings.config.get_ssl_mode(), SslMode::Disable);
        let mixed = Settings::parse("postgres:///d?host=%2Frun&host=h&sslmode=require").unwrap_err();
        assert!(mixed.contains("one kind of host"), "{mixed}");
    }

    #[test]
    fn an_address_keeps_the_name_and_without_a_name_stands_for_it() {
        let named = parsed("hostaddr=10.0.0.1&sslmode=verify-full&sslrootcert=/ca.pem");
        assert_eq!(named.config.get_hosts(), [Host::Tcp("h".to_owned())]);
        let bare = Settings::parse("postgres:///d?hostaddr=10.0.0.1&sslmode=require").unwrap();
        assert_eq!(bare.config.get_hosts(), [Host::Tcp("10.0.0.1".to_owned())]);
        let full = "postgres:///d?hostaddr=10.0.0.1&sslmode=verify-full&sslrootcert=/ca.pem";
        assert!(Settings::parse(full).unwrap_err().contains("needs `host`"));
    }

    #[test]
    fn debug_shows_no_password() {
        let shown = format!("{:?}", parsed("options=secret"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
