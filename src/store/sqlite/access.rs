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

/// The refusal of the file, or of a part beside it, that the system does not let this user have; none where it does. No
/// file is opened: a descriptor that is closed would take SQLite's locks with it.
pub(super) fn refused(database: &Path, purpose: For) -> Option<OpenError> {
    let access = match purpose {
        For::Reading => Access::READ_OK,
        For::Writing => Access::READ_OK | Access::WRITE_OK,
    };
    ["", "-wal", "-shm"].into_iter().find_map(|ending| {
        let mut path = OsString::from(database);
        path.push(ending);
        let error = io::Error::from(accessat(CWD, &path, access, AtFlags::EACCESS).err()?);
        is_of(&error).then(|| forbidden(Path::new(&path), purpose, &error.to_string()))
    })
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
    let (what, mode) = if at == path { ("it".to_owned(), 640) } else { (at.display().to_string(), 750) };
    let todo = match purpose {
        For::Reading => {
            format!(
                "run this as its owner, or as one of its group and let that read it (chmod {mode} {})",
                at.display()
            )
        }
        For::Writing => "run this as its owner, or name another store with --store or RUNLEDGER_STORE".to_owned(),
    };
    let (owner, group, rights, own) = (found.uid(), found.gid(), found.mode() & 0o777, geteuid().as_raw());
    let why = format!("{why}: {what} is of user {owner} and group {group} (mode {rights:03o}), and this is user {own}");
    OpenError::Forbidden { location, fault: Fault::NoAccess, access, why, todo }
}

/// What keeps a path from this user: itself, or the nearest folder above it that can be looked at.
fn nearest(path: &Path) -> Option<(PathBuf, Metadata)> {
    path.ancestors().find_map(|path| fs::metadata(path).ok().map(|found| (path.to_owned(), found)))
}
