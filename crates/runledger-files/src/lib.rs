//! Files that are read whole: the one place that does it. A path comes from whoever operates the process, and what stands
//! there may be anything: a named pipe that nobody writes to, which `open(2)` would wait for, or a device without an end.
//!
//! So nothing is waited for but a pipe that is to be read once, and that for a bounded time; nothing is read beyond a bound
//! in bytes; and what is longer is refused, never cut.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, IsTerminal as _, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::time::Instant;

/// Time in which all must come from a pipe. A program that prints a secret may ask an agent for it first.
const PIPE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Bytes that are taken from a pipe at a time.
const CHUNK_BYTES: usize = 8 * 1024;

/// The bytes of a file that may be read again later: it is a regular one, and nothing else.
///
/// # Errors
///
/// It is not there, is no file, cannot be read, or has more than `bytes_max` bytes.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let (file, _) = open(path, Kind::is_file)?;
    of_file(&file, bytes_max)
}

/// The same, as text.
///
/// # Errors
///
/// See [`read`]; or it is not UTF-8.
pub fn text(path: &Path, bytes_max: u64) -> io::Result<String> {
    utf8(read(path, bytes_max)?)
}

/// The bytes of what is read once: a file, a device such as `/dev/stdin`, or a pipe, such as a shell makes of `<(pass show
/// token)`, in which all must come within 5 s.
///
/// # Errors
///
/// It is not there, is a folder or a socket, cannot be read, has more than `bytes_max` bytes, or does not come to its end.
pub fn read_once(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    match open(path, Kind::is_readable)? {
        (file, Kind::File) => of_file(&file, bytes_max),
        (file, _) => of_pipe(&file, bytes_max, PIPE_WAIT_MAX),
    }
}

/// The same, as text.
///
/// # Errors
///
/// See [`read_once`]; or it is not UTF-8.
pub fn text_once(path: &Path, bytes_max: u64) -> io::Result<String> {
    utf8(read_once(path, bytes_max)?)
}

/// Refuses what is there and is no file, without opening it. Nothing is said of a path where nothing is found.
///
/// # Errors
///
/// What it is instead.
pub fn no_other(path: &Path) -> io::Result<()> {
    let Ok(found) = fs::metadata(path) else { return Ok(()) };
    Kind::of(found.file_type()).refused_unless(Kind::is_file).map(drop)
}

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    Pipe,
    Socket,
    Device,
    Disk,
}

impl Kind {
    fn of(kind: FileType) -> Self {
        if kind.is_file() {
            Self::File
        } else if kind.is_dir() {
            Self::Folder
        } else if kind.is_fifo() {
            Self::Pipe
        } else if kind.is_socket() {
            Self::Socket
        } else if kind.is_char_device() {
            Self::Device
        } else {
            Self::Disk
        }
    }

    fn is_file(self) -> bool {
        self == Self::File
    }

    fn is_readable(self) -> bool {
        match self {
            Self::File | Self::Pipe | Self::Device => true,
            Self::Folder | Self::Socket | Self::Disk => false,
        }
    }

    fn refused_unless(self, is_meant: fn(Self) -> bool) -> io::Result<Self> {
        let name = match self {
            kind if is_meant(kind) => return Ok(kind),
            Self::File => "a file",
            Self::Folder => "a folder",
            Self::Pipe => "a pipe",
            Self::Socket => "a socket",
            Self::Device | Self::Disk => "a device",
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {name} and no file")))
    }
}

/// Opens what is meant, and nothing else: to open a device may do something, and a socket cannot be opened.
fn open(path: &Path, is_meant: fn(Kind) -> bool) -> io::Result<(File, Kind)> {
    Kind::of(fs::metadata(path)?.file_type()).refused_unless(is_meant)?;
    // Another may stand there by now, which is not waited for, and does not become this process's terminal.
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).expect("flags of open(2) are small");
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = Kind::of(file.metadata()?.file_type()).refused_unless(is_meant)?;
    Ok((file, kind))
}

fn of_file(file: &File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    within(bytes, bytes_max)
}

/// All that comes until the end, within a time. A terminal is waited for: somebody types.
fn of_pipe(file: &File, bytes_max: u64, wait_max: Duration) -> io::Result<Vec<u8>> {
    let until = (!file.is_terminal()).then(|| Instant::now() + wait_max);
    let (mut bytes, mut chunk) = (Vec::new(), [0; CHUNK_BYTES]);
    loop {
        if !has_some(file, until)? {
            let what = if bytes.is_empty() { "nobody wrote to the pipe" } else { "the pipe did not come to its end" };
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{what} within {} s", wait_max.as_secs())));
        }
        let mut file = file;
        match file.read(&mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind()) => {}
            Err(error) => return Err(error),
        }
        bytes = within(bytes, bytes_max)?;
    }
}

/// Waits until there is something to read, or the end. A pipe that had no writer yet has no end either. False: the time is
/// over.
fn has_some(file: &File, until: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(false);
        }
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(file, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn within(bytes: Vec<u8>, bytes_max: u64) -> io::Result<Vec<u8>> {
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

fn utf8(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::thread;

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use tempfile::TempDir;

    use super::*;

    const MAX: u64 = 100_000;

    fn refusal<T>(read: io::Result<T>) -> String {
        read.err().expect("it is refused").to_string()
    }

    fn pipe(folder: &TempDir) -> PathBuf {
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        path
    }

    #[test]
    fn a_file_is_read_up_to_its_bound_and_refused_beyond_it_and_never_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (bytes, is_taken) in [(0, true), (100_000, true), (100_001, false), (1_000_000, false)] {
            fs::write(&path, vec![b'x'; bytes]).unwrap();
            for read in [read(&path, MAX), read_once(&path, MAX)] {
                match read {
                    Ok(found) => assert!(is_taken && found.len() == bytes, "{bytes}"),
                    Err(error) => assert!(!is_taken && error.to_string() == "it has more than 100000 bytes", "{error}"),
                }
            }
        }
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(refusal(text(&path, MAX)), "it is not UTF-8");
    }

    #[test]
    fn what_is_no_file_is_refused_by_its_name_and_waited_for_by_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listens = UnixListener::bind(&socket).unwrap();
        let pipe = pipe(&folder);
        for (path, what) in [(folder.path(), "a folder"), (&socket, "a socket"), (&pipe, "a pipe")] {
            assert_eq!(refusal(read(path, MAX)), format!("it is {what} and no file"));
            assert_eq!(refusal(no_other(path)), format!("it is {what} and no file"));
        }
        assert_eq!(refusal(read("/dev/zero".as_ref(), MAX)), "it is a device and no file");
        assert_eq!(refusal(read_once(folder.path(), MAX)), "it is a folder and no file");
        assert_eq!(refusal(read_once(&socket, MAX)), "it is a socket and no file");
        assert_eq!(refusal(read_once("/dev/zero".as_ref(), MAX)), "it has more than 100000 bytes");
        assert_eq!(read_once("/dev/null".as_ref(), MAX).unwrap(), b"");
        let missing = folder.path().join("missing");
        assert_eq!(read(&missing, MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(no_other(&missing).is_ok());
    }

    #[test]
    fn a_pipe_gives_all_that_is_written_however_late_its_writer_comes() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(&folder);
        for bytes in [0, 1, 50_000, 100_000] {
            let writer = path.clone();
            let writer = thread::spawn(move || {
                let mut to = OpenOptions::new().write(true).open(writer).unwrap();
                for piece in vec![b'x'; bytes].chunks(999) {
                    to.write_all(piece).unwrap();
                }
            });
            assert_eq!(read_once(&path, MAX).unwrap().len(), bytes);
            writer.join().unwrap();
        }
        // As a shell gives it to a program; the writer has ended before.
        let (from, mut to) = io::pipe().unwrap();
        to.write_all(b"token").unwrap();
        drop(to);
        assert_eq!(text_once(format!("/dev/fd/{}", from.as_raw_fd()).as_ref(), MAX).unwrap(), "token");
    }

    #[test]
    fn a_pipe_that_nobody_writes_to_or_ends_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(&folder);
        let wait = Duration::from_secs(1);
        let (file, kind) = open(&path, Kind::is_readable).unwrap();
        assert_eq!(kind, Kind::Pipe);
        assert_eq!(refusal(of_pipe(&file, MAX, wait)), "nobody wrote to the pipe within 1 s");
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert_eq!(refusal(of_pipe(&file, MAX, wait)), "nobody wrote to the pipe within 1 s");
        writer.write_all(b"some").unwrap();
        assert_eq!(refusal(of_pipe(&file, MAX, wait)), "the pipe did not come to its end within 1 s");
        // One that is never at its end, and always writes.
        writer.write_all(&[b'x'; 1_000]).unwrap();
        assert_eq!(refusal(of_pipe(&file, 999, wait)), "it has more than 999 bytes");
    }
}
