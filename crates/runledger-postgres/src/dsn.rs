//! Connection strings: their two forms, the parameters that are this crate's, and the parts that may be shown.
//!
//! The driver reads users, hosts and all that is not TLS. The text that it gets is the user's own, less the parameters
//! that it does not know.

mod pairs;
mod redact;
mod url;

pub use self::redact::redacted;

/// The parameters that this crate reads itself, by libpq's names.
pub(crate) const OURS: [&str; 7] =
    ["sslmode", "sslnegotiation", "sslrootcert", "sslcert", "sslkey", "sslcrl", "channel_binding"];

/// The parameters that the driver reads.
const DRIVERS: [&str; 16] = [
    "application_name",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "options",
    "password",
    "port",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// Parameters of libpq that are refused by their names. A name that is not known is not repeated: it may be a part of a
/// password with a bare `&` in it.
const REFUSED: [&str; 26] = [
    "client_encoding",
    "fallback_application_name",
    "gssdelegation",
    "gssencmode",
    "gsslib",
    "keepalives_count",
    "krbsrvname",
    "max_protocol_version",
    "min_protocol_version",
    "passfile",
    "replication",
    "require_auth",
    "requirepeer",
    "requiressl",
    "scram_client_key",
    "scram_server_key",
    "service",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcertmode",
    "sslcompression",
    "sslcrldir",
    "sslkeylogfile",
    "sslpassword",
    "sslsni",
    "sslsuite",
];

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// A connection string, taken apart.
pub(crate) struct Parts {
    /// The string without [`OURS`], for the driver.
    pub(crate) drivers: String,
    /// The values of [`OURS`] that the string has, in its order.
    pub(crate) ours: Vec<(&'static str, String)>,
}

/// Whether a text has one of the two forms of a connection string: `postgres://...`, or `host=... user=...`.
#[must_use]
pub fn is_connection_string(text: &str) -> bool {
    is_url(text) || text.split_once('=').is_some_and(|(key, _)| known(key.trim()).is_some())
}

fn is_url(text: &str) -> bool {
    SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

/// Takes a connection string apart.
///
/// # Errors
///
/// A sentence that says what to do, with nothing of the string in it but the names of libpq's parameters.
pub(crate) fn parts(text: &str) -> Result<Parts, String> {
    if is_url(text) { url::parts(text) } else { pairs::parts(text) }
}

/// The name of a parameter that the driver or this crate knows.
fn known(key: &str) -> Option<&'static str> {
    OURS.into_iter().chain(DRIVERS).find(|known| *known == key)
}

/// Refuses a parameter that neither this crate nor the driver knows.
fn admit(key: &str) -> Result<(), String> {
    if known(key).is_some() {
        return Ok(());
    }
    Err(match REFUSED.into_iter().find(|refused| *refused == key) {
        Some("sslpassword") => "sslpassword is not supported: `sslkey` must name a key without a passphrase".to_owned(),
        Some(refused) => format!("{refused} is not supported in the connection string"),
        None => "the connection string has a parameter that is none: write `%26` for `&` and `%3D` for `=` in a value"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_connection_string_are_known() {
        for text in ["postgres://h/d", "postgresql://", "host=h dbname=d", "sslmode=disable", " user = u"] {
            assert!(is_connection_string(text), "{text}");
        }
        for text in ["", "memory", "sqlite:a=b", "runs.db", "path=x", "host"] {
            assert!(!is_connection_string(text), "{text}");
        }
    }

    #[test]
    fn a_parameter_that_is_not_known_is_refused_and_named_only_when_it_is_libpqs() {
        for text in ["postgres://u:p@h/d?", "host=h user=u "] {
            let refused = |parameter: &str| parts(&format!("{text}{parameter}")).err().unwrap();
            assert!(refused("sslpassword=x").contains("sslpassword"));
            assert!(refused("gssencmode=disable").contains("gssencmode"));
            assert!(!refused("cret=x").contains("cret"));
        }
    }
}
