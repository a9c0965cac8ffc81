//! Connection strings of the form `postgres://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETER=VALUE&...`.

use percent_encoding::percent_decode_str;

use super::{OURS, Parts, admit};

/// The driver takes the first `@` of all for the end of the credentials: a second one would send a part of a password
/// to a host that is named by the rest of it.
const TWO_ATS: &str =
    "the connection string has more than one `@`: write `%40` for one in a user, password or parameter";

pub(super) fn parts(text: &str) -> Result<Parts, String> {
    if text.matches('@').count() > 1 {
        return Err(TWO_ATS.to_owned());
    }
    // A `?` before the `@` is a part of the password, as it is to the driver.
    let place = text.find('@').unwrap_or(0);
    let Some(query) = text[place..].find('?').map(|mark| place + mark) else {
        return Ok(Parts { drivers: text.to_owned(), ours: Vec::new() });
    };
    let mut drivers = text[..query].to_owned();
    let mut ours = Vec::new();
    let mut separator = '?';
    for parameter in text[query + 1..].split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').ok_or("a parameter of the connection string has no value")?;
        let key = percent_decode_str(key).decode_utf8_lossy();
        admit(&key)?;
        if let Some(name) = OURS.into_iter().find(|name| *name == key) {
            let value = percent_decode_str(value).decode_utf8();
            ours.push((name, value.map_err(|_| format!("{name} is not UTF-8"))?.into_owned()));
        } else {
            drivers.push(separator);
            drivers.push_str(parameter);
            separator = '&';
        }
    }
    Ok(Parts { drivers, ours })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_tls_are_taken_off_and_decoded() {
        for (text, drivers, ours) in [
            ("postgres://u:p@h/d", "postgres://u:p@h/d", vec![]),
            ("postgres://u:p@h/d?sslmode=verify-full", "postgres://u:p@h/d", vec![("sslmode", "verify-full")]),
            (
                "postgres://h/d?user=u&sslrootcert=%2Fa%20b%2Fc%26d.pem&connect_timeout=3",
                "postgres://h/d?user=u&connect_timeout=3",
                vec![("sslrootcert", "/a b/c&d.pem")],
            ),
            // As libpq and the driver, a plus is a plus.
            ("postgres://h/d?sslkey=/a+b", "postgres://h/d", vec![("sslkey", "/a+b")]),
            ("postgres://h/d?%73slmode=require&", "postgres://h/d", vec![("sslmode", "require")]),
            (
                "postgres://u:a?sslmode=x@h/d?sslmode=disable",
                "postgres://u:a?sslmode=x@h/d",
                vec![("sslmode", "disable")],
            ),
        ] {
            let parts = parts(text).unwrap();
            let found: Vec<_> = parts.ours.iter().map(|(key, value)| (*key, value.as_str())).collect();
            assert_eq!((parts.drivers.as_str(), found), (drivers, ours), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_its_value() {
        for text in ["postgres://u:secret@h@i/d", "postgres://h/d?secret", "postgres://h/d?sslkey=secret%ff"] {
            let said = parts(text).err().unwrap();
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
