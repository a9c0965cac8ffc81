//! Small files that others may replace at any time, read whole.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::SOURCE_BYTES_MAX;

/// The reason for which a file was not read.
#[derive(Debug, Error)]
pub enum BadFile {
    /// The file cannot be read.
    #[error("cannot read {}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// The content of a file. It blocks.
///
/// # Errors
///
/// The file cannot be read, or is larger than [`SOURCE_BYTES_MAX`].
pub(in crate::auth) fn read(path: &Path) -> Result<Vec<u8>, BadFile> {
    let read = runledger_files::read(path, SOURCE_BYTES_MAX as u64);
    read.map_err(|cause| BadFile::Unreadable { path: path.to_owned(), cause })
}
