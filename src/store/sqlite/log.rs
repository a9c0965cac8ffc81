//! The write-ahead log beside a file, read without SQLite: whether it is this file's. SQLite does not ask that. It
//! replays any log that is whole into any file, and removes the log.
//!
//! Only what SQLite would replay counts: pages whose check sums follow from the log's beginning, up to the last commit.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::generation::{BEGUN, lacks_its_log};
use super::log_index::Frames;

/// The length of the header of a SQLite file.
pub(super) const HEADER_BYTES: usize = 100;

/// The beginning of every SQLite file.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";

const LOG_HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// The beginning of a log whose check sums are of little-endian words; one more, of big-endian ones.
const LOG_MAGIC: u32 = 0x377f_0682;

/// The only version of a log that there is.
const LOG_VERSION: u32 = 3_007_000;

/// The times that a log is read again which a server writes meanwhile.
const LOOKS_MAX: usize = 20;

/// The places of a file's header that are looked at.
const PAGE_BYTES: usize = 16;
const CHANGE: usize = 24;
const PAGES: usize = 28;
const SCHEMA: usize = 40;
const BEFORE: usize = 60;
const OWN: usize = 68;
const VALID_FOR: usize = 92;

/// The byte of a file from which SQLite takes its locks on it.
const LOCKS_AT: u32 = 1 << 30;

/// The log beside a file, whose name has no link in it.
pub(super) fn beside(file: &Path) -> PathBuf {
    let mut log = OsString::from(fs::canonicalize(file).unwrap_or_else(|_missing| file.to_owned()));
    log.push("-wal");
    log.into()
}

/// What is wrong with a file and what stands beside it; none where nothing is known to be. The `header` is the file's,
/// whole, as it was before. A server may write meanwhile.
pub(super) fn mismatch(file: &Path, header: &[u8; HEADER_BYTES]) -> io::Result<Option<Mismatch>> {
    let log = beside(file);
    let (mut header, mut last) = (*header, None);
    for _look in 0..LOOKS_MAX {
        let before = begin(&log)?;
        let Some(found) = compare(file, &header, &log)? else { return Ok(None) };
        // Both are looked at again: between two looks, a server may have written the log into the file. And what is
        // damaged is so twice at one place: a server may have been writing there.
        let now = header_of(file)?;
        let is_so = !matches!(found, (Mismatch::Damaged, _)) || last == Some(found);
        if is_so && now == header && begin(&log)? == before {
            return Ok(Some(found.0));
        }
        (header, last) = (now, Some(found));
    }
    Ok(None)
}

/// What does not belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// The log was begun on another file, or on another state of this one.
    Stranger,
    /// What stands in the log's place is no log.
    NoLog,
    /// The file is shorter than its header says, or than its log does, and there is no log that has the rest.
    Cut,
    /// The file lacks what its log had, and there is no log, or an empty one.
    Gone,
    /// There are commits behind a place of the log that cannot be read: SQLite would take what is before it for all.
    Damaged,
}

/// What is wrong, and with which frame of the log.
fn compare(file: &Path, header: &[u8; HEADER_BYTES], log: &Path) -> io::Result<Option<(Mismatch, usize)>> {
    let bytes = fs::metadata(file)?.len();
    let found = match File::open(log) {
        Ok(log) => read(&mut BufReader::with_capacity(1 << 16, log), bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => FoundLog::Nothing,
        Err(error) => return Err(error),
    };
    let lacks_its_log = lacks_its_log(number(header, OWN), number(header, SCHEMA));
    let whole = |what| Some((what, 0));
    Ok(match found {
        FoundLog::Nothing if lacks_its_log => whole(Mismatch::Gone),
        FoundLog::Nothing | FoundLog::Begun if is_shorter(bytes, header) => whole(Mismatch::Cut),
        FoundLog::Nothing | FoundLog::Begun => None,
        FoundLog::NoLog => whole(Mismatch::NoLog),
        FoundLog::Log { page_bytes, .. } if page_bytes != page_bytes_of(header) => whole(Mismatch::Stranger),
        FoundLog::Log { generations, damaged_at, lacks_pages, .. } => {
            let is_known = generations.contains(&number(header, OWN));
            // A log is stamped before anything else where the file lacks it.
            let is_stranger = !is_known && (lacks_its_log || !generations.is_empty());
            match damaged_at {
                _ if is_stranger => whole(Mismatch::Stranger),
                Some(at) => Some((Mismatch::Damaged, at)),
                None if lacks_pages => whole(Mismatch::Cut),
                None => None,
            }
        }
        FoundLog::Damaged { at } => Some((Mismatch::Damaged, at)),
    })
}

/// What is in the place of a log.
#[derive(Debug, PartialEq, Eq)]
enum FoundLog {
    /// Nothing that SQLite would replay.
    Nothing,
    /// A log that was begun anew, and has no commit yet: all of the one before is in the file.
    Begun,
    /// Something of another program's.
    NoLog,
    /// The pages of commits.
    Log {
        page_bytes: u32,
        /// The generations that the file may be of; none where no page tells.
        generations: Vec<u32>,
        /// The frame that cannot be read where commits are behind it.
        damaged_at: Option<usize>,
        /// Whether neither the file nor the log has all the pages that the last commit counts.
        lacks_pages: bool,
    },
    /// A log of which SQLite would replay nothing, though it has commits, and the frame that cannot be read; 0: its header.
    Damaged { at: usize },
}

/// Reads a log beside a file of so many bytes.
fn read(log: &mut impl Read, file_bytes: u64) -> io::Result<FoundLog> {
    let mut header = [0; LOG_HEADER_BYTES];
    if !fill(log, &mut header)? {
        return Ok(FoundLog::Nothing);
    }
    let magic = number(&header, 0);
    if magic & !1 != LOG_MAGIC {
        // Zeros are what a crash of the system leaves of a log that was being made.
        return Ok(if header.iter().all(|byte| *byte == 0) { FoundLog::Nothing } else { FoundLog::NoLog });
    }
    let (page_bytes, is_big_endian) = (number(&header, 8), magic & 1 == 1);
    let mut sums = Sums { of_big_endian: is_big_endian, pair: (0, 0) };
    sums.add(&header[..24]);
    let is_one = number(&header, 4) == LOG_VERSION && page_bytes.is_power_of_two();
    if !is_one || !(512..=65_536).contains(&page_bytes) || sums.pair != (number(&header, 24), number(&header, 28)) {
        let mut more = [0];
        return Ok(if fill(log, &mut more)? { FoundLog::Damaged { at: 0 } } else { FoundLog::Nothing });
    }
    let mut frame = vec![0; FRAME_HEADER_BYTES + usize::try_from(page_bytes).unwrap_or_default()];
    let (mut generations, mut of_this_commit, mut commits) = (Vec::new(), Vec::new(), 0);
    let (mut frames, mut damaged_at) = (0, None);
    let mut pages = PagesBehind::new(file_bytes, page_bytes);
    while fill(log, &mut frame)? {
        frames += 1;
        let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
        sums.add(&head[..8]);
        sums.add(page);
        if head[8..16] != header[16..24] || sums.pair != (number(head, 16), number(head, 20)) {
            damaged_at = has_commits(log, &mut frame, &header[16..24])?.then_some(frames);
            break;
        }
        pages.add(number(head, 0));
        if number(head, 0) == 1 {
            of_this_commit.push((number(page, BEFORE), number(page, OWN)));
        }
        // A frame that ends a commit says how large the file is from then on.
        if number(head, 4) != 0 {
            commits += 1;
            pages.commit(number(head, 4));
            for (before, own) in of_this_commit.drain(..) {
                if generations.is_empty() {
                    generations.push(before);
                }
                if generations.last() != Some(&own) {
                    generations.push(own);
                }
            }
        }
    }
    Ok(match (commits, damaged_at) {
        (0, Some(at)) => FoundLog::Damaged { at },
        (0, None) if frames == 0 => FoundLog::Nothing,
        (0, None) => FoundLog::Begun,
        _ => FoundLog::Log { page_bytes, generations, damaged_at, lacks_pages: pages.lack_any() },
    })
}

/// The pages behind the end of a file that its log has. A checkpoint brings all pages into the file before the log begins
/// anew: so each page that the file should have and has not must be in the log. SQLite itself reads what is behind the end as
/// zeros, which look sound where they end a value of several pages.
struct PagesBehind {
    in_file: u32,
    /// The page that is never written, since locks are taken there.
    of_locks: u32,
    /// Of commits that are whole, and of the one that is read.
    found: HashSet<u32>,
    of_this_commit: Vec<u32>,
    /// The pages that the last commit counts.
    counted: u32,
}

impl PagesBehind {
    fn new(file_bytes: u64, page_bytes: u32) -> Self {
        let page_bytes = page_bytes.max(1);
        Self {
            in_file: u32::try_from(file_bytes / u64::from(page_bytes)).unwrap_or(u32::MAX),
            of_locks: LOCKS_AT / page_bytes + 1,
            found: HashSet::new(),
            of_this_commit: Vec::new(),
            counted: 0,
        }
    }

    fn add(&mut self, page: u32) {
        if page > self.in_file && page != self.of_locks {
            self.of_this_commit.push(page);
        }
    }

    fn commit(&mut self, counted: u32) {
        self.found.extend(self.of_this_commit.drain(..));
        self.counted = counted;
    }

    fn lack_any(&self) -> bool {
        let missing = self.counted.saturating_sub(self.in_file);
        let has_locks = self.of_locks > self.in_file && self.of_locks <= self.counted;
        let found = self.found.iter().filter(|page| **page <= self.counted).count();
        u64::from(missing) > found as u64 + u64::from(has_locks)
    }
}

/// Whether the rest of a log has a commit after which more was written: so it was on the disk, and may have been answered.
/// The last commit may be there in parts, where the system ended while it was written.
fn has_commits(log: &mut impl Read, frame: &mut [u8], salts: &[u8]) -> io::Result<bool> {
    let mut has_one = false;
    while fill(log, frame)? {
        if &frame[8..16] == salts {
            if has_one {
                return Ok(true);
            }
            has_one = number(frame, 4) != 0;
        }
    }
    Ok(false)
}

/// SQLite's check sums over a log.
struct Sums {
    of_big_endian: bool,
    pair: (u32, u32),
}

impl Sums {
    fn add(&mut self, bytes: &[u8]) {
        let (words, _rest) = bytes.as_chunks::<4>();
        let of = if self.of_big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        let (pairs, _rest) = words.as_chunks::<2>();
        let (mut one, mut other) = self.pair;
        for [first, second] in pairs {
            one = one.wrapping_add(of(*first)).wrapping_add(other);
            other = other.wrapping_add(of(*second)).wrapping_add(one);
        }
        self.pair = (one, other);
    }
}

/// Whether a file of so many bytes ends before its last page.
pub(super) fn is_shorter(bytes: u64, header: &[u8; HEADER_BYTES]) -> bool {
    counted_bytes(header).is_some_and(|counted| bytes < counted)
}

/// The bytes of all pages that a header counts; none where SQLite has not kept it up.
pub(super) fn counted_bytes(header: &[u8; HEADER_BYTES]) -> Option<u64> {
    let is_kept_up = number(header, CHANGE) == number(header, VALID_FOR);
    is_kept_up.then(|| u64::from(number(header, PAGES)) * u64::from(page_bytes_of(header)))
}

/// Where a log's frame begins, by how many are before it.
pub(super) fn frame_at(before: u32, page_bytes: u32) -> u64 {
    LOG_HEADER_BYTES as u64 + u64::from(before) * (FRAME_HEADER_BYTES as u64 + u64::from(page_bytes))
}

/// Whether a log has its header, and its frames from the `first` on.
pub(super) fn has_frames(log: &File, frames: &Frames, first: u32) -> io::Result<bool> {
    let (mut header, mut head) = ([0; LOG_HEADER_BYTES], [0; FRAME_HEADER_BYTES]);
    if !fill_at(log, &mut header, 0)? || header[16..24] != frames.salts {
        return Ok(false);
    }
    for frame in first..frames.count {
        if !fill_at(log, &mut head, frame_at(frame, frames.page_bytes))? || head[8..16] != frames.salts {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Marks the end of a log that was cut as a hole, so that whoever opens it next sees that it is one, and not where the log
/// ended: by a header that is none where that was cut, and by the heads of two commits behind what was there. SQLite takes
/// none of them, since their check sums are wrong.
pub(super) fn mark_hole(log: &File, frames: &Frames) -> io::Result<()> {
    if !fill_at(log, &mut [0; LOG_HEADER_BYTES], 0)? {
        log.write_all_at(&LOG_MAGIC.to_be_bytes(), 0)?;
    }
    let mut head = [0; FRAME_HEADER_BYTES];
    // The page's number, and the pages of the file after the commit.
    (head[3], head[7]) = (1, 1);
    head[8..16].copy_from_slice(&frames.salts);
    for behind in 0..2 {
        log.write_all_at(&head, frame_at(frames.count + behind, frames.page_bytes))?;
    }
    log.set_len(frame_at(frames.count + 2, frames.page_bytes))?;
    log.sync_all()
}

/// Whether the file was made and bears no generation yet: its log was never written into it.
pub(super) fn is_begun(header: &[u8; HEADER_BYTES]) -> bool {
    number(header, OWN) == BEGUN
}

/// Whether the file was stamped: whoever takes the number out of it takes the file as it is, without its log.
pub(super) fn has_generation(header: &[u8; HEADER_BYTES]) -> bool {
    number(header, OWN) != 0
}

/// The size of a file's pages.
pub(super) fn page_bytes_of(header: &[u8; HEADER_BYTES]) -> u32 {
    // SQLite writes 65,536 as 1.
    match u16::from_be_bytes([header[PAGE_BYTES], header[PAGE_BYTES + 1]]) {
        1 => 65_536,
        bytes => u32::from(bytes),
    }
}

fn header_of(file: &Path) -> io::Result<[u8; HEADER_BYTES]> {
    let mut header = [0; HEADER_BYTES];
    let mut file = File::open(file)?;
    let _whole = fill(&mut file, &mut header)?;
    Ok(header)
}

/// The log's header and size; empty where there is none.
fn begin(log: &Path) -> io::Result<Vec<u8>> {
    match File::open(log) {
        Ok(log) => {
            let mut begin = Vec::new();
            log.take(LOG_HEADER_BYTES as u64).read_to_end(&mut begin)?;
            Ok(begin)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Fills all of the bytes; false where there are less.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    is_filled(from.read_exact(bytes))
}

fn fill_at(from: &File, bytes: &mut [u8], at: u64) -> io::Result<bool> {
    is_filled(from.read_exact_at(bytes, at))
}

fn is_filled(read: io::Result<()>) -> io::Result<bool> {
    match read {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_be_bytes)
}
