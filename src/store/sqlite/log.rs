//! The write-ahead log beside a file, read without SQLite: whether it is this file's. SQLite does not ask that. It
//! replays any log that is whole into any file, and removes the log.
//!
//! Only what SQLite would replay counts: pages whose check sums follow from the log's beginning, up to the last commit.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

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
const BEFORE: usize = 60;
const OWN: usize = 68;
const VALID_FOR: usize = 92;

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
    let mut header = *header;
    for _look in 0..LOOKS_MAX {
        let before = begin(&log)?;
        let found = compare(file, &header, &log)?;
        if found.is_none() {
            return Ok(None);
        }
        // Both are looked at again: between two looks, a server may have written the log into the file.
        let now = header_of(file)?;
        if now == header && begin(&log)? == before {
            return Ok(found);
        }
        header = now;
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
    /// The file is shorter than its header says, and there is no log that has the rest.
    Cut,
}

fn compare(file: &Path, header: &[u8; HEADER_BYTES], log: &Path) -> io::Result<Option<Mismatch>> {
    let found = match File::open(log) {
        Ok(log) => read(&mut BufReader::with_capacity(1 << 16, log))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Nothing,
        Err(error) => return Err(error),
    };
    Ok(match found {
        Found::Nothing if is_cut(file, header)? => Some(Mismatch::Cut),
        Found::Nothing => None,
        Found::NoLog => Some(Mismatch::NoLog),
        Found::Log { page_bytes, .. } if page_bytes != page_bytes_of(header) => Some(Mismatch::Stranger),
        Found::Log { generations, .. } => {
            let is_stranger = !generations.is_empty() && !generations.contains(&number(header, OWN));
            is_stranger.then_some(Mismatch::Stranger)
        }
    })
}

/// What is in the place of a log.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// Nothing that SQLite would replay.
    Nothing,
    /// Something of another program's.
    NoLog,
    /// The pages of commits: how large each is, and the generations that the file may be of, none where no page tells.
    Log { page_bytes: u32, generations: Vec<u32> },
}

fn read(log: &mut impl Read) -> io::Result<Found> {
    let mut header = [0; LOG_HEADER_BYTES];
    if !fill(log, &mut header)? {
        return Ok(Found::Nothing);
    }
    let magic = number(&header, 0);
    if magic & !1 != LOG_MAGIC {
        // Zeros are what a crash of the system leaves of a log that was being made.
        return Ok(if header.iter().all(|byte| *byte == 0) { Found::Nothing } else { Found::NoLog });
    }
    let (page_bytes, is_big_endian) = (number(&header, 8), magic & 1 == 1);
    let mut sums = Sums { of_big_endian: is_big_endian, pair: (0, 0) };
    sums.add(&header[..24]);
    let is_one = number(&header, 4) == LOG_VERSION && page_bytes.is_power_of_two();
    if !is_one || !(512..=65_536).contains(&page_bytes) || sums.pair != (number(&header, 24), number(&header, 28)) {
        return Ok(Found::Nothing);
    }
    let mut frame = vec![0; FRAME_HEADER_BYTES + usize::try_from(page_bytes).unwrap_or_default()];
    let (mut generations, mut of_this_commit, mut commits) = (Vec::new(), Vec::new(), 0);
    while fill(log, &mut frame)? {
        let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
        sums.add(&head[..8]);
        sums.add(page);
        if head[8..16] != header[16..24] || sums.pair != (number(head, 16), number(head, 20)) {
            break;
        }
        if number(head, 0) == 1 {
            of_this_commit.push((number(page, BEFORE), number(page, OWN)));
        }
        // A frame that ends a commit says how large the file is from then on.
        if number(head, 4) != 0 {
            commits += 1;
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
    Ok(if commits == 0 { Found::Nothing } else { Found::Log { page_bytes, generations } })
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

/// Whether the file ends before its last page. The header says how many there are where SQLite has kept it up.
fn is_cut(file: &Path, header: &[u8; HEADER_BYTES]) -> io::Result<bool> {
    if number(header, CHANGE) != number(header, VALID_FOR) {
        return Ok(false);
    }
    Ok(fs::metadata(file)?.len() < u64::from(number(header, PAGES)) * u64::from(page_bytes_of(header)))
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
    match from.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_be_bytes)
}
