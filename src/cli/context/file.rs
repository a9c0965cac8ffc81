//! The file of the named contexts. It holds names of files and never a token, is written whole and at once, and is
//! readable by its owner only.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Context;
use crate::config;
use crate::private::{self, Rights, Turn};

/// Bytes of the file at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The named contexts of a user, and which one is current.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contexts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current: Option<String>,
    #[serde(default)]
    pub(super) contexts: BTreeMap<String, Context>,
}

/// The reason why a context cannot be used or kept.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum ContextError {
    #[error("there is no directory for contexts: neither XDG_CONFIG_HOME nor HOME is set")]
    NoHome,
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} cannot be written: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("{}, line {line}: {message}", path.display())]
    Malformed { path: PathBuf, line: usize, message: String },
    #[error("there is no context {name:?}{}", among(known))]
    NoContext { name: String, known: Vec<String> },
    #[error("no context is current: `runledger context use NAME` makes one so")]
    NoCurrent,
    #[error("there is a context {0:?} already: --replace writes it anew")]
    Taken(String),
    #[error("{0:?} is no name of a context: 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', and not `none`")]
    Name(String),
}

fn among(known: &[String]) -> String {
    if known.is_empty() { ": none was added".to_owned() } else { format!(" among {}", known.join(", ")) }
}

impl Contexts {
    /// The contexts of the user; none where there is no file.
    pub(super) fn read() -> Result<Self, ContextError> {
        config::contexts_file().map_or_else(|| Ok(Self::default()), |path| Self::new(&path))
    }

    fn new(path: &Path) -> Result<Self, ContextError> {
        let unreadable = |source| ContextError::Unreadable { path: path.to_owned(), source };
        let text = match runledger_files::text(path, FILE_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
                return Ok(Self::default());
            }
            Err(error) => return Err(unreadable(error)),
        };
        // The parser's own text shows the line itself, which may hold what should not be there.
        toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            ContextError::Malformed { path: path.to_owned(), line: before.matches('\n').count() + 1, message }
        })
    }

    /// Changes the contexts in the file. Two commands at once change it one after the other.
    pub(super) fn change<T>(change: impl FnOnce(&mut Self) -> Result<T, ContextError>) -> Result<T, ContextError> {
        let path = config::contexts_file().ok_or(ContextError::NoHome)?;
        let unwritable = |source| ContextError::Unwritable { path: path.clone(), source };
        let directory = path.parent().expect("it is the path of a file");
        private::folders(directory).map_err(unwritable)?;
        let _turn = Turn::at(&path).map_err(unwritable)?;
        let mut contexts = Self::new(&path)?;
        let changed = change(&mut contexts)?;
        contexts.write(&path).map_err(unwritable)?;
        Ok(changed)
    }

    /// The context of that name.
    pub(super) fn get(&self, name: &str) -> Result<&Context, ContextError> {
        self.contexts.get(name).ok_or_else(|| ContextError::NoContext {
            name: name.to_owned(),
            known: self.contexts.keys().cloned().collect(),
        })
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let text = toml::to_string(self).map_err(io::Error::other)?;
        private::replace(path, text.as_bytes(), Rights::OfOwnerAndGroup)
    }
}
