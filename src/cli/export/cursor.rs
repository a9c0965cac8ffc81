//! The file of the cursor up to which an export has every event of a namespace. It is there whole or not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::sink::Sink;
use crate::domain::{LedgerEpoch, Namespace, Positions};
use crate::private::{self, Rights};
use crate::store::Ledger;
use crate::wire::cursor::{self, CURSOR_BYTES_MAX};
use crate::wire::seal::Seals;

/// The time between two writings, where the export follows: each waits for the disk.
const EVERY: Duration = Duration::from_secs(1);

/// Positions, and the ledger's epoch of which they are.
type Place = (LedgerEpoch, Positions);

/// Whether a cursor may say that an output has every event before it: the output is a file that lasts, and is new, or was
/// begun by an export that wrote its cursor as well. Another one may have begun later, or with a filter.
pub(super) fn may_claim(path: &Path, sink: &mut Sink) -> Result<(), String> {
    if !sink.is_lasting() {
        return Err("--cursor-output says that the output is safe: give --output a file".to_owned());
    }
    let has_lines = sink.appended().is_some_and(|file| file.metadata().is_ok_and(|file| file.len() > 0));
    if has_lines && !path.exists() {
        return Err(format!(
            "the output has lines, and {} is not there: nothing tells whether they are all; export to a new file",
            path.display()
        ));
    }
    Ok(())
}

/// Refuses a file that is there and has no cursor of this ledger and namespace: it would be replaced.
pub(super) fn may_replace(path: &Path, ledger: Ledger, namespace: &Namespace) -> Result<(), String> {
    // It would be found out after the export.
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(format!("{} is there, and no file: name another one", path.display()));
    }
    let is_own = |text: &str| cursor::epoch(text.trim(), &Seals::new(ledger), namespace).is_some();
    if private::may_replace(path, CURSOR_BYTES_MAX as u64 + 2, is_own).unwrap_or(false) {
        return Ok(());
    }
    Err(format!(
        "{} is there, and has no cursor of this ledger and namespace: name another file, or replace it by --force",
        path.display()
    ))
}

/// Whether an output that does not go on with a file replaces none: what the file has may have been purged meanwhile, on
/// the word of its own cursor.
pub(super) fn replaces_nothing(output: &str) -> Result<(), String> {
    match fs::metadata(output) {
        Ok(there) if there.is_file() && there.len() > 0 => Err(format!(
            "{output} has lines, which the ledger may not have any more: go on with it by --follow, or name a new file"
        )),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// See the module.
pub(super) struct CursorFile {
    path: PathBuf,
    namespace: Namespace,
    /// The positions that are not in the file yet.
    reached: Option<Place>,
    written: Option<(Instant, Place)>,
}

impl CursorFile {
    pub(super) fn new(path: PathBuf, namespace: Namespace) -> Self {
        Self { path, namespace, reached: None, written: None }
    }

    pub(super) fn reached(&mut self, epoch: LedgerEpoch, positions: &Positions) {
        let place = (epoch, positions.clone());
        if self.written.as_ref().is_none_or(|(_, written)| *written != place) {
            self.reached = Some(place);
        }
    }

    /// Whether the file is behind, and was for long enough.
    pub(super) fn is_due(&self) -> bool {
        self.reached.is_some() && self.written.as_ref().is_none_or(|(at, _)| at.elapsed() >= EVERY)
    }

    /// Writes the cursor, unless the file has it.
    pub(super) fn write(&mut self, ledger: Ledger) -> io::Result<()> {
        let Some((epoch, positions)) = self.reached.take() else { return Ok(()) };
        let cursor = cursor::after(epoch, positions.clone(), &Seals::new(ledger), &self.namespace);
        private::replace(&self.path, format!("{cursor}\n").as_bytes(), Rights::OfAnyWriter)?;
        self.written = Some((Instant::now(), (epoch, positions)));
        Ok(())
    }
}
