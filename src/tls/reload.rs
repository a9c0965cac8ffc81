//! The files are looked at again and again, and taken when they have changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::spawn_blocking;

use super::expiry::ExpiryLog;
use super::files::Digest;
use super::offer::Offer;
use super::{Tls, TlsError};
use crate::tasks::file_poll::Looks;
use crate::telemetry::{LogThrottle, chain, record};

/// What was found instead of files that could be taken: their contents, or the reason why they cannot be read.
#[derive(Debug, PartialEq, Eq)]
enum Bad {
    Contents(Digest),
    Unread(String),
}

impl Tls {
    /// Looks at the files, for ever.
    pub async fn follow(&self, mut looks: Looks) {
        let (mut bad, mut expiry, said) = (None, ExpiryLog::default(), LogThrottle::default());
        loop {
            expiry.look(&self.offer.borrow().terms, self.clock.now());
            looks.next().await;
            self.look(&mut bad, &said).await;
        }
    }

    /// Takes the files if they have changed. `bad` is what was found before and could not be taken.
    async fn look(&self, bad: &mut Option<Bad>, said: &LogThrottle) {
        let files = self.files.clone();
        // A file system may hang.
        let read = spawn_blocking(move || files.read()).await;
        let Ok(read) = read else { return };
        let (found, offer) = match read {
            Err(error) => (Bad::Unread(chain(&error)), Err(error)),
            Ok(contents) => {
                let digest = contents.digest();
                if digest == self.offer.borrow().digest {
                    if bad.take().is_some() {
                        tracing::info!("the files of TLS are again as they were when they were taken");
                    }
                    return;
                }
                let found = Bad::Contents(digest);
                if bad.as_ref() == Some(&found) {
                    return;
                }
                (found, Offer::new(&self.files, &contents, &self.clock))
            }
        };
        match offer {
            Ok(offer) => {
                *bad = None;
                self.take(offer);
            }
            Err(_) if bad.as_ref() == Some(&found) => {}
            Err(error) => {
                *bad = Some(found);
                self.refuse(&error, said);
            }
        }
    }

    fn take(&self, offer: Offer) {
        self.reloads.fetch_add(1, Ordering::Relaxed);
        record::reload("tls", true);
        let not_after = offer.not_after();
        let trust = |offer: &Offer| offer.trust.as_ref().map(|trust| trust.digest);
        let is_trust_new = trust(&offer) != trust(&self.offer.borrow());
        // Every connection sees the change, and verifies its client's chain again if the trust has changed.
        self.offer.send_replace(Arc::new(offer));
        tracing::info!(%not_after, "the server's certificate, or what clients are verified by, was read anew");
        if is_trust_new {
            tracing::info!("the client CAs or revocation lists have changed: connected clients are verified again");
        }
    }

    fn refuse(&self, error: &TlsError, said: &LogThrottle) {
        self.failed_reloads.fetch_add(1, Ordering::Relaxed);
        record::reload("tls", false);
        if let Some(unsaid) = said.is_due() {
            let error = chain(error);
            tracing::error!(
                error,
                unsaid,
                "the files of TLS have changed and cannot be used: the ones before stay in force"
            );
        }
    }
}
