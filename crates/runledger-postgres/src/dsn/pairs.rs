//! Connection strings of the form `host=HOST user=USER password='...'`, with the quotes and backslashes of libpq.

use std::iter::Peekable;
use std::str::Chars;

use super::{OURS, Parts, admit};

const UNREADABLE: &str = "the connection string cannot be read: expected postgres://USER:PASSWORD@HOST:PORT/DATABASE, \
     or host=HOST dbname=DATABASE user=USER password=PASSWORD, with quotes around a value that has spaces in it";

pub(super) fn parts(text: &str) -> Result<Parts, String> {
    let (mut drivers, mut ours) = (String::new(), Vec::new());
    for (key, value) in pairs(text).ok_or(UNREADABLE)? {
        admit(&key)?;
        if let Some(name) = OURS.into_iter().find(|name| *name == key) {
            ours.push((name, value));
        } else {
            let value = value.replace('\\', "\\\\").replace('\'', "\\'");
            drivers = drivers + &key + "='" + &value + "' ";
        }
    }
    Ok(Parts { drivers, ours })
}

/// The pairs of a text; none when it cannot be read.
pub(super) fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let mut rest = text.chars().peekable();
    let mut pairs = Vec::new();
    loop {
        skip_spaces(&mut rest);
        if rest.peek().is_none() {
            return Some(pairs);
        }
        let mut key = String::new();
        while let Some(next) = rest.next_if(|next| !next.is_whitespace() && *next != '=') {
            key.push(next);
        }
        skip_spaces(&mut rest);
        rest.next_if_eq(&'=').filter(|_| !key.is_empty())?;
        skip_spaces(&mut rest);
        let quoted = rest.next_if_eq(&'\'').is_some();
        pairs.push((key, value(&mut rest, quoted)?));
    }
}

/// A value up to its end: a quote, or a space. An empty value needs quotes.
fn value(rest: &mut Peekable<Chars<'_>>, quoted: bool) -> Option<String> {
    let mut value = String::new();
    loop {
        match rest.next_if(|next| quoted || !next.is_whitespace()) {
            Some('\\') => value.extend(rest.next()),
            Some('\'') if quoted => return Some(value),
            Some(other) => value.push(other),
            None => return (!quoted && !value.is_empty()).then_some(value),
        }
    }
}

fn skip_spaces(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|next| next.is_whitespace()).is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_tls_are_taken_off_and_the_driver_reads_the_others_as_they_were() {
        let text = r"host = h  user=u password='it\'s a \\ &%@ secret' sslmode=verify-ca sslrootcert='/a b/c\'d.pem'";
        let parts = parts(text).unwrap();
        assert_eq!(parts.ours, [("sslmode", "verify-ca".to_owned()), ("sslrootcert", "/a b/c'd.pem".to_owned())]);
        let config: tokio_postgres::Config = parts.drivers.parse().unwrap();
        assert_eq!(config.get_password(), Some(r"it's a \ &%@ secret".as_bytes()));
        assert_eq!(config.get_user(), Some("u"));
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_its_value() {
        for text in ["password=my secret x", "password='secret", "=secret", "secret", "user= "] {
            let said = parts(text).err().unwrap();
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
