//! One place makes files, so that each is its owner's alone: no other code makes a file or a folder, or opens a file to
//! write it.

use super::source::bare;
use super::{files_of, packages};

/// The place, and one more with its reason.
const PLACES: [(&str, &str); 3] = [
    ("src/private.rs", "the place"),
    ("crates/runledger-files/src/lib.rs", "opens files to read them, with flags"),
    ("crates/runledger-bench/src/direct/pgbench.rs", "another package, whose one script is made with 0600"),
];

/// What makes a file or a folder, or opens a file so that it can be written.
const MAKERS: [&str; 23] = [
    "File::create",
    "File::options",
    "OpenOptions::new",
    "OpenOptionsExt",
    "fs::write",
    "fs::copy",
    "fs::rename",
    "fs::hard_link",
    "fs::soft_link",
    "create_dir",
    "DirBuilder",
    "set_permissions",
    "symlink(",
    "tempfile::Builder",
    "tempdir(",
    "TempDir::new",
    "NamedTempFile",
    "mkfifo",
    "mknod",
    "openat",
    "rustix::fs::open",
    "UnixListener::bind",
    "mkdir",
];

#[test]
fn one_place_makes_files() {
    let places = places_of(&MAKERS);
    let others = places.iter().filter(|(name, _)| !PLACES.iter().any(|(place, _)| place == name)).collect::<Vec<_>>();
    assert!(others.is_empty(), "make it with `private`: {others:#?}");
    for (place, _) in PLACES {
        assert!(places.iter().any(|(name, _)| name == place), "{place} makes nothing any more");
    }
}

/// Who replaces a file that is there, and what keeps it from replacing somebody else's.
const REPLACERS: [(&str, &str); 7] = [
    ("src/private.rs", "the place"),
    ("src/cli/token.rs", "may_replace: a file that holds a token"),
    ("src/cli/token/change.rs", "the access file, which was read and is right"),
    ("src/cli/context/file.rs", "the file of contexts, which was read and is right"),
    ("src/cli/export/cursor.rs", "may_replace: a cursor of the same ledger and namespace"),
    ("src/cli/export/selection.rs", "a note of its own name beside the output, which was read"),
    ("src/cli/export/sink.rs", "Export::may_replace: an export of the same ledger and selection"),
];

#[test]
fn whoever_replaces_a_file_knows_what_it_holds() {
    let ways = ["private::replace", "private::written_beside", "PartFile::beside"];
    let places: Vec<_> = places_of(&ways).into_iter().map(|(place, _)| place).collect();
    for place in &places {
        assert!(REPLACERS.iter().any(|(known, _)| known == place), "{place}: what may it replace?");
    }
    for (place, _) in REPLACERS {
        assert!(places.iter().any(|found| found == place), "{place} replaces nothing any more");
    }
}

#[test]
fn a_maker_is_seen_however_it_is_written() {
    for (text, found) in [
        ("let file = File::create(path)?;", "File::create"),
        ("std::fs::OpenOptions::new()\n    .append(true)", "OpenOptions::new"),
        ("tokio::fs::write(path, text).await", "fs::write"),
        ("fs::create_dir_all(path)?;", "create_dir"),
    ] {
        assert_eq!(named(text, &MAKERS), [found], "{text}");
    }
    for text in [
        "// File::create(path)\nconst A: &str = \"fs::write\";",
        "let file = File::open(path)?;",
        "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() { std::fs::write(path, text).unwrap(); }\n}\n",
    ] {
        assert_eq!(named(text, &MAKERS), [""; 0], "{text}");
    }
}

/// The files that name one of the words outside of their tests, and which.
pub(super) fn places_of(words: &[&'static str]) -> Vec<(String, Vec<&'static str>)> {
    let mut places = Vec::new();
    for folder in packages() {
        for (path, text) in files_of(&folder) {
            let of_tests = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
            let found = named(&text, words);
            if !of_tests && !found.is_empty() {
                places.push((format!("{folder}/{}", path.display()), found));
            }
        }
    }
    places
}

/// The words that a file names outside of its tests.
fn named(text: &str, words: &[&'static str]) -> Vec<&'static str> {
    let of_tests = text.match_indices("\n#[cfg(test)]\n").map(|(at, found)| at + found.len());
    let mut of_tests =
        of_tests.filter(|at| text[*at..].lines().next().is_some_and(|line| line.ends_with("mod tests {")));
    let code = bare(&text[..of_tests.next().unwrap_or(text.len())]);
    words.iter().copied().filter(|word| code.contains(word)).collect()
}
