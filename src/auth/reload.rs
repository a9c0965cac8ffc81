//! The access file, looked at again and again: its rules hold within seconds of a change.
//!
//! The file is read whole at each look. So it does not matter how it is replaced: by a rename, or by the link to a
//! directory, as Kubernetes does it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

use super::access_file::{self, FILE_BYTES_MAX};
use super::rules::Rules;
use super::{Gate, Kinds};

/// The access file of a server.
#[derive(Debug)]
pub struct AccessFile {
    path: PathBuf,
    kinds: Option<Kinds>,
    /// The hash of the text that was looked at last.
    seen: [u8; 32],
}

impl AccessFile {
    /// Reads the file for the first time. `kinds`: the kinds of credentials that are to be taken; none: all that the
    /// file has.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or everything that is wrong in it, a line each.
    pub fn open(path: &Path, kinds: Option<Kinds>) -> Result<(Self, Kinds, Rules), String> {
        let text = text(path)?;
        let file = Self { path: path.to_owned(), kinds, seen: Sha256::digest(&text).into() };
        let rules = file.rules(&text)?;
        let kinds = kinds.unwrap_or_else(Kinds::all);
        Ok((file, kinds, rules))
    }

    /// Gives the gate new rules when the file has changed, for ever. A file that is wrong changes nothing.
    pub async fn follow(mut self, gate: Arc<Gate>, every: Duration) {
        let mut is_unreadable = false;
        loop {
            sleep(every).await;
            let path = self.path.clone();
            let read = tokio::task::spawn_blocking(move || text(&path)).await.expect("reading does not panic");
            let text = match read {
                Ok(text) => text,
                Err(error) => {
                    if !std::mem::replace(&mut is_unreadable, true) {
                        tracing::error!(error, "the access file cannot be read: the rules stay as they are");
                    }
                    continue;
                }
            };
            is_unreadable = false;
            let hash: [u8; 32] = Sha256::digest(&text).into();
            if std::mem::replace(&mut self.seen, hash) == hash {
                continue;
            }
            match self.rules(&text) {
                Ok(rules) => {
                    let (tokens, issuers) = (rules.tokens().count(), rules.issuers().len());
                    gate.take(rules);
                    tracing::info!(path = %self.path.display(), tokens, issuers, "new access rules hold");
                }
                Err(error) => tracing::error!(error, "the access file is wrong: the rules stay as they are"),
            }
        }
    }

    fn rules(&self, text: &[u8]) -> Result<Rules, String> {
        let path = self.path.display();
        let text = std::str::from_utf8(text).map_err(|_no_text| format!("{path} is not UTF-8"))?;
        let rules = access_file::read(text).map_err(|faults| format!("{path}: {}", faults.join("\n  ")))?;
        let has = Kinds {
            token: rules.has_tokens(),
            jwt: !rules.issuers().is_empty(),
            certificate: rules.has_certificates(),
        };
        let lacks = |asked: fn(&Kinds) -> bool, has: bool| self.kinds.as_ref().is_some_and(asked) && !has;
        for (lacks, table) in [
            (lacks(|kinds| kinds.token, has.token), "[[token]]"),
            (lacks(|kinds| kinds.jwt, has.jwt), "[[issuer]]"),
            (lacks(|kinds| kinds.certificate, has.certificate), "[[certificate]]"),
        ] {
            if lacks {
                return Err(format!("{path} has no {table}, which --auth asks for"));
            }
        }
        if has.jwt {
            return Err(format!("{path}: [[issuer]]: this release takes no signed tokens yet"));
        }
        if has == Kinds::none() {
            return Err(format!("{path} has no [[token]], [[issuer]] or [[certificate]]: nobody would be let in"));
        }
        Ok(rules)
    }
}

fn text(path: &Path) -> Result<Vec<u8>, String> {
    let read = || {
        let mut text = Vec::new();
        std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
        Ok::<_, std::io::Error>(text)
    };
    match read() {
        Ok(text) if text.len() as u64 > FILE_BYTES_MAX => {
            Err(format!("{} has more than {FILE_BYTES_MAX} bytes", path.display()))
        }
        Ok(text) => Ok(text),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}
