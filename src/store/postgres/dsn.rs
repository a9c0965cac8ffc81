//! The store's settings from a connection string.

use std::time::Duration;

use runledger_postgres::{Connector, Settings};
pub use runledger_postgres::{is_connection_string, redacted};

use crate::store::OpenError;

const CONNECT_MAX: Duration = Duration::from_secs(5);
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// Whether a connection string can be read and asks for nothing that this build cannot do, told without connecting.
///
/// # Errors
///
/// A sentence that says what to do, with nothing of the string in it: any part of it may be a password.
pub fn check(dsn: &str) -> Result<(), String> {
    Settings::parse(dsn).map(drop)
}

/// The settings of the string, and bounds on waiting where it has none. Keepalives are one setting: a string that
/// wants its own names their interval.
pub(super) fn connector(dsn: &str) -> Result<Connector, OpenError> {
    let settings = Settings::parse(dsn);
    let mut settings = settings.map_err(|why| OpenError::Failed { location: redacted(dsn), source: why.into() })?;
    let config = &mut settings.config;
    if config.get_application_name().is_none() {
        config.application_name("runledger");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_MAX);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNACKNOWLEDGED_MAX);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_idle(KEEPALIVE_IDLE).keepalives_interval(KEEPALIVE_INTERVAL).keepalives_retries(3);
    }
    Ok(Connector::new(settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_refused_for_good_and_without_the_password() {
        let Err(error) = connector("postgres://u:secret@h/d?sslmode=verify-full") else { panic!("it was accepted") };
        assert!(!error.is_temporary());
        assert!(format!("{error:?}").contains("sslrootcert") && !format!("{error:?}").contains("secret"));
    }

    #[test]
    fn no_wait_is_without_a_bound() {
        let connector = connector("postgres://u@h/d").unwrap();
        assert_eq!(connector.config().get_connect_timeout(), Some(&CONNECT_MAX));
        assert_eq!(connector.config().get_tcp_user_timeout(), Some(&UNACKNOWLEDGED_MAX));
        assert_eq!(connector.config().get_keepalives_interval(), Some(KEEPALIVE_INTERVAL));
    }
}
