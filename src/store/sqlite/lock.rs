//! The lock that keeps a database file to one server: a second writer would not see the first one's commits coming,
//! and its watchers would miss them.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::errors;
use crate::store::OpenError;

/// Holds the lock until it is dropped. The system frees it when the process ends, however it ends; the file stays,
/// since another process may have it open already.
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Makes the directory if it is missing and takes the lock beside the database, or says who has it.
    pub(super) fn take(database: &Path) -> Result<Self, OpenError> {
        let failed = |error| errors::open_system(database, error);
        if let Some(directory) = database.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        let path = beside(database).map_err(failed)?;
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked { location: database.display().to_string(), pid: pid_in(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// `<database>.lock`, with links resolved: two names of one database meet at one lock. The file is made for that, empty,
/// if it is missing: a link to nothing has no other name yet.
fn beside(database: &Path) -> io::Result<PathBuf> {
    let mut path = match fs::canonicalize(database) {
        Ok(path) => OsString::from(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::options().write(true).create(true).truncate(false).open(database)?;
            OsString::from(fs::canonicalize(database)?)
        }
        Err(error) => return Err(error),
    };
    path.push(".lock");
    Ok(PathBuf::from(path))
}

fn pid_in(file: &mut File) -> Option<String> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let pid = text.trim();
    (!pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit())).then(|| pid.to_owned())
}
