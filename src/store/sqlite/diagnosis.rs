//! What the system tells of a file's faults, and what a short look into it does.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{StatVfs, StatVfsMountFlags, statvfs};
use rustix::process::geteuid;

use super::access::{self, For};
use super::lock::{self, LOCK_BYTES_MAX};
use super::lockers::{self, Locker};
use super::{errors, fitness, inspect, whole};
use crate::store::OpenError;
use crate::store::finding::{Diagnosis, Fault, Finding};
use crate::store::inspect::SPACE_BYTES_MIN;
use crate::store::migrations::SQLITE;

/// Between two looks at who has locked the file: a commit has it locked for a moment.
const LOOKS_APART: Duration = Duration::from_millis(400);

/// What is seen of a file. One that is not there, or is none, is told of by whoever opens it.
pub(super) fn diagnose(path: &Path) -> Result<Diagnosis, OpenError> {
    let Ok(path) = fs::canonicalize(path) else { return Ok(Diagnosis { findings: Vec::new(), is_open: true }) };
    let mut findings = Vec::new();
    findings.extend(room(&path));
    findings.extend(locked(&path));
    if fs::metadata(&path).is_ok_and(|file| file.is_file())
        && let Ok(connection) = inspect::alone(&path)
    {
        let failed = |error| errors::reading(&path, error);
        findings.extend(fitness::of_file(&connection).map_err(failed)?);
        let at = "-- diagnosis.at\nselect max(number) from ledger_migrations";
        let at = connection.query_row(at, [], |row| row.get::<_, Option<u32>>(0)).unwrap_or_default();
        if at.is_some() && at == SQLITE.last().map(|step| step.number) {
            findings.extend(fitness::of_schema(&connection).map_err(failed)?);
        }
    }
    findings.extend(unservable(&path));
    for finding in &mut findings {
        finding.begin_with_capitals();
    }
    Ok(Diagnosis { findings, is_open: true })
}

/// What keeps a server of this user from the file, though it can be read: another name, or a right that is missing. Who is
/// not the file's owner may be meant to read alone.
fn unservable(path: &Path) -> impl Iterator<Item = Finding> {
    let is_own = fs::metadata(path).is_ok_and(|file| file.uid() == geteuid().as_raw());
    let refused = if is_own { access::refused(path, For::Writing) } else { None };
    let read_only = |error: &OpenError| matches!(error, OpenError::Forbidden { fault: Fault::ReadOnly, .. });
    // The file system was told of before.
    let errors = [whole::have_one_name(path).err(), refused.filter(|error| !read_only(error))];
    errors.into_iter().flatten().filter_map(|error| Finding::of(&error))
}

/// The bytes that this user may still write to the file system, and those that it has.
pub(super) fn space(path: &Path) -> Option<(u64, u64)> {
    let volume = statvfs(path).ok()?;
    Some((volume.f_bavail.saturating_mul(volume.f_frsize), volume.f_blocks.saturating_mul(volume.f_frsize)))
}

fn room(path: &Path) -> Option<Finding> {
    let StatVfs { f_bavail, f_frsize, f_files, f_favail, f_flag, .. } = statvfs(path).ok()?;
    let available = f_bavail.saturating_mul(f_frsize);
    let found = |name, what: String, todo: &str| Some(Finding { name, what, todo: todo.to_owned() });
    if f_flag.contains(StatVfsMountFlags::RDONLY) {
        let todo = "mount it to be written, or serve the ledger from another place";
        found(Fault::ReadOnly, "the file system of the ledger is mounted to be read only".to_owned(), todo)
    } else if available < SPACE_BYTES_MIN {
        let what = format!(
            "{} KiB are left on the file system of the ledger, and its write-ahead log may need {} MiB: commits fail \
             when it is full",
            available / 1024,
            SPACE_BYTES_MIN / 1024 / 1024
        );
        found(Fault::NoSpace, what, "make room there, or move the ledger while no server runs")
    } else if f_files > 0 && f_favail == 0 {
        let what = "no more files can be made on the file system of the ledger".to_owned();
        found(Fault::NoSpace, what, "remove files there: a server that starts makes three beside the ledger")
    } else {
        None
    }
}

/// A program beside the server that keeps the file locked.
fn locked(path: &Path) -> Option<Finding> {
    let server = server(path);
    let theirs = |path: &Path| {
        let lockers = lockers::of(path).into_iter();
        lockers.filter(|locker| Some(locker.pid) != server).collect::<Vec<Locker>>()
    };
    let first = theirs(path);
    if first.is_empty() {
        return None;
    }
    sleep(LOOKS_APART);
    let second = theirs(path);
    let stays = first.into_iter().find(|locker| second.contains(locker))?;
    Some(Finding {
        name: Fault::TableHeld,
        what: format!("the file is locked by {stays}: nothing commits meanwhile"),
        todo: format!("have it end its transaction, or end it: kill {}", stays.pid),
    })
}

/// The process of the server that has, or had, the file.
fn server(path: &Path) -> Option<u32> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let text = runledger_files::text(beside.as_ref(), LOCK_BYTES_MAX).ok()?;
    lock::told(&text)?.0.parse().ok()
}
