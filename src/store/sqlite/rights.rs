//! Who may read the files of a ledger: its owner, and a group that was given that. Releases until 0.7.0 left it to the
//! umask, so that most ledgers are readable for everybody on their machine, with the key in them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::private;

/// What stands beside a database, after its name. SQLite gives its own files the rights of the database when it makes
/// them, and leaves those alone that are there.
const ENDINGS: [&str; 4] = ["", "-wal", "-shm", ".lock"];

/// Takes the rights of others from a ledger's files. A ledger of somebody else's is served all the same: who may write it
/// was meant to serve it.
pub(super) fn close(database: &Path) {
    let database = fs::canonicalize(database).unwrap_or_else(|_gone| database.to_owned());
    let mut closed = Vec::new();
    for ending in ENDINGS {
        let mut path = OsString::from(&database);
        path.push(ending);
        let path = PathBuf::from(path);
        match private::close_to_others(&path) {
            Ok(true) => closed.push(path.display().to_string()),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(
                file = %path.display(), %error,
                "everybody on this machine may read a file of the ledger, and this process cannot change that: chmod 600"
            ),
        }
    }
    if !closed.is_empty() {
        let files = closed.join(", ");
        tracing::info!(files, "everybody on this machine could read the ledger: from now on its owner alone");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn all_files_of_a_ledger_are_closed_to_others_and_left_to_a_group() {
        let folder = tempfile::tempdir().unwrap();
        let path = |ending: &str| folder.path().join(format!("ledger.db{ending}"));
        for (before, after) in [(0o644, 0o600), (0o640, 0o640)] {
            for ending in ENDINGS {
                fs::write(path(ending), "").unwrap();
                fs::set_permissions(path(ending), fs::Permissions::from_mode(before)).unwrap();
            }
            // A link to the database leads to its files.
            let link = folder.path().join(format!("link-{before}"));
            std::os::unix::fs::symlink(path(""), &link).unwrap();
            close(&link);
            for ending in ENDINGS {
                let mode = fs::metadata(path(ending)).unwrap().permissions().mode() & 0o777;
                assert_eq!(mode, after, "{ending:?} of {before:o}");
            }
        }
    }
}
