//! A change of an access file: one process at a time reads it and puts another in its place, so that no change is lost
//! and what was taken out does not come back. The file is right afterwards, or stays as it was.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::auth::access_file::{self, FILE_BYTES_MAX};
use crate::private::{self, Rights, Turn};

/// An access file that nobody else changes meanwhile.
pub(super) struct Change {
    path: PathBuf,
    /// The file's text; none while there is no file.
    before: Option<String>,
    _turn: Turn,
}

impl Change {
    /// Waits for the turn, and reads the file.
    pub(super) fn begin(path: &Path) -> Result<Self, String> {
        // What is no file has no turn: nothing is left beside it.
        runledger_files::no_other(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let turn = Turn::at(path).map_err(|error| cannot_write(path, &error))?;
        let before = match runledger_files::text(path, FILE_BYTES_MAX) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        Ok(Self { path: path.to_owned(), before, _turn: turn })
    }

    pub(super) fn before(&self) -> &str {
        self.before.as_deref().unwrap_or_default()
    }

    /// Puts a text in the file's place. Servers never read a half of it, and those that could read the file still can.
    pub(super) fn write(&self, after: &str) -> Result<(), String> {
        access_file::read(after).map_err(|faults| format!("{}: {}", self.path.display(), faults.join("; ")))?;
        let written = private::replace(&self.path, after.as_bytes(), Rights::AsTheyWere);
        written.map_err(|error| cannot_write(&self.path, &error))
    }

    /// Puts the former text back: what the change was for has failed.
    pub(super) fn undo(&self) -> Result<(), String> {
        match &self.before {
            Some(before) => self.write(before),
            None => fs::remove_file(&self.path).map_err(|error| cannot_write(&self.path, &error)),
        }
    }
}

pub(super) fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::entry::Entry;
    use super::*;
    use crate::auth::token::TokenHash;

    fn entry(token: &[u8]) -> String {
        let (namespaces, roles) = (vec!["*".to_owned()], vec!["reader"]);
        let hash = TokenHash::new(token);
        Entry { name: "n", hash, expires_at: None, namespaces, roles, agents: Vec::new() }.to_toml()
    }

    #[test]
    fn a_change_is_whole_and_right_or_leaves_the_file_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.toml");
        let add = |token: &[u8]| {
            let change = Change::begin(&path)?;
            change.write(&format!("{}{}", change.before(), entry(token)))
        };
        add(b"one").unwrap();
        add(b"two").unwrap();
        assert!(add(b"two").unwrap_err().contains("same sha256"));
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(access_file::read(&text).unwrap().tokens().count(), 2);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let change = Change::begin(&path).unwrap();
        change.write(&format!("{text}{}", entry(b"three"))).unwrap();
        change.undo().unwrap();
        drop(change);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
