//! Whether the parts of a ledger are all there and belong together: looked at before anything is opened, made or locked.
//!
//! A part that is missing has acknowledged calls in it, or would become a new ledger beside them; a part of another file
//! would be mixed with this one. Nothing here writes, and no pipe or device is waited for.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::{self, File, FileType};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use rustix::io::Errno;

use super::log::{HEADER_BYTES, MAGIC, Mismatch, beside, has_generation, is_begun, mismatch, page_bytes_of};
use super::{errors, lock, open};
use crate::store::OpenError;
use crate::store::finding::Fault;

/// The beginning of a rollback journal.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// The place in a file's header that says by what it is written, and the value for a log.
const WRITTEN_BY: usize = 18;
const BY_A_LOG: u8 = 2;

/// Refuses what cannot be a ledger, and parts of one that do not belong together. True where the log may have something
/// that the file has not.
pub(super) fn look(database: &Path) -> Result<bool, OpenError> {
    let found = fs::metadata(database);
    if let Ok(found) = &found
        && let Some(kind) = no_file(found.file_type())
    {
        return Err(errors::no_file(database, kind));
    }
    companions(database)?;
    let log = fs::metadata(beside(database)).ok();
    if found.as_ref().is_ok_and(|file| file.nlink() > 1) {
        // The log may be beside its other name: the second name is reported later.
        return Ok(log.is_some_and(|log| log.len() > 0));
    }
    let mut header = Vec::new();
    // A file that cannot be read is reported when it is opened.
    let read = File::open(database).and_then(|file| file.take(HEADER_BYTES as u64).read_to_end(&mut header));
    if !header.is_empty() && !header.starts_with(MAGIC) {
        return Err(errors::foreign(database, "no SQLite database"));
    }
    let is_missing = read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) || matches!(read, Ok(0));
    if is_missing && log.is_some() {
        let todo = "put the file back, or remove the log (`-wal`) to begin a new ledger";
        return incomplete(database, "the file is missing, and its write-ahead log is still there", todo);
    }
    let Some(header) = header.first_chunk::<HEADER_BYTES>() else {
        return if !header.is_empty() {
            Err(mismatched(database, Mismatch::Cut))
        } else if found.is_ok() && !mark(database).is_empty() {
            let todo = "put a backup in its place, or remove it to begin a new ledger";
            incomplete(database, "the file is empty, and a ledger was served from it: it was cut", todo)
        } else {
            Ok(false)
        };
    };
    let bytes = found.as_ref().map_or(0, fs::Metadata::len);
    let is_one_page = header[WRITTEN_BY] == BY_A_LOG && bytes <= u64::from(page_bytes_of(header));
    // Where this release has begun the file, the mark says that nothing was in a log yet.
    if is_one_page && log.is_none() && !is_begun(header) {
        let todo = "put the log (`-wal`) back beside it, or remove the file to begin a new ledger";
        let what = "the file has no table, and its write-ahead log is missing, which has what was written";
        return incomplete(database, what, todo);
    }
    if header[WRITTEN_BY] == BY_A_LOG && !is_one_page && has_journal(database) {
        let what = "a rollback journal (`-journal`) stands beside it, and it is written by a log: the journal is of \
                    another file, and would be written into this one";
        return incomplete(database, what, MOVE_IT);
    }
    // What cannot be read is reported by SQLite.
    match mismatch(database, header).unwrap_or_default() {
        Some(what) => Err(mismatched(database, what)),
        None if has_generation(header) && mark(database) == lock::WAS_CUT => {
            let what = "its lock (`.lock`) says that the file or its log was cut while it was served: calls that were acknowledged \
                        may be missing from it";
            let todo = "put a backup in its place, and remove the lock; to go on with what is left, tell SQLite so, once no other \
                        program has it open: sqlite3 FILE 'pragma application_id = 0'";
            incomplete(database, what, todo)
        }
        None => Ok(log.is_some_and(|log| log.len() > 0)),
    }
}

/// Asks the file system once for all that the other looks ask for: what is there, the room beside it, and its beginning.
pub(super) fn touch(database: &Path) {
    let is_file = fs::metadata(database).is_ok_and(|found| found.is_file());
    let _resolved = fs::canonicalize(database);
    let _room = statvfs(database);
    if is_file {
        let _read = File::open(database).and_then(|mut file| file.read(&mut [0]));
    }
}

/// What the last server has noted of the ledger here, in its lock; nothing where it found and made none.
fn mark(database: &Path) -> &'static str {
    let mut path = OsString::from(fs::canonicalize(database).unwrap_or_else(|_missing| database.to_owned()));
    path.push(".lock");
    let text = runledger_files::text(path.as_ref(), lock::LOCK_BYTES_MAX).unwrap_or_default();
    lock::told(&text).map_or("", |(_, mark)| mark)
}

const MOVE_IT: &str = "move it away";

fn mismatched(database: &Path, found: Mismatch) -> OpenError {
    let fault = if found == Mismatch::Damaged { Fault::Damaged } else { Fault::Parts };
    let (what, todo) = match found {
        Mismatch::Stranger => (
            "the write-ahead log beside it (`-wal`) was begun on another file, or on another state of this one",
            "to go on with the file as it is, such as a backup that was put back, move the log away; else put back the \
             file that the log belongs to: neither was touched",
        ),
        Mismatch::NoLog => ("what stands in the place of its write-ahead log (`-wal`) is no log", MOVE_IT),
        Mismatch::Cut => ("the file ends before its last page: it was cut, or a copy of it", "put a whole one there"),
        Mismatch::Gone => (
            "its write-ahead log (`-wal`) is missing or empty, which has what was committed last: the server was killed, or \
             the file was copied beside it",
            "put the log back beside it, or a backup in its place; to go on without what was in the log, tell SQLite so: \
             sqlite3 FILE 'pragma application_id = 0'",
        ),
        Mismatch::Damaged => (
            "its write-ahead log (`-wal`) is damaged, and has commits behind the damage",
            "put a whole log back beside it, or a backup in the place of both; to go on without what is behind the damage, \
             tell SQLite so, once no other program has it open: sqlite3 FILE 'pragma application_id = 0'",
        ),
    };
    OpenError::Incomplete { location: database.display().to_string(), fault, what: what.into(), todo }
}

/// What stands beside a file, and belongs to it.
const COMPANIONS: [(&str, &str); 4] = [
    ("-wal", "its write-ahead log (`-wal`)"),
    ("-shm", "the index of its log (`-shm`)"),
    ("-journal", "its rollback journal (`-journal`)"),
    (".lock", "its lock (`.lock`)"),
];

/// Refuses what stands in the place of a part and is no file of its own: a pipe would be waited for, and through a link,
/// another file would be written.
fn companions(database: &Path) -> Result<(), OpenError> {
    let database_file = fs::canonicalize(database).unwrap_or_else(|_missing| database.to_owned());
    for (ending, name) in COMPANIONS {
        let mut path = OsString::from(&database_file);
        path.push(ending);
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        if let Some(kind) = no_file(found.file_type()) {
            let what = format!("what stands in the place of {name} is {kind} and no file");
            return incomplete(database, what, MOVE_IT);
        }
        if ending == ".lock" && found.nlink() > 1 {
            return Err(no_lock(database, "is another file as well, by a hard link"));
        }
    }
    Ok(())
}

/// Refuses a file, or a part beside it, that has another name, for whoever writes: through it, another file would be written,
/// or what is written would be another's.
pub(super) fn have_one_name(database: &Path) -> Result<(), OpenError> {
    if let Some(named) = fs::metadata(database).ok().filter(|named| named.is_file() && named.nlink() > 1) {
        return Err(OpenError::SeveralNames { location: database.display().to_string(), names: named.nlink() });
    }
    let database_file = fs::canonicalize(database).unwrap_or_else(|_missing| database.to_owned());
    for (ending, name) in COMPANIONS {
        let mut path = OsString::from(&database_file);
        path.push(ending);
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() && found.nlink() > 1) {
            let what = format!("{name} is another file as well, by a hard link");
            return incomplete(database, what, "remove the other name (`find -samefile` finds it), or move it away");
        }
    }
    Ok(())
}

fn incomplete<T>(database: &Path, what: impl Into<Cow<'static, str>>, todo: &'static str) -> Result<T, OpenError> {
    Err(OpenError::Incomplete {
        location: database.display().to_string(),
        fault: Fault::Parts,
        what: what.into(),
        todo,
    })
}

/// The refusal of a file in the place of the lock that holds another's content, or is another file as well.
pub(super) fn no_lock(database: &Path, why: &str) -> OpenError {
    let what = format!("what stands in the place of its lock (`.lock`) {why}");
    OpenError::Incomplete {
        location: database.display().to_string(),
        fault: Fault::Parts,
        what: what.into(),
        todo: MOVE_IT,
    }
}

fn no_file(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a folder")
    } else if kind.is_fifo() {
        Some("a named pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else if kind.is_char_device() || kind.is_block_device() {
        Some("a device")
    } else {
        Some("a symbolic link")
    }
}

fn has_journal(database: &Path) -> bool {
    let mut journal = OsString::from(fs::canonicalize(database).unwrap_or_else(|_missing| database.to_owned()));
    journal.push("-journal");
    // A pipe would be waited for.
    let is_file = fs::metadata(&journal).is_ok_and(|journal| journal.is_file());
    let mut begin = [0; JOURNAL_MAGIC.len()];
    is_file
        && File::open(journal).and_then(|mut journal| journal.read_exact(&mut begin)).is_ok()
        && begin == JOURNAL_MAGIC
}

/// Refuses a file that this process may not write, and a database of another program. A file that is not there may be
/// made.
pub(super) fn is_ours(database: &Path) -> Result<(), OpenError> {
    match accessat(CWD, database, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(errors::open_system(database, error.into())),
    }
    // Alone, without a lock or a log: a file whose tables are all in the log has none here, and one that a server writes
    // may not be readable. Both are looked at again when the file is opened.
    let tables = open::reading(database, true).and_then(|connection| {
        let tables = "-- open.is_ours\nselect count(*), coalesce(sum(name = 'ledger'), 0) from sqlite_schema where type = 'table'";
        connection.query_row(tables, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
    });
    if matches!(tables, Ok((1.., 0))) {
        Err(errors::foreign(database, "a database of another program"))
    } else {
        Ok(())
    }
}

/// Asks SQLite itself whether a file with its log is sound, after an end that was none: before the log is written into
/// the file and removed. Else both stay as they are.
pub(super) fn ask(connection: &rusqlite::Connection, database: &Path) -> Result<(), OpenError> {
    let failed = |error| errors::open(database, error);
    open::keep_log(connection, true).map_err(failed)?;
    let check = "-- open.quick_check\npragma quick_check(1)";
    match connection.query_row(check, [], |row| row.get::<_, String>(0)) {
        Ok(sound) if sound == "ok" => open::keep_log(connection, false).map_err(failed),
        Ok(fault) => Err(errors::unsound(database, &fault)),
        Err(error) if errors::is_damage(&error) => Err(errors::unsound(database, &error.to_string())),
        Err(error) => Err(failed(error)),
    }
}
