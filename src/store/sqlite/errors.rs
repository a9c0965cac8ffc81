//! The meanings of SQLite's and the system's errors for the store.

use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::{ErrorCode, Transaction, ffi};
use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};
use tokio::task::JoinError;
use tokio::time::timeout;

use super::access::{self, For};
use super::lockers;
use crate::store::finding::Fault;
use crate::store::{OpenError, StoreError};

/// An error of a statement. Only an error that would come again for the same input is [`StoreError::Refused`]: it
/// makes the engine look for the guilty command. A full disk, a busy file and a failing one are nobody's fault.
pub(super) fn statement(error: rusqlite::Error) -> StoreError {
    let refused = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => return damaged(error),
        // The ledger's parts are not what they were: nothing is wrong with the command.
        Some(_) if is_stopped(&error) => false,
        Some(code) => matches!(
            code,
            ErrorCode::ConstraintViolation
                | ErrorCode::TooBig
                | ErrorCode::TypeMismatch
                | ErrorCode::ParameterOutOfRange
                | ErrorCode::ApiMisuse
                | ErrorCode::Unknown
        ),
        // From rusqlite itself: a value that cannot be bound, a statement that is not one.
        None => true,
    };
    if refused { StoreError::Refused(error.into()) } else { StoreError::Unavailable(error.into()) }
}

/// The file holds no database, or a damaged one. Waiting will not mend it.
fn damaged(error: rusqlite::Error) -> StoreError {
    let key = "the file".to_owned();
    StoreError::Corrupt { table: StoreError::WHOLE_DATABASE, column: "page", key, source: error.into() }
}

/// Whether a COMMIT that failed has written nothing that counts: the transaction is still open, or SQLite has rolled it back
/// before the log's last frame was written, without which none counts. Else a recovery after a crash may apply it.
pub(super) fn wrote_nothing(transaction: &Transaction<'_>, error: &rusqlite::Error) -> bool {
    let is_full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
    !transaction.is_autocommit() || is_full || is_stopped(error)
}

/// Whether the hook that looks at the ledger's parts before each commit has refused one.
fn is_stopped(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_CONSTRAINT_COMMITHOOK)
}

/// The answer of a closed store.
pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

/// A job that did not end. A panic is taken for the fault of the input, as far as anyone can tell; a job that never
/// began is not.
pub(super) fn job(error: JoinError) -> StoreError {
    if error.is_panic() { StoreError::Refused(error.into()) } else { StoreError::Unavailable(error.into()) }
}

/// Runs a function that opens a store on a blocking thread.
pub(super) async fn opening<T: Send + 'static>(
    location: &str,
    open: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    match tokio::task::spawn_blocking(open).await {
        Ok(opened) => opened,
        Err(error) => Err(OpenError::Failed { location: location.to_owned(), source: error.into() }),
    }
}

/// Waits for a look at what stands in a store's place; not for a file system that does not answer, such as a network mount
/// whose server is gone: its thread is left behind.
pub(super) async fn answered(
    path: &Path,
    wait_max: Duration,
    look: impl FnOnce() + Send + 'static,
) -> Result<(), OpenError> {
    if let Ok(_seen) = timeout(wait_max, tokio::task::spawn_blocking(look)).await {
        return Ok(());
    }
    Err(OpenError::Unfit {
        location: path.display().to_string(),
        fault: Fault::NoAnswer,
        what: format!("its file system does not answer: {} s have passed since it was asked", wait_max.as_secs_f32()),
        todo: "look at the mount, and at the server behind it".to_owned(),
    })
}

/// An error of SQLite while the file is opened to write.
pub(super) fn open(path: &Path, error: rusqlite::Error) -> OpenError {
    opened(path, For::Writing, error)
}

/// An error of SQLite while the file is opened to read.
pub(super) fn reading(path: &Path, error: rusqlite::Error) -> OpenError {
    opened(path, For::Reading, error)
}

fn opened(path: &Path, purpose: For, error: rusqlite::Error) -> OpenError {
    let location = path.display().to_string();
    match error.sqlite_error_code() {
        // SQLite does not say why it could not open the file; the system does, when asked once more.
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            let is_open = error.sqlite_error_code() == Some(ErrorCode::CannotOpen);
            match access::refused(path, purpose) {
                Some(refused) => refused,
                None if is_open => OpenError::Failed { location, source: error.into() },
                None => access::forbidden(path, purpose, &error.to_string()),
            }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => match lockers::of(path).first() {
            Some(locker) => OpenError::Held {
                location,
                what: format!("the file is locked by {locker}"),
                todo: format!("have it end its transaction, or end it: kill {}", locker.pid),
            },
            None => OpenError::Unreachable { location, source: error.into() },
        },
        Some(ErrorCode::DiskFull) => full(location),
        Some(ErrorCode::SystemIoFailure) if is_for_room(&error) => no_room(path, error),
        Some(ErrorCode::NotADatabase) => foreign(path, "no SQLite database"),
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Unfit {
            location,
            fault: Fault::Damaged,
            what: format!("the file is damaged: SQLite says: {error}"),
            todo: "put a backup in its place, with no log (`-wal`) beside it".to_owned(),
        },
        Some(_) | None => OpenError::Failed { location, source: error.into() },
    }
}

fn full(location: String) -> OpenError {
    let todo = "make room there, or name a store elsewhere".to_owned();
    OpenError::Unfit { location, fault: Fault::NoSpace, what: "the disk is full".to_owned(), todo }
}

fn limited(location: String) -> OpenError {
    let what = "a file may not become as large as it must (ulimit -f)".to_owned();
    OpenError::Unfit { location, fault: Fault::NoSpace, what, todo: "raise the limit".to_owned() }
}

/// Whether SQLite could not write, or make a file larger. It says that a disk is full only where the log or the file is
/// written, and not where the log's index is made.
fn is_for_room(error: &rusqlite::Error) -> bool {
    let codes = [
        ffi::SQLITE_IOERR_WRITE,
        ffi::SQLITE_IOERR_SHMSIZE,
        ffi::SQLITE_IOERR_SHMMAP,
        ffi::SQLITE_IOERR_FSYNC,
        ffi::SQLITE_IOERR_TRUNCATE,
    ];
    error.sqlite_error().is_some_and(|error| codes.contains(&error.extended_code))
}

/// Why a file could not be written: for want of room, as far as the system tells.
fn no_room(path: &Path, error: rusqlite::Error) -> OpenError {
    let location = path.display().to_string();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_full = statvfs(folder).is_ok_and(|volume| volume.f_bavail.saturating_mul(volume.f_frsize) < ROOM_BYTES_MIN);
    if is_full {
        full(location)
    } else if getrlimit(Resource::Fsize).current.is_some() {
        limited(location)
    } else {
        OpenError::Failed { location, source: error.into() }
    }
}

/// Bytes without which no index of a log can be made.
const ROOM_BYTES_MIN: u64 = 64 * 1024;

/// A file that was just made, and that somebody reads before its log is written into it.
pub(super) fn read_meanwhile(path: &Path) -> OpenError {
    let source = "somebody reads the new file: it is opened when the reader has ended";
    OpenError::Unreachable { location: path.display().to_string(), source: source.into() }
}

/// The refusal of a file that is not Runledger's. It stays as it is.
pub(super) fn foreign(path: &Path, what: &str) -> OpenError {
    another(path, format!("the file is {what}"))
}

/// The refusal of what is no file: opened, a pipe would be waited for, and a device written to.
pub(super) fn no_file(path: &Path, kind: &str) -> OpenError {
    another(path, format!("it is {kind} and no file"))
}

fn another(path: &Path, what: String) -> OpenError {
    let todo = "name another with --store or RUNLEDGER_STORE".to_owned();
    OpenError::Unfit { location: path.display().to_string(), fault: Fault::Foreign, what, todo }
}

/// Whether SQLite found that the file is damaged.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// The refusal of a file that is not sound with the log beside it. Both stay as they are.
pub(super) fn unsound(path: &Path, fault: &str) -> OpenError {
    let fault = fault.split_whitespace().collect::<Vec<_>>().join(" ");
    OpenError::Unfit {
        location: path.display().to_string(),
        fault: Fault::Damaged,
        what: format!(
            "the file and its write-ahead log (`-wal`) are damaged, or do not belong together: SQLite finds {fault}; \
             neither was touched"
        ),
        todo: "move both away, and put a backup in their place".to_owned(),
    }
}

/// An error of the system while the directory is made and locked. It may be of the folder, or of a part beside the file.
pub(super) fn open_system(path: &Path, error: io::Error) -> OpenError {
    let location = path.display().to_string();
    if access::is_of(&error) {
        let refused = access::refused(path, For::Writing);
        refused.unwrap_or_else(|| access::forbidden(path, For::Writing, &error.to_string()))
    } else if error.kind() == io::ErrorKind::StorageFull {
        full(location)
    } else if error.kind() == io::ErrorKind::FileTooLarge {
        limited(location)
    } else {
        OpenError::Failed { location, source: error.into() }
    }
}

/// An error of the system while a file is looked at to be read.
pub(super) fn read_system(path: &Path, error: io::Error) -> OpenError {
    if access::is_of(&error) {
        access::forbidden(path, For::Reading, &error.to_string())
    } else {
        open_system(path, error)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_file_system_that_does_not_answer_is_waited_for_so_long_and_no_longer() {
        let path = Path::new("/hung/ledger.db");
        assert!(answered(path, Duration::from_mins(1), || ()).await.is_ok());
        let (answer, answers) = mpsc::sync_channel::<()>(1);
        let refused = answered(path, Duration::from_millis(50), move || {
            let _never = answers.recv();
        })
        .await
        .unwrap_err();
        assert!(matches!(&refused, OpenError::Unfit { fault: Fault::NoAnswer, .. }), "{refused}");
        assert!(refused.to_string().contains("/hung/ledger.db cannot be opened: its file system does not answer"));
        drop(answer);
    }
}
