//! Who may not read or write a ledger's file: whose it is, and what helps.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::store::OpenError;
use crate::store::finding::Fault;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    Reading,
    Writing,
}

/// EACCES, EPERM or EROFS. Root meets only the last: permissions do not bind it.
pub(super) fn is_of(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// The refusal of the file, of a part beside it, or of the folder where such a part is to be made, that the system does not
/// let this user have; none where it does. No file is opened: a descriptor that is closed would take SQLite's locks with it.
pub(super) fn refused(database: &Path, purpose: For) -> Option<OpenError> {
    // The parts are beside what a link leads to.
    let database = fs::canonicalize(database).unwrap_or_else(|_missing| database.to_owned());
    let endings = match purpose {
        For::Reading => &["", "-wal", "-shm"][..],
        For::Writing => &["", ".lock", "-wal", "-shm"],
    };
    endings.iter().find_map(|ending| {
        let mut path = OsString::from(&database);
        path.push(ending);
        let path = PathBuf::from(path);
        let error = io::Error::from(may_have(&path, purpose).err()?);
        is_of(&error).then(|| forbidden(&path, purpose, &error.to_string()))
    })
}

/// Asks the system for a path, or for the place where a writer makes it.
fn may_have(path: &Path, purpose: For) -> rustix::io::Result<()> {
    let may = |path: &Path, access| accessat(CWD, path, access, AtFlags::EACCESS);
    match purpose {
        For::Reading => may(path, Access::READ_OK),
        For::Writing => match (may(path, Access::READ_OK | Access::WRITE_OK), nearest(path)) {
            (Err(Errno::NOENT), Some((folder, _))) => may(&folder, Access::WRITE_OK | Access::EXEC_OK),
            (found, _) => found,
        },
    }
}

/// The refusal of a path that this user may not read or write, for this reason.
pub(super) fn forbidden(path: &Path, purpose: For, why: &str) -> OpenError {
    let location = path.display().to_string();
    let access = match purpose {
        For::Reading => "read",
        For::Writing => "written",
    };
    let Some((at, found)) = nearest(path) else {
        let todo = "name another store with --store or RUNLEDGER_STORE".to_owned();
        return OpenError::Forbidden { location, fault: Fault::NoAccess, access, why: why.to_owned(), todo };
    };
    if accessat(CWD, &at, Access::WRITE_OK, AtFlags::EACCESS) == Err(Errno::ROFS) {
        let todo = "mount its file system to be written, or serve the ledger from another place".to_owned();
        return OpenError::Forbidden { location, fault: Fault::ReadOnly, access, why: why.to_owned(), todo };
    }
    let (owner, group, rights, own) = (found.uid(), found.gid(), found.mode() & 0o777, geteuid().as_raw());
    let (what, group_mode) = if at == path { ("it".to_owned(), 640) } else { (at.display().to_string(), 750) };
    let (owners, letters) = match (purpose, found.is_dir()) {
        (For::Reading, false) => (0o400, "r"),
        (For::Reading, true) => (0o100, "x"),
        (For::Writing, false) => (0o600, "rw"),
        (For::Writing, true) => (0o300, "rwx"),
    };
    let place = at.display();
    let todo = match purpose {
        _ if owner == own && rights & owners != owners => {
            format!("give yourself the right (chmod u+{letters} {place})")
        }
        For::Reading => {
            format!("run this as its owner, or as one of its group and let that read it (chmod {group_mode} {place})")
        }
        For::Writing => format!(
            "run this as its owner, give it to this user (chown {own} {place}), or name another store with --store or \
             RUNLEDGER_STORE"
        ),
    };
    let why = format!("{why}: {what} is of user {owner} and group {group} (mode {rights:03o}), and this is user {own}");
    OpenError::Forbidden { location, fault: Fault::NoAccess, access, why, todo }
}

/// What keeps a path from this user: itself, or the nearest folder above it that can be looked at.
fn nearest(path: &Path) -> Option<(PathBuf, Metadata)> {
    path.ancestors().find_map(|path| fs::metadata(path).ok().map(|found| (path.to_owned(), found)))
}
