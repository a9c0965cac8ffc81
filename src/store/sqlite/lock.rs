//! The locks that keep a database file to one server: a second writer would not see the first one's commits coming,
//! and its watchers would miss them.
//!
//! One lock is a file beside the database, found by the database's name. The file itself may have other names: a hard
//! link is refused, because SQLite's write-ahead log is found by name as well, and two servers with two logs
//! overwrite each other's pages. A file with one name and two paths, such as one that is mounted twice, is protected
//! by a lock on the file itself.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::identity::Inode;
use super::log::{self, HEADER_BYTES};
use super::{errors, rights, whole};
use crate::private;
use crate::store::OpenError;

/// Holds the locks until it is dropped. The system frees them when the process ends, however it ends; the file beside
/// the database stays, since another process may have it open already.
pub(super) struct FileLock {
    beside: File,
    /// The database. The file may be closed only after SQLite has closed its own descriptors of it: with any descriptor
    /// of a file that a process closes, the system drops all POSIX locks of this process on it, and so SQLite's.
    database: File,
    has_log: bool,
}

impl FileLock {
    /// Makes the directory and the file if they are missing and takes both locks, or tells which process has them.
    pub(super) fn take(database: &Path) -> Result<Self, OpenError> {
        let failed = |error| errors::open_system(database, error);
        let locked = |pid| OpenError::Locked { location: database.display().to_string(), pid };
        // Before anything is made beside it.
        whole::look(database)?;
        whole::is_ours(database)?;
        if let Some(directory) = database.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            private::folders(directory).map_err(failed)?;
        }
        let path = beside(database).map_err(failed)?;
        let mut beside = private::open_own(&path).map_err(failed)?;
        let (holder, before) = holder_in(&mut beside, database)?;
        if !is_free(&beside).map_err(failed)? {
            return Err(locked(holder));
        }
        let is_empty = fs::metadata(database).is_ok_and(|file| file.len() == 0);
        let mark = if is_empty { "" } else { before };
        write(&beside, mark).map_err(failed)?;
        // Before the file is opened: this process may have it open under its other name, and closing it would drop
        // its POSIX locks.
        whole::have_one_name(database)?;
        let file = private::open_existing(database).map_err(failed)?;
        if meets_no_posix_lock(&file) && !is_free(&file).map_err(failed)? {
            // The server that has the lock wrote its process id beside another path.
            return Err(locked(None));
        }
        rights::close(database);
        // The server that had the lock until now may have left another log.
        let has_log = whole::look(database)? || mark == WAS_CUT;
        Ok(Self { beside, database: file, has_log })
    }

    /// Notes that there is a ledger in the file: from then on, an empty one in its place is none that was just made.
    pub(super) fn note_a_ledger(&self) -> io::Result<()> {
        write(&self.beside, HAS_A_LEDGER)
    }

    /// Notes that the file or its log was cut: another program may write into the file what is left of both, and nothing else
    /// tells then that there was more.
    pub(super) fn note_a_cut(&self) -> io::Result<()> {
        write(&self.beside, WAS_CUT)
    }

    /// Whether the log may have something that the file has not: the last server came to no good end.
    pub(super) fn has_log(&self) -> bool {
        self.has_log
    }

    /// Whether the file itself still bears the mark of one that is being made. No descriptor is closed for that.
    pub(super) fn is_begun(&self) -> io::Result<bool> {
        let mut header = [0; HEADER_BYTES];
        self.database.read_exact_at(&mut header, 0)?;
        Ok(log::is_begun(&header))
    }

    /// The bytes of the file that is locked; and those of the pages that its header counts, if it has a header and all of them.
    pub(super) fn size(&self) -> io::Result<(u64, Option<u64>)> {
        // Before the header: where another program makes the file shorter in between, its new header was written first.
        let bytes = self.database.metadata()?.len();
        let mut header = [0; HEADER_BYTES];
        let counted = match self.database.read_exact_at(&mut header, 0) {
            Ok(()) if header.starts_with(log::MAGIC) => Some(log::counted_bytes(&header).unwrap_or(bytes)),
            Ok(()) => None,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(error),
        };
        Ok((bytes, counted.filter(|counted| *counted <= bytes)))
    }

    /// The inode of the file that is locked.
    pub(super) fn inode(&self) -> io::Result<Inode> {
        self.database.metadata().map(|file| Inode::new(&file))
    }

    /// The number of names of the file.
    pub(super) fn names(&self) -> io::Result<u64> {
        self.database.metadata().map(|file| file.nlink())
    }
}

/// To close the files would not free them at once: a process that this one is starting shares them until it runs its
/// own program.
impl Drop for FileLock {
    fn drop(&mut self) {
        for file in [&self.beside, &self.database] {
            if let Err(error) = file.unlock() {
                tracing::debug!(%error, "a lock was not given back before its file was closed");
            }
        }
    }
}

/// Takes a lock on the whole file (`flock`), unless somebody else has it.
fn is_free(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether a `flock` on the database leaves SQLite's own POSIX locks alone. On Linux that is so, except on file
/// systems that turn the one into the other to tell the server; not on macOS, where both are of one kind. There,
/// SQLite would wait for a lock of its own process.
#[cfg(target_os = "linux")]
fn meets_no_posix_lock(file: &File) -> bool {
    let Ok(device) = file.metadata().map(|file| file.dev()) else { return false };
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return true };
    file_system(&mounts, device).is_none_or(|name| !["nfs", "nfs4", "cifs", "smb3", "9p", "afs"].contains(&name))
}

#[cfg(not(target_os = "linux"))]
fn meets_no_posix_lock(_file: &File) -> bool {
    false
}

/// The type of the file system on a device: after the dash in a line whose third word is the device.
#[cfg(target_os = "linux")]
fn file_system(mounts: &str, device: u64) -> Option<&str> {
    let (major, minor) = ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xf_ff00));
    let device = format!("{major}:{minor}");
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&device))?;
    line.split_once(" - ")?.1.split(' ').next()
}

/// The second line of a lock, once its server has found or made a ledger.
pub(super) const HAS_A_LEDGER: &str = "ledger\n";

/// The same, once its server has seen that a part of the ledger was cut.
pub(super) const WAS_CUT: &str = "ledger\ncut\n";

/// Writes a lock's content: over what is there, and then its length, so that no mark is lost where the disk is full or the process
/// ends in between.
fn write(lock: &File, mark: &str) -> io::Result<()> {
    let text = content(std::process::id(), mark);
    lock.write_all_at(text.as_bytes(), 0)?;
    lock.set_len(text.len() as u64)
}

/// All numbers of processes have one length: what follows stands at one place in each lock, and what is read in the middle of a
/// write is one of the two.
fn content(pid: u32, mark: &str) -> String {
    format!("{pid:010}\n{mark}")
}

/// The process that has, or had, a lock of this content, and what it noted of the ledger; none of what is no lock. A loss of power
/// may leave the beginning of a mark.
pub(super) fn told(text: &str) -> Option<(&str, &'static str)> {
    let text = text.trim_end_matches('\0');
    let (pid, rest) = text.split_once('\n').unwrap_or((text, ""));
    let marks = ["", HAS_A_LEDGER, WAS_CUT];
    let is_cut_off = || marks.iter().any(|mark| mark.starts_with(rest)).then_some(HAS_A_LEDGER);
    let mark = marks.into_iter().find(|mark| *mark == rest).or_else(is_cut_off)?;
    pid.bytes().all(|byte| byte.is_ascii_digit()).then_some((pid.trim_start_matches('0'), mark))
}

/// Bytes of a process id, and some more.
pub(super) const LOCK_BYTES_MAX: u64 = 32;

/// `<database>.lock`, with links resolved: two names of one database meet at one lock. The file is made for that,
/// empty, if it is missing: a link to nothing has no other name yet.
fn beside(database: &Path) -> io::Result<PathBuf> {
    let mut path = match fs::canonicalize(database) {
        Ok(path) => OsString::from(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            drop(private::open_or_create(database)?);
            OsString::from(fs::canonicalize(database)?)
        }
        Err(error) => return Err(error),
    };
    path.push(".lock");
    Ok(PathBuf::from(path))
}

/// The process that has, or had, the lock, by the file beside the database. What is no file of a lock is refused, and
/// stays as it is: somebody else's may have been linked there.
fn holder_in(lock: &mut File, database: &Path) -> Result<(Option<String>, &'static str), OpenError> {
    let failed = |error| errors::open_system(database, error);
    let found = lock.metadata().map_err(failed)?;
    if !found.is_file() || found.nlink() > 1 {
        return Err(whole::no_lock(database, "is another file as well, by a hard link"));
    }
    let mut text = Vec::new();
    lock.take(LOCK_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
    let told = std::str::from_utf8(&text).ok().filter(|_| text.len() as u64 <= LOCK_BYTES_MAX).and_then(told);
    let Some((pid, mark)) = told else {
        return Err(whole::no_lock(database, "holds something else than the number of a process"));
    };
    Ok((Some(pid).filter(|pid| !pid.is_empty()).map(str::to_owned), mark))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_somebody_else_locked_under_another_path_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        // The lock of a server that reached the file through another mount: beside another path.
        let elsewhere = File::create(&path).unwrap();
        assert!(is_free(&elsewhere).unwrap());
        assert!(matches!(FileLock::take(&path), Err(OpenError::Locked { pid: None, .. })));
        drop(elsewhere);
        assert!(FileLock::take(&path).is_ok());
    }

    #[test]
    fn a_lock_holds_a_process_and_what_it_noted_of_the_ledger_and_nothing_else() {
        for (text, found) in [
            ("", Some(("", ""))),
            ("12", Some(("12", ""))),
            ("12\n", Some(("12", ""))),
            ("12\nledger\n", Some(("12", HAS_A_LEDGER))),
            ("12\nledger\ncut\n", Some(("12", WAS_CUT))),
            ("0000000012\nledger\n", Some(("12", HAS_A_LEDGER))),
            ("0000000012\nledger\n\0\0", Some(("12", HAS_A_LEDGER))),
            ("12\nledger", Some(("12", HAS_A_LEDGER))),
            ("12\nledger\ncu", Some(("12", HAS_A_LEDGER))),
            ("12\nledger\nother\n", None),
            ("12\ncut\n", None),
            ("12\n\n", None),
            ("precious", None),
            ("ledger\n", None),
        ] {
            assert_eq!(told(text), found, "{text:?}");
        }
    }

    #[test]
    fn a_lock_that_is_written_in_parts_is_one_of_those_before_and_after_at_each_moment() {
        let marks = ["", HAS_A_LEDGER, WAS_CUT];
        let pids = [1, 99_999, 4_194_304, u32::MAX];
        let mut steps = Vec::new();
        for (old, new) in pids.iter().flat_map(|old| pids.iter().map(move |new| (*old, *new))) {
            for mark in marks {
                // As a server takes the lock: releases before this one wrote the number as it is.
                steps.extend([content(old, mark), format!("{old}\n{mark}")].map(|old| (old, content(new, mark))));
                // As it notes what it has found.
                steps.push((content(new, mark), content(new, HAS_A_LEDGER)));
            }
            steps.push((content(new, HAS_A_LEDGER), content(new, WAS_CUT)));
        }
        for (before, after) in steps {
            let overwritten = [after.as_bytes(), before.as_bytes().get(after.len()..).unwrap_or_default()].concat();
            let text = std::str::from_utf8(&overwritten).unwrap();
            let mark = |text| told(text).map(|(_, mark)| mark);
            assert!(mark(text).is_some(), "{before:?} {after:?}: {text:?}");
            assert!([mark(&before), mark(&after)].contains(&mark(text)), "{before:?} {after:?}: {text:?}");
        }
    }

    #[test]
    fn a_lock_is_free_once_it_is_given_back_whoever_shares_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        let lock = FileLock::take(&path).unwrap();
        // As a child process has them between its start and its program.
        let shared = [lock.beside.try_clone().unwrap(), lock.database.try_clone().unwrap()];
        assert!(FileLock::take(&path).is_err());
        drop(lock);
        assert!(FileLock::take(&path).is_ok());
        drop(shared);
    }

    #[test]
    fn a_file_without_its_log_and_a_log_without_its_file_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (path, log) = (directory.path().join("runs.db"), directory.path().join("runs.db-wal"));
        let writer = rusqlite::Connection::open(&path).unwrap();
        writer.pragma_update(None, "journal_mode", "wal").unwrap();
        writer.execute("create table runs (run_id text)", ()).unwrap();
        let copy = directory.path().join("copy.db");
        fs::copy(&path, &copy).unwrap();
        assert!(matches!(FileLock::take(&copy), Err(OpenError::Incomplete { .. })), "all of it is in the log");
        fs::copy(&log, directory.path().join("copy.db-wal")).unwrap();
        assert!(FileLock::take(&copy).is_ok());
        fs::remove_file(&path).unwrap();
        assert!(matches!(FileLock::take(&path), Err(OpenError::Incomplete { .. })), "a new file would meet an old log");
        assert!(!path.exists(), "nothing was made");
        drop(writer);
        let _closed_or_not = fs::remove_file(&log);
        assert!(FileLock::take(&path).is_ok());
    }

    #[test]
    fn what_stands_in_the_place_of_a_part_and_is_not_that_alone_is_refused_and_stays_as_it_is() {
        for ending in ["-wal", "-shm", "-journal", ".lock"] {
            for kind in ["a folder", "a named pipe", "a symbolic link", "a hard link", "text"] {
                if ending != ".lock" && ["a hard link", "text"].contains(&kind) {
                    continue;
                }
                let directory = tempfile::tempdir().unwrap();
                let [path, other] = ["runs.db", "other"].map(|name| directory.path().join(name));
                let part = directory.path().join(format!("runs.db{ending}"));
                rusqlite::Connection::open(&path).unwrap().execute("create table ledger (x)", ()).unwrap();
                fs::write(&other, "precious").unwrap();
                fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
                match kind {
                    "a folder" => fs::create_dir(&part).unwrap(),
                    "a named pipe" => mknodat(CWD, &part, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap(),
                    "a symbolic link" => std::os::unix::fs::symlink(&other, &part).unwrap(),
                    "a hard link" => fs::hard_link(&other, &part).unwrap(),
                    _ => {
                        fs::rename(&other, &part).unwrap();
                        std::os::unix::fs::symlink(&part, &other).unwrap();
                    }
                }
                let before = [&part, &other].map(|path| fs::metadata(path).unwrap().mode());
                let refusal = crate::telemetry::chain(&FileLock::take(&path).err().expect("it is refused"));
                assert!(refusal.contains(&format!("(`{ending}`)")), "{kind} for {ending}: {refusal}");
                let is_named = ["a hard link", "text"].contains(&kind) || refusal.contains(kind);
                assert!(is_named, "{kind} for {ending}: {refusal}");
                assert_eq!(fs::read(&other).unwrap(), b"precious", "{kind} for {ending}");
                let after = [&part, &other].map(|path| fs::metadata(path).unwrap().mode());
                assert_eq!(after, before, "{kind} for {ending}");
            }
        }
    }

    #[test]
    fn a_file_that_is_no_database_is_refused_and_no_lock_is_left_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.txt");
        for bytes in [&b"milk, bread"[..], &[0; 4096]] {
            fs::write(&path, bytes).unwrap();
            let error = FileLock::take(&path).err().expect("it is refused");
            assert!(crate::telemetry::chain(&error).contains("no SQLite database"), "{error:?}");
            assert_eq!(fs::read(&path).unwrap(), bytes);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_file_with_two_names_is_refused_under_either_and_one_with_a_symbolic_link_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let [path, second, link] = ["runs.db", "second.db", "link.db"].map(|name| directory.path().join(name));
        File::create(&path).unwrap();
        fs::hard_link(&path, &second).unwrap();
        for name in [&path, &second] {
            assert!(matches!(FileLock::take(name), Err(OpenError::SeveralNames { names: 2, .. })));
        }
        fs::remove_file(&second).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let lock = FileLock::take(&link).unwrap();
        assert_eq!(lock.names().unwrap(), 1);
        assert!(matches!(FileLock::take(&path), Err(OpenError::Locked { pid: Some(_), .. })));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_system_is_found_by_its_device() {
        let mounts = "22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
                      36 28 0:51 / /net/home rw,relatime shared:9 master:1 - nfs4 host:/home rw,vers=4.2\n\
                      28 1 259:70000 / / rw - ext4 /dev/root rw\n";
        assert_eq!(file_system(mounts, 51), Some("nfs4"));
        assert_eq!(file_system(mounts, (259 << 8) | 0x70 | (0x1_1100 << 12)), Some("ext4"));
        assert_eq!(file_system(mounts, 52), None);
    }
}
