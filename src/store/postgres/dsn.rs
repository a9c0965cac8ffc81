//! Connection strings: what may be shown of one, and the driver's settings from one.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::store::OpenError;

const CONNECT_MAX: Duration = Duration::from_secs(5);
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// The connection string with `***` for every password. Never panics, and hides too much rather than too little: text
/// that is no connection string is hidden whole.
#[must_use]
pub fn redacted(dsn: &str) -> String {
    let Some((scheme, rest)) = dsn.split_once("://") else {
        return "***".to_owned();
    };
    // A password may hold any of `:/?@` unescaped, so it is taken to end at the last `@` that can end it.
    let before_query = rest.find('?').unwrap_or(rest.len());
    let end = rest[..before_query].rfind('@').or_else(|| rest.rfind('@'));
    let (credentials, place) = end.map_or(("", rest), |end| (&rest[..end], &rest[end..]));
    let credentials =
        credentials.split_once(':').map_or_else(|| credentials.to_owned(), |(user, _)| format!("{user}:***"));
    let Some((place, query)) = place.split_once('?') else {
        return format!("{scheme}://{credentials}{place}");
    };
    let query: Vec<String> = query.split('&').map(redacted_parameter).collect();
    format!("{scheme}://{credentials}{place}?{}", query.join("&"))
}

/// A key may be percent-encoded itself; such a one is not worth decoding and hides its value.
fn redacted_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((key, _)) if key.to_ascii_lowercase().contains("password") || key.contains('%') => format!("{key}=***"),
        Some(_) | None => parameter.to_owned(),
    }
}

/// The driver's settings: what the string says, and bounds on waiting where it says nothing.
pub(super) fn config(dsn: &str) -> Result<Config, OpenError> {
    let failed = |source| OpenError::Failed { location: redacted(dsn), source };
    let mut config: Config = dsn.parse().map_err(|error: tokio_postgres::Error| failed(error.into()))?;
    if config.get_ssl_mode() == SslMode::Require {
        return Err(failed("sslmode=require: TLS to Postgres is not supported by this build".into()));
    }
    config.application_name("runledger");
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
    use super::*;

    #[test]
    fn no_password_is_ever_shown() {
        for (dsn, shown) in [
            ("postgres://u:secret@h:1/d", "postgres://u:***@h:1/d"),
            ("postgres://u@h/d", "postgres://u@h/d"),
            ("postgres://h:5432/d", "postgres://h:5432/d"),
            ("postgres://u:se@cr/et@h/d", "postgres://u:***@h/d"),
            ("postgres://u:sec?ret@h/d", "postgres://u:***@h/d"),
            ("postgres://u:a:b@h/d?sslmode=disable", "postgres://u:***@h/d?sslmode=disable"),
            ("postgres://h/d?password=secret&user=u", "postgres://h/d?password=***&user=u"),
            ("postgres://h/d?PassWord=secret", "postgres://h/d?PassWord=***"),
            ("postgres://h/d?p%61ssword=secret", "postgres://h/d?p%61ssword=***"),
            ("host=h password=secret", "***"),
            ("", "***"),
            ("postgres://", "postgres://"),
            ("://@?é=", "://@?é="),
        ] {
            assert_eq!(redacted(dsn), shown);
        }
    }

    #[test]
    fn tls_is_refused_and_not_silently_left_out() {
        let Err(error) = config("postgres://u:secret@h/d?sslmode=require") else { panic!("it was accepted") };
        assert!(!error.is_temporary());
        assert!(!format!("{error:?}").contains("secret"));
    }
}
