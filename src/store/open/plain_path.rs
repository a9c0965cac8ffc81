//! Whether a text that names a SQLite file is a path and nothing else. What else stands in it would be lost: a shell's `~`, a
//! URI's parameters, the ending of a log. It would become a part of a file's name, and the ledger another than the one that
//! is meant.

use std::ffi::OsStr;
use std::path::Path;

use crate::store::postgres::dsn;

/// The endings of the files that stand beside a ledger and belong to it.
const BESIDE: [&str; 4] = ["-wal", "-shm", "-journal", ".lock"];

/// Refuses what is no plain path, with what to write instead. Nothing of the text is in it, which may hold a password.
pub(super) fn check(path: &str) -> Result<(), String> {
    let refused = if is_secret(path) {
        "a connection string or an address stands where sqlite:PATH has its path: write \
         postgres://USER:PASSWORD@HOST:PORT/DATABASE alone, or another path"
    } else if has_scheme(path) || (path.starts_with("//") && !path.starts_with("///")) {
        "what follows sqlite: is a path and no address: expected sqlite:PATH, such as \
         sqlite:/var/lib/runledger/ledger.db; a name with a colon begins with ./"
    } else if path.trim() != path || path.contains(char::is_control) {
        "what follows sqlite: begins or ends with a space, or has a control character in it: write the path alone, without \
         them"
    } else if path.starts_with(['"', '\'']) {
        "what follows sqlite: begins with a quotation mark, which is no part of a path here: write sqlite:PATH without it"
    } else if path.starts_with('~') {
        "no shell reads what follows sqlite:, so ~ is not the home folder there: write the whole path, such as \
         sqlite:/home/you/ledger.db; a name that begins with ~ begins with ./"
    } else if let Some(sentence) = odd(path).and_then(|_| odd(missing(path))) {
        sentence
    } else if path == "memory" && missing(path) == path {
        "sqlite:memory would be a file of that name: write memory alone for a ledger in memory, or sqlite:./memory"
    } else if path.ends_with('/') || Path::new(path).file_name().is_none() {
        "what follows sqlite: names a folder: name the file in it, such as sqlite:/var/lib/runledger/ledger.db"
    } else if BESIDE.iter().any(|ending| path.ends_with(ending)) {
        "what follows sqlite: ends as the files beside a ledger do, which hold its log (-wal, -journal), the index of that \
         (-shm) and its lock (.lock): name the ledger's own file, without that ending"
    } else {
        return Ok(());
    };
    Err(refused.to_owned())
}

/// The refusal of characters that mean something else wherever paths are not plain.
fn odd(text: &str) -> Option<&'static str> {
    if is_for_a_shell(text) {
        Some(
            "no shell reads what follows sqlite:, so the variable or command in it has no value there: write the path itself, \
             such as sqlite:/var/lib/runledger/ledger.db",
        )
    } else if text.contains("{{") || text.contains(['<', '>']) {
        Some(
            "what follows sqlite: has a part that was to be filled in (<...>, {{...}}): write the path itself, such as \
             sqlite:/var/lib/runledger/ledger.db",
        )
    } else if text.contains(['"', '\'']) {
        Some("what follows sqlite: has a quotation mark, which is no part of a path here: write sqlite:PATH without it")
    } else if text.contains('?') || has_parameter(text) {
        Some(
            "what follows sqlite: takes no parameters after a question mark, a semicolon or an ampersand: write the path \
             alone, such as sqlite:/var/lib/runledger/ledger.db",
        )
    } else if has_a_flag(text) {
        Some(
            "what follows sqlite: has more words behind the path: write the path alone, and flags as words of their own",
        )
    } else if text.contains('\\') {
        Some("what follows sqlite: has a backslash, which parts no folders here: write / between them")
    } else if has_escape(text) {
        Some(
            "what follows sqlite: is a path and no URI, so % and two digits stand for no other character there: write the \
             character itself, such as a space",
        )
    } else {
        None
    }
}

/// The part of a path that is not there: what is there under that very name is meant. Asked for odd paths alone, since a file
/// system may not answer.
fn missing(path: &str) -> &str {
    let named = Path::new(path);
    match (named.exists(), named.parent(), named.file_name().and_then(OsStr::to_str)) {
        (true, _, _) => "",
        (false, Some(folder), Some(name)) if folder.is_dir() => name,
        (false, _, _) => path,
    }
}

/// Whether a text that should be a path may have a password in it: it is an address, pairs of a connection string, or
/// has something like `USER:PASSWORD@`. As a path it would become a file's name, and stand in errors.
#[must_use]
pub fn is_secret(text: &str) -> bool {
    let text = text.trim();
    let has_user = text.find(':').zip(text.rfind('@')).is_some_and(|(colon, at)| colon < at);
    has_user
        || text.contains("://")
        || dsn::is_connection_string(text)
        || text.to_ascii_lowercase().contains("password=")
}

/// Whether a text begins with a scheme (`file:`, and `C:` of other systems), or with a special name of SQLite's
/// (`:memory:`).
fn has_scheme(path: &str) -> bool {
    path.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.contains(|next: char| !next.is_ascii_alphanumeric() && !"+-.".contains(next))
    })
}

/// Whether a text has a character as URIs escape it.
fn has_escape(path: &str) -> bool {
    path.as_bytes().windows(3).any(|three| three[0] == b'%' && three[1..].iter().all(u8::is_ascii_hexdigit))
}

/// Whether a text has what a shell would put something else in the place of.
fn is_for_a_shell(path: &str) -> bool {
    let names = |next: char| next.is_ascii_alphabetic() || "_{(".contains(next);
    path.contains('`') || path.split('$').skip(1).any(|behind| behind.starts_with(names))
}

/// Whether a text has a flag behind a blank.
fn has_a_flag(path: &str) -> bool {
    path.split(" -").skip(1).any(|behind| behind.starts_with(|next: char| next == '-' || next.is_ascii_alphabetic()))
}

/// Whether a text has a parameter as other programs take it: `;NAME=` or `&NAME=`.
fn has_parameter(path: &str) -> bool {
    path.split([';', '&']).skip(1).any(|behind| {
        let name = behind.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn what_others_would_read_in_a_path_is_refused_by_its_kind() {
        for (path, said) in [
            ("ledger-$HOST.db", "variable or command"),
            ("${HOST}.db", "variable or command"),
            ("$(hostname).db", "variable or command"),
            ("`hostname`.db", "variable or command"),
            ("{{ .Values.x }}/l.db", "filled in"),
            ("<file>.db", "filled in"),
            ("x.db?mode=ro", "parameters"),
            ("x.db;mode=ro", "parameters"),
            ("x.db&mode=ro", "parameters"),
            ("x.db\"", "quotation mark"),
            ("x'.db", "quotation mark"),
            ("x.db --shards 4", "more words"),
            ("dir\\x.db", "backslash"),
            ("memory", "memory alone"),
        ] {
            let refused = check(path).unwrap_err();
            assert!(refused.contains(said), "{path}: {refused}");
        }
        for path in ["./memory", "a$.db", "a$1.db", "a&b.db", "a;b.db", "a - b.db", "a b-c.db", "a@b.db", "a=b.db"] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn odd_characters_are_taken_where_a_file_or_a_folder_of_that_very_name_is_there() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name).display().to_string();
        for name in ["a%2Fb/ledger.db", "$x/ledger.db", "what?/ledger.db", "ledger.db?mode=ro", "a%20b.db"] {
            assert!(check(&at(name)).is_err(), "{name}: nothing of that name is there");
            let folder = std::path::PathBuf::from(at(name)).parent().unwrap().to_owned();
            std::fs::create_dir_all(folder).unwrap();
            let is_of_the_folder = name.contains('/');
            assert_eq!(check(&at(name)).is_ok(), is_of_the_folder, "{name}: the folder is there");
            std::fs::write(at(name), "").unwrap();
            assert_eq!(check(&at(name)), Ok(()), "{name}: the file is there");
        }
    }
}
