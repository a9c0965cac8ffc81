//! The access file, looked at again and again: its rules hold within seconds of a change.
//!
//! The file is read whole at each look. So it does not matter how it is replaced: by a rename, or by the link to a
//! directory, as Kubernetes does it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::access_file::{self, FILE_BYTES_MAX};
use super::rules::Rules;
use super::{Gate, Kinds};
use crate::tasks::file_poll::Looks;
use crate::telemetry::{chain, record};

/// The access file of a server.
#[derive(Clone, Debug)]
pub struct AccessFile {
    path: PathBuf,
    kinds: Option<Kinds>,
    /// Whether clients show certificates.
    takes_certificates: bool,
    /// The hash of the text that was looked at last.
    seen: Digest,
}

type Digest = [u8; 32];

/// What a look at the file has shown.
enum Look {
    Unreadable(String),
    Same,
    Changed(Digest, Result<Box<Rules>, String>),
}

impl AccessFile {
    /// Reads the file for the first time. `kinds`: the kinds of credentials that are to be taken; none: all that the
    /// file has. `takes_certificates`: clients are asked for certificates.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or everything that is wrong in it, a line each.
    pub fn open(path: &Path, kinds: Option<Kinds>, takes_certificates: bool) -> Result<(Self, Kinds, Rules), String> {
        let text = text(path)?;
        let file = Self { path: path.to_owned(), kinds, takes_certificates, seen: Sha256::digest(&text).into() };
        let rules = file.rules(&text)?;
        let kinds = kinds.unwrap_or_else(Kinds::all);
        Ok((file, kinds, rules))
    }

    /// Keeps what a gate's credentials are held against: follows the keys of issuers, and reads the file again and
    /// again. A file that is wrong changes nothing. It lasts for ever.
    pub async fn follow(mut self, gate: Arc<Gate>, mut looks: Looks) {
        let Some(mut trusted) = gate.trusted() else { return std::future::pending().await };
        loop {
            let rules = tokio::select! {
                rules = self.changed(&gate, &mut looks) => rules,
                never = trusted.jwts().follow() => match never {},
            };
            let (tokens, issuers) = (rules.tokens().count(), rules.issuers().len());
            let renewed = match trusted.renewed(rules) {
                Ok(renewed) => renewed,
                Err(error) => {
                    record::reload("access", false);
                    tracing::error!(error = chain(&error), "the access file is wrong: the rules stay as they are");
                    continue;
                }
            };
            // What was taken from a caller waits for nothing. Tokens of a new issuer wait for its keys.
            gate.take(renewed);
            trusted = gate.trusted().expect("this gate has something to hold credentials against");
            record::reload("access", true);
            tracing::info!(path = %self.path.display(), tokens, issuers, "new access rules hold");
        }
    }

    /// Waits until the file has other rules, and ends meanwhile what their time ends.
    async fn changed(&mut self, gate: &Gate, looks: &mut Looks) -> Rules {
        let (mut is_unreadable, mut wrong) = (false, None);
        loop {
            looks.next().await;
            gate.end_expired();
            let (file, seen) = (self.clone(), self.seen);
            // A large file takes its time, and so does a pod's token on a slow disk.
            let look = tokio::task::spawn_blocking(move || file.look(seen));
            match look.await.expect("a look does not panic") {
                Look::Unreadable(error) => {
                    if !std::mem::replace(&mut is_unreadable, true) {
                        record::reload("access", false);
                        tracing::error!(error, "the access file cannot be read: the rules stay as they are");
                    }
                    continue;
                }
                Look::Same => wrong = None,
                Look::Changed(seen, Ok(rules)) => {
                    self.seen = seen;
                    return *rules;
                }
                // The text is looked at again: what is wrong may be another file that it rests on.
                Look::Changed(seen, Err(error)) => {
                    if wrong.replace(seen) != Some(seen) {
                        record::reload("access", false);
                        tracing::error!(error, "the access file is wrong: the rules stay as they are");
                    }
                }
            }
            is_unreadable = false;
        }
    }

    /// Looks at the file, which was seen before. It blocks.
    fn look(&self, seen: Digest) -> Look {
        match text(&self.path) {
            Err(error) => Look::Unreadable(error),
            Ok(text) => {
                let digest = Sha256::digest(&text).into();
                if digest == seen { Look::Same } else { Look::Changed(digest, self.rules(&text).map(Box::new)) }
            }
        }
    }

    fn rules(&self, text: &[u8]) -> Result<Rules, String> {
        let path = self.path.display();
        let text = std::str::from_utf8(text).map_err(|_no_text| format!("{path} is not UTF-8"))?;
        let rules = access_file::read_to_serve(text).map_err(|faults| format!("{path}: {}", faults.join("; ")))?;
        let has = Kinds {
            token: rules.has_tokens(),
            jwt: !rules.issuers().is_empty(),
            certificate: rules.has_certificates(),
        };
        if has.certificate && !self.takes_certificates {
            return Err(format!("{path} has [[certificate]], and no client shows one: give --tls-client-ca"));
        }
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
        if has == Kinds::none() {
            return Err(format!("{path} has no [[token]], [[issuer]] or [[certificate]]: nobody would be let in"));
        }
        Ok(rules)
    }
}

fn text(path: &Path) -> Result<Vec<u8>, String> {
    runledger_files::read(path, FILE_BYTES_MAX).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
