//! A connection string without its secrets.

use super::{is_url, known, pairs};

/// Parameters whose values are no secret.
const SHOWN: [&str; 15] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "port",
    "sslcert",
    "sslcrl",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// The connection string with `***` for every password. Never panics, and hides too much rather than too little: text
/// that is no connection string is hidden whole.
#[must_use]
pub fn redacted(dsn: &str) -> String {
    let Some((scheme, rest)) = dsn.split_once("://").filter(|_| is_url(dsn)) else {
        return redacted_pairs(dsn).unwrap_or_else(|| "***".to_owned());
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

/// The form with pairs. A key that is not known may be a part of a password with spaces in it: then nothing is shown.
fn redacted_pairs(text: &str) -> Option<String> {
    let pairs = pairs::pairs(text).filter(|pairs| !pairs.is_empty())?;
    if pairs.iter().any(|(key, _)| known(key).is_none()) {
        return None;
    }
    let is_plain = |value: &str| value.chars().all(|next| next.is_alphanumeric() || "-_./:,%".contains(next));
    let shown = pairs.into_iter().map(|(key, value)| {
        let value = if SHOWN.contains(&key.as_str()) && is_plain(&value) { value } else { "***".to_owned() };
        format!("{key}={value}")
    });
    Some(shown.collect::<Vec<_>>().join(" "))
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
            ("postgres://h/d?sslkey=/secret&sslrootcert=/a.pem", "postgres://h/d?sslkey=***&sslrootcert=/a.pem"),
            ("host=h user=u dbname=d password='secret'", "host=h user=u dbname=d password=***"),
            ("host=h password=secret", "host=h password=***"),
            ("host=h password=se cret=x", "***"),
            ("host=h password='a b' user='a b'", "host=h password=*** user=***"),
            ("password=a://secret", "password=***"),
            ("password", "***"),
            ("", "***"),
            ("postgres://", "postgres://"),
            ("://@?é=", "***"),
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
            let quoted = password.replace('\\', "\\\\").replace('\'', "\\'");
            let shown = redacted(&format!("host=h password='{quoted}' dbname=d"));
            prop_assert!(!shown.contains("Zq9"), "{shown}");
            // A bare `&` or `#` ends a parameter's value.
            let password = password.replace(['&', '#'], "");
            for dsn in ["postgres://h/d?password=", "postgres://u@h:1/d?user=u&password=", "postgres://u:p@h/?Password="] {
                let shown = redacted(&format!("{dsn}{password}"));
                prop_assert!(!shown.contains("Zq9"), "{shown}");
            }
        }

        #[test]
        fn whatever_is_asked_of_it_it_answers(dsn in "(postgres://|host=h )?[a@:/?&=%. 'é]{0,20}") {
            let _shown = redacted(&dsn);
            drop(crate::Settings::parse(&dsn));
        }
    }
}
