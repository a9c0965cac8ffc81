//! Connection strings: the parts of one that may be shown, and the driver's settings from one.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::store::OpenError;

const CONNECT_MAX: Duration = Duration::from_secs(5);
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// Query parameters whose values are no secret.
const SHOWN: [&str; 9] = [
    "application_name",
    "connect_timeout",
    "dbname",
    "host",
    "port",
    "sslmode",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// The connection string with `***` for every password. Never panics, and hides too much rather than too little: text
/// that is no connection string is hidden whole.
#[must_use]
pub fn redacted(dsn: &str) -> String {
    let Some((scheme, rest)) = dsn.split_once("://") else {
        return "***".to_owned();
    };
    // A password may hold any of `:/?@` unescaped, so it is taken to end at the last `@` of all.
    let (credentials, place) = rest.rfind('@').map_or(("", rest), |end| (&rest[..end], &rest[end..]));
    let query = credentials.split_once('?').map_or("", |(_, query)| query).to_ascii_lowercase();
    if query.contains("password") || query.contains('%') {
        // The `@` may be in the middle of a password that is a parameter: the text after it is no place.
        return format!("{scheme}://***");
    }
    let credentials = match credentials.split_once(':') {
        Some((user, _)) => format!("{}:***", redacted_user(user)),
        None => redacted_user(credentials).to_owned(),
    };
    let Some((place, query)) = place.split_once('?') else {
        return format!("{scheme}://{credentials}{place}");
    };
    let query: Vec<String> = query.split('&').map(redacted_parameter).collect();
    format!("{scheme}://{credentials}{place}?{}", query.join("&"))
}

/// The text where the user should be may be something else.
fn redacted_user(user: &str) -> &str {
    if user.contains(['/', '?', '@', '=']) { "***" } else { user }
}

fn redacted_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((key, _)) if SHOWN.contains(&key.to_ascii_lowercase().as_str()) => parameter.to_owned(),
        Some((key, _)) => format!("{key}=***"),
        None => "***".to_owned(),
    }
}

/// Whether a connection string can be read and asks for nothing that this build cannot do, told without connecting.
///
/// # Errors
///
/// A sentence that says what to do, with nothing of the string in it: any part of it may be a password.
pub fn check(dsn: &str) -> Result<(), String> {
    parsed(dsn).map(|_config| ()).map_err(str::to_owned)
}

/// The driver takes the first `@` of all for the end of the credentials: a second one would send a part of a password
/// to a host that is named by the rest of it.
fn parsed(dsn: &str) -> Result<Config, &'static str> {
    if dsn.matches('@').count() > 1 {
        return Err(
            "the connection string has more than one `@`: write `%40` for one in a user, password or parameter",
        );
    }
    let config: Config = dsn.parse().map_err(|_: tokio_postgres::Error| {
        "the connection string cannot be read: expected postgres://USER:PASSWORD@HOST:PORT/DATABASE, with `%3A`, `%2F`, \
         `%3F` and `%40` for `:`, `/`, `?` and `@` in user and password"
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err("the connection string names no host");
    }
    if config.get_dbname().is_none_or(str::is_empty) {
        return Err("the connection string names no database: postgres://USER:PASSWORD@HOST:PORT/DATABASE");
    }
    if config.get_ssl_mode() == SslMode::Require {
        return Err("sslmode=require: TLS to Postgres is not supported by this build");
    }
    Ok(config)
}

/// The driver's settings: those of the string, and bounds on waiting where it has none. Keepalives are one setting: a
/// string that wants its own names their interval.
pub(super) fn config(dsn: &str) -> Result<Config, OpenError> {
    let mut config = parsed(dsn).map_err(|why| OpenError::Failed { location: redacted(dsn), source: why.into() })?;
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
    Ok(config)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_password_is_ever_shown() {
        for (dsn, shown) in [
            ("postgres://u:secret@h:1/d", "postgres://u:***@h:1/d"),
            ("postgres://u@h/d", "postgres://u@h/d"),
            ("postgres://h:5432/d", "postgres://h:5432/d"),
            ("postgres://u:se@cr/et@h/d", "postgres://u:***@h/d"),
            ("postgres://u:sec?ret@h/d", "postgres://u:***@h/d"),
            ("postgres://u:pa@ss?word@127.0.0.1:1/d", "postgres://u:***@127.0.0.1:1/d"),
            ("postgres://u:a:b@h/d?sslmode=disable", "postgres://u:***@h/d?sslmode=disable"),
            ("postgres://h/d?password=secret&user=u", "postgres://h/d?password=***&user=u"),
            ("postgres://h/d?PassWord=secret", "postgres://h/d?PassWord=***"),
            ("postgres://h/d?p%61ssword=secret", "postgres://h/d?p%61ssword=***"),
            ("postgres://h/d?password=sec@ret", "postgres://***"),
            ("postgres://u@h/d?p%61ssword=s:ec@ret", "postgres://***"),
            ("postgres://h/d?sec&ret", "postgres://h/d?***&***"),
            ("host=h password=secret", "***"),
            ("", "***"),
            ("postgres://", "postgres://"),
            ("://@?é=", "://@?é=***"),
        ] {
            assert_eq!(redacted(dsn), shown);
        }
    }

    proptest! {
        #[test]
        fn no_part_of_any_password_is_ever_shown(before in "[ -~]{0,9}", after in "[ -~]{0,9}") {
            let password = format!("{before}Zq9{after}");
            let shown = redacted(&format!("postgres://u:{password}@h:1/d?sslmode=disable"));
            prop_assert!(!shown.contains("Zq9"), "{shown}");
            // A bare `&` or `#` ends a parameter's value.
            let password = password.replace(['&', '#'], "");
            for dsn in ["postgres://h/d?password=", "postgres://u@h:1/d?user=u&password=", "postgres://u:p@h/?Password="] {
                let shown = redacted(&format!("{dsn}{password}"));
                prop_assert!(!shown.contains("Zq9"), "{shown}");
            }
        }

        #[test]
        fn whatever_is_asked_of_it_it_answers(dsn in "(postgres://)?[a@:/?&=%. é]{0,20}") {
            let _shown = redacted(&dsn);
            drop(check(&dsn));
        }
    }

    #[test]
    fn what_can_be_found_without_connecting_is() {
        for dsn in ["postgres://u:secret@h:1/d", "postgresql://u@[::1]/d?sslmode=prefer", "postgres://h1,h2/d"] {
            assert_eq!(check(dsn), Ok(()), "{dsn}");
        }
        for (dsn, why) in [
            ("postgres://u:secret@h/d?sslmode=require", "TLS"),
            ("postgres://u:se@cret@h/d", "%40"),
            ("postgres://u:secret@h:port/d", "cannot be read"),
            ("postgres://u:secret@h/d?secret=1", "cannot be read"),
            ("postgres://", "names no host"),
            ("postgres://u:secret@h:1", "names no database"),
            ("postgres://u:secret@h/", "names no database"),
            ("postgres://u:secret@h?sslmode=disable", "names no database"),
        ] {
            let said = check(dsn).unwrap_err();
            assert!(said.contains(why) && !said.contains("secret"), "{dsn}: {said}");
        }
    }

    #[test]
    fn tls_is_refused_and_not_silently_left_out() {
        let Err(error) = config("postgres://u:secret@h/d?sslmode=require") else { panic!("it was accepted") };
        assert!(!error.is_temporary());
        assert!(!format!("{error:?}").contains("secret"));
    }
}
