//! The bearer token of a client: a value, or a file that is read again, because tokens are exchanged while a client
//! runs. No part of a token is ever shown.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::metadata::AsciiMetadataValue;

/// Time for which the content of a token file is used before the file is read again.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes of a token at most: far more than a server takes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// A bearer token. Clones share what was read.
#[derive(Clone)]
pub struct Token(Source);

#[derive(Clone)]
enum Source {
    Value(AsciiMetadataValue),
    File(Arc<TokenFile>),
}

struct TokenFile {
    path: PathBuf,
    last: Mutex<Reading>,
}

struct Reading {
    value: AsciiMetadataValue,
    read_at: Instant,
}

/// The reason why a token cannot be used. It shows nothing of the token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("the token file {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// There is no token.
    #[error("{0} is empty")]
    Empty(String),
    /// The text is no token.
    #[error("{0} does not hold a token: it is one word of printable ASCII, {TOKEN_BYTES_MAX} bytes at most")]
    Unfit(String),
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Value(_) => f.write_str("Token(***)"),
            Source::File(file) => write!(f, "Token(*** of {})", file.path.display()),
        }
    }
}

impl Token {
    /// A token by its value.
    ///
    /// # Errors
    ///
    /// The text is empty, or no token.
    pub fn of_value(text: &str) -> Result<Self, TokenError> {
        Ok(Self(Source::Value(header(text, || "the token".to_owned())?)))
    }

    /// The token in a file, which is read again when a second has passed, and at once when a server does not accept
    /// the token. Where that fails, or the file is empty, the token that was read before is used on.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or holds no token.
    pub fn of_file(path: impl Into<PathBuf>) -> Result<Self, TokenError> {
        let path = path.into();
        let last = Mutex::new(Reading { value: read(&path)?, read_at: Instant::now() });
        Ok(Self(Source::File(Arc::new(TokenFile { path, last }))))
    }

    /// The file that the token is read from.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match &self.0 {
            Source::Value(_) => None,
            Source::File(file) => Some(&file.path),
        }
    }

    /// The header's value. The file is small and local, so it is read in place.
    pub(crate) fn bearer(&self) -> AsciiMetadataValue {
        match &self.0 {
            Source::Value(value) => value.clone(),
            Source::File(file) => file.at_most(READ_INTERVAL),
        }
    }

    /// Whether the token is another one by now than the one that was sent.
    pub(crate) fn has_changed(&self, sent: &AsciiMetadataValue) -> bool {
        match &self.0 {
            Source::Value(_) => false,
            Source::File(file) => file.at_most(Duration::ZERO) != *sent,
        }
    }
}

impl TokenFile {
    /// The token as it was read at most so long ago.
    fn at_most(&self, age_max: Duration) -> AsciiMetadataValue {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.read_at.elapsed() >= age_max {
            last.read_at = Instant::now();
            // A pipe has given its token once.
            let bytes = runledger_files::read(&self.path, TOKEN_BYTES_MAX);
            if let Ok(value) = value_of(bytes, &self.path) {
                last.value = value;
            }
        }
        last.value.clone()
    }
}

fn read(path: &Path) -> Result<AsciiMetadataValue, TokenError> {
    value_of(runledger_files::read_once(path, TOKEN_BYTES_MAX), path)
}

fn value_of(read: io::Result<Vec<u8>>, path: &Path) -> Result<AsciiMetadataValue, TokenError> {
    let bytes = read.map_err(|source| TokenError::Unreadable { path: path.to_owned(), source })?;
    let named = || format!("the token file {}", path.display());
    let text = std::str::from_utf8(&bytes).map_err(|_error| TokenError::Unfit(named()))?;
    // Some editors write a mark before a file's text, which is no part of the token.
    header(text.strip_prefix('\u{feff}').unwrap_or(text), named)
}

/// The value of the header `authorization`, marked as one that is not to be shown.
fn header(text: &str, named: impl Fn() -> String) -> Result<AsciiMetadataValue, TokenError> {
    let token = text.trim();
    if token.is_empty() {
        return Err(TokenError::Empty(named()));
    }
    let sound = token.len() as u64 <= TOKEN_BYTES_MAX && token.bytes().all(|byte| byte.is_ascii_graphic());
    let value = if sound { AsciiMetadataValue::try_from(format!("Bearer {token}")).ok() } else { None };
    let mut value = value.ok_or_else(|| TokenError::Unfit(named()))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_again_after_a_second_and_a_broken_one_leaves_the_token_that_it_had() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        let later = || tokio::time::advance(READ_INTERVAL);
        write("first\n");
        let token = Token::of_file(&path).unwrap();
        write("second");
        assert_eq!(token.bearer(), "Bearer first", "it was read a moment ago");
        later().await;
        assert_eq!(token.bearer(), "Bearer second");
        for broken in ["", "two words", "\u{fc}"] {
            write(broken);
            later().await;
            assert_eq!(token.bearer(), "Bearer second", "{broken:?}");
            let error = Token::of_file(&path).unwrap_err().to_string();
            assert!(broken.is_empty() || !error.contains(broken), "{error}");
        }
        write("\u{feff}third");
        assert!(token.has_changed(&token.bearer()), "a refusal has it read at once");
        std::fs::remove_file(&path).unwrap();
        later().await;
        assert_eq!(token.bearer(), "Bearer third");
    }
}
