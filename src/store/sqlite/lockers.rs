//! Which processes have locked the file, as the system tells: a shell, a backup or a copy that has a transaction open
//! keeps every commit waiting, and SQLite itself says only that the database is locked.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The bytes of a log's index (`-shm`) that a writer locks, one that empties the log, and one that repairs it.
const WRITING: std::ops::RangeInclusive<u64> = 120..=122;

/// A process with a lock that others wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Locker {
    pub(super) pid: u32,
    /// The name of its program, where the system tells it.
    pub(super) program: Option<String>,
}

impl std::fmt::Display for Locker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pid {}", self.pid)?;
        self.program.as_ref().map_or(Ok(()), |program| write!(f, " ({program})"))
    }
}

/// Other processes that have a lock for writing on the file, or on its log; none where the system does not tell.
pub(super) fn of(path: &Path) -> Vec<Locker> {
    let Ok(locks) = fs::read_to_string("/proc/locks") else { return Vec::new() };
    let path = fs::canonicalize(path).unwrap_or_else(|_gone| path.to_owned());
    let mut index = path.clone().into_os_string();
    index.push("-shm");
    let inode = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let (file, index) = (inode(&path), inode(Path::new(&index)));
    // A file system of layers tells of its files by a device that is not theirs.
    let is = |locked: (u64, u64), ours: Option<(u64, u64)>| {
        ours.is_some_and(|(device, inode)| locked.1 == inode && (locked.0 == device || device >> 8 == 0))
    };
    let own = std::process::id();
    let mut pids: Vec<u32> = locks
        .lines()
        .filter_map(Lock::new)
        .filter(|lock| lock.pid != own && (is(lock.file, file) || (is(lock.file, index) && lock.is_writing())))
        .map(|lock| lock.pid)
        .collect();
    pids.dedup();
    let named = |pid: u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        let plain = |name: String| name.trim().chars().filter(|character| !character.is_control()).collect();
        Locker { pid, program: name.map(plain) }
    };
    pids.into_iter().map(named).collect()
}

/// A line of `/proc/locks` that is of a POSIX lock for writing.
#[derive(Debug, PartialEq, Eq)]
struct Lock {
    pid: u32,
    /// The device and the inode.
    file: (u64, u64),
    first: u64,
    last: u64,
}

impl Lock {
    fn new(line: &str) -> Option<Self> {
        // A line with an arrow is of one that waits.
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "POSIX" | "OFDLCK", _, "WRITE", pid, file, first, last] = words.as_slice() else { return None };
        let mut parts = file.split(':');
        let (major, minor) = (hex(parts.next()?)?, hex(parts.next()?)?);
        let inode = parts.next()?.parse().ok()?;
        let device = ((major & 0xfff) << 8) | (minor & 0xff) | ((minor & 0xf_ff00) << 12);
        let last = if *last == "EOF" { u64::MAX } else { last.parse().ok()? };
        Some(Self { pid: pid.parse().ok()?, file: (device, inode), first: first.parse().ok()?, last })
    }

    fn is_writing(&self) -> bool {
        self.first <= *WRITING.end() && self.last >= *WRITING.start()
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_for_writing_is_read_and_others_are_not() {
        let lock = Lock::new("12: POSIX  ADVISORY  WRITE 4242 08:12:131 120 120").unwrap();
        assert_eq!(lock, Lock { pid: 4242, file: (0x812, 131), first: 120, last: 120 });
        assert!(lock.is_writing());
        let reads = "13: POSIX  ADVISORY  READ 4242 08:12:131 124 124";
        let waits = "12: -> POSIX  ADVISORY  WRITE 4243 08:12:131 120 120";
        let whole = "14: FLOCK  ADVISORY  WRITE 4242 08:12:131 0 EOF";
        for line in [reads, waits, whole, "", "nonsense"] {
            assert_eq!(Lock::new(line), None, "{line}");
        }
        assert!(!Lock::new("12: POSIX  ADVISORY  WRITE 1 08:12:131 128 128").unwrap().is_writing());
    }
}
