//! The file of the cursor up to which an export has every event of a namespace. It is there whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::{Namespace, Positions};
use crate::feed::cursor::Cursor;
use crate::store::Ledger;
use crate::wire::cursor;
use crate::wire::seal::Seals;

/// The time between two writings, where the export follows: each waits for the disk.
const EVERY: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct CursorFile {
    path: PathBuf,
    namespace: Namespace,
    /// The positions that are not in the file yet.
    reached: Option<Positions>,
    written: Option<(Instant, Positions)>,
}

impl CursorFile {
    pub(super) fn of(path: PathBuf, namespace: Namespace) -> Self {
        Self { path, namespace, reached: None, written: None }
    }

    pub(super) fn reached(&mut self, positions: &Positions) {
        if self.written.as_ref().is_none_or(|(_, written)| written != positions) {
            self.reached = Some(positions.clone());
        }
    }

    /// Whether the file is behind, and was for long enough.
    pub(super) fn is_due(&self) -> bool {
        self.reached.is_some() && self.written.as_ref().is_none_or(|(at, _)| at.elapsed() >= EVERY)
    }

    /// Writes the cursor, unless the file has it.
    pub(super) fn write(&mut self, ledger: Ledger) -> io::Result<()> {
        let Some(positions) = self.reached.take() else { return Ok(()) };
        let cursor = Cursor { epoch: ledger.epoch, positions: positions.clone(), view: None };
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(name);
        let mut file = File::create(&part)?;
        writeln!(file, "{}", cursor::encode(&cursor, &Seals::of(ledger), &self.namespace))?;
        file.sync_all()?;
        fs::rename(&part, &self.path)?;
        self.written = Some((Instant::now(), positions));
        Ok(())
    }
}
