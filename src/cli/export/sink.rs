//! The output of an export. A complete file has its name; until then it stands beside, with `.part` at its end. An
//! existing pipe, device or other file that is not regular is written to as it is, and never replaced.

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::task::spawn_blocking;

use crate::cli::output::is_stdout_closed;
use crate::private::{self, PartFile, Rights};

/// Standard output, or a file.
pub(super) struct Sink {
    out: Option<Out>,
    /// The file under way.
    part: Option<PartFile>,
    /// Bytes of the file that is replaced.
    former_bytes: u64,
    /// Bytes of the file that is there now, once it is.
    bytes: Option<u64>,
}

enum Out {
    Stdout,
    File(File),
    /// A pipe, a device: nothing that could be made to last.
    Special(File),
}

impl Sink {
    /// Opens the output: a pipe on a thread of its own, because it opens only when somebody reads it, and a file here,
    /// because an export that is interrupted meanwhile would leave it behind.
    pub(super) async fn open(output: &str, append: bool) -> io::Result<Self> {
        if output == "-" {
            if is_stdout_closed() {
                return Err(io::Error::other("standard output is closed"));
            }
            return Ok(Self::to(Out::Stdout));
        }
        let path = private::followed(Path::new(output))?;
        let there = match fs::metadata(&path) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            let file = spawn_blocking(move || private::open_pipe(&path)).await??;
            return Ok(Self::to(Out::Special(file)));
        }
        if append {
            let file = private::open_to_append(&path)?;
            return Ok(Self::to(Out::File(file)));
        }
        let (file, part) = PartFile::beside(path)?;
        if let Some(there) = &there {
            private::take_over(&file, there, Rights::OfAnyWriter)?;
        }
        let former_bytes = there.map_or(0, |there| there.len());
        Ok(Self { part: Some(part), former_bytes, ..Self::to(Out::File(file)) })
    }

    fn to(out: Out) -> Self {
        Self { out: Some(out), part: None, former_bytes: 0, bytes: None }
    }

    /// The bytes of a file that was replaced by one of fewer bytes, and those of the new one.
    pub(super) fn became_shorter(&self) -> Option<(u64, u64)> {
        self.bytes.filter(|bytes| *bytes < self.former_bytes).map(|bytes| (self.former_bytes, bytes))
    }

    /// Whether lines appear where a progress bar would.
    pub(super) fn is_terminal(&self) -> bool {
        match &self.out {
            Some(Out::Stdout) => io::stdout().is_terminal(),
            Some(Out::Special(file)) => file.is_terminal(),
            Some(Out::File(_)) | None => false,
        }
    }

    /// Whether nobody can read what would be written: a pipe without a reader says so before anything is written.
    pub(super) fn is_closed(&self) -> bool {
        let stdout = io::stdout();
        let out = match &self.out {
            Some(Out::Stdout) => stdout.as_fd(),
            Some(Out::Special(file)) => file.as_fd(),
            Some(Out::File(_)) | None => return false,
        };
        let mut polled = [PollFd::from_borrowed_fd(out, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }

    /// Whether what is written to it lasts.
    pub(super) fn is_lasting(&self) -> bool {
        matches!(self.out, Some(Out::File(_)))
    }

    /// The regular file that is appended to.
    pub(super) fn appended(&mut self) -> Option<&mut File> {
        match &mut self.out {
            Some(Out::File(file)) if self.part.is_none() => Some(file),
            Some(Out::File(_) | Out::Stdout | Out::Special(_)) | None => None,
        }
    }

    /// Writes whole lines. On a thread of its own, since a pipe may be full for as long as its reader likes.
    pub(super) async fn write(&mut self, lines: Vec<u8>) -> io::Result<()> {
        self.with(move |out| match out {
            Out::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(&lines).and_then(|()| stdout.flush())
            }
            Out::File(file) | Out::Special(file) => file.write_all(&lines),
        })
        .await
    }

    /// Makes what was written durable, where it is in a file.
    pub(super) async fn sync(&mut self) -> io::Result<()> {
        let sync = |out: &mut Out| match out {
            Out::File(file) => file.sync_data(),
            Out::Stdout | Out::Special(_) => Ok(()),
        };
        self.with(sync).await
    }

    /// Makes the file durable, and gives it its name.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        let part = self.part.take();
        if let (Some(Out::File(file)), Some(_)) = (&self.out, &part) {
            self.bytes = file.metadata().ok().map(|file| file.len());
        }
        self.with(move |out| match (out, part) {
            (Out::File(file), Some(part)) => part.finish(file),
            (Out::File(file), None) => file.sync_all(),
            (Out::Stdout | Out::Special(_), _) => Ok(()),
        })
        .await
    }

    async fn with(&mut self, work: impl FnOnce(&mut Out) -> io::Result<()> + Send + 'static) -> io::Result<()> {
        let mut out = self.out.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (out, done) = spawn_blocking(move || {
            let done = work(&mut out);
            (out, done)
        })
        .await?;
        self.out = Some(out);
        done
    }
}
