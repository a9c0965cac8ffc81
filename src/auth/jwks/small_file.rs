//! Small files that others may replace at any time, read whole.

use std::fs::File;
use std::io::{self, Read as _};
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
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The file is larger than any that is meant.
    #[error("{} has more than {SOURCE_BYTES_MAX} bytes", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

/// The content of a file. It blocks.
///
/// # Errors
///
/// The file cannot be read, or is larger than [`SOURCE_BYTES_MAX`].
pub(in crate::auth) fn read(path: &Path) -> Result<Vec<u8>, BadFile> {
    let unreadable = |cause| BadFile::Unreadable { path: path.to_owned(), cause };
    let mut content = Vec::new();
    let most = SOURCE_BYTES_MAX as u64 + 1;
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut content)).map_err(unreadable)?;
    if content.len() > SOURCE_BYTES_MAX {
        return Err(BadFile::TooLarge { path: path.to_owned() });
    }
    Ok(content)
}
