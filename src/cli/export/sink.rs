//! Where an export goes. A file that is complete has its name; until then it is beside it, with `.part` at its end.

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use tokio::task::spawn_blocking;

/// Standard output, or a file.
pub(super) struct Sink {
    out: Option<Out>,
    /// The file under way, and what it becomes.
    part: Option<(PathBuf, PathBuf)>,
}

enum Out {
    Stdout,
    File(File),
}

impl Sink {
    pub(super) fn open(output: &str, append: bool) -> io::Result<Self> {
        if output == "-" {
            return Ok(Self { out: Some(Out::Stdout), part: None });
        }
        let path = PathBuf::from(output);
        if append {
            let file = File::options().append(true).create(true).open(&path)?;
            return Ok(Self { out: Some(Out::File(file)), part: None });
        }
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let out = Some(Out::File(File::create(&part)?));
        Ok(Self { out, part: Some((part, path)) })
    }

    /// Whether lines appear where a progress bar would.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self.out, Some(Out::Stdout)) && io::stdout().is_terminal()
    }

    /// Writes whole lines. On a thread of its own, since a pipe may be full for as long as its reader likes.
    pub(super) async fn write(&mut self, lines: Vec<u8>) -> io::Result<()> {
        self.with(move |out| match out {
            Out::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(&lines).and_then(|()| stdout.flush())
            }
            Out::File(file) => file.write_all(&lines),
        })
        .await
    }

    /// Makes it last, and gives the file its name.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        let part = self.part.take();
        self.with(move |out| {
            if let Out::File(file) = out {
                file.sync_all()?;
            }
            part.map_or(Ok(()), |(part, path)| fs::rename(part, path))
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
