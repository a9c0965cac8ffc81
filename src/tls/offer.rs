//! What a server offers its clients at one time, and by what it verifies theirs: all of it made of one reading of the
//! files.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{Error, InconsistentKeys, RootCertStore, ServerConfig};
use x509_parser::prelude::{CertificateRevocationList, FromDer as _, X509Certificate};

use super::certificate::time;
use super::clients::Clients;
use super::expiry::Term;
use super::files::{Contents, Digest};
use super::{ClientAuth, ClientFiles, TlsError, TlsFiles};
use crate::clock::{Clock, HandshakeTime};
use crate::domain::Time;

/// The one protocol that is spoken inside TLS.
pub(super) const PROTOCOL: &[u8] = b"h2";

/// See the module.
pub(super) struct Offer {
    pub(super) digest: Digest,
    pub(super) server: Arc<ServerConfig>,
    pub(super) trust: Option<Trust>,
    /// The certificates and revocation lists that come to an end.
    pub(super) terms: Vec<Term>,
}

/// The trust in clients' certificates.
#[derive(Clone)]
pub(super) struct Trust {
    pub(super) digest: Digest,
    verifier: Clients,
}

impl Offer {
    pub(super) fn new(files: &TlsFiles, contents: &Contents, clock: &Arc<dyn Clock>) -> Result<Self, TlsError> {
        let chain = certificates(files, contents)?;
        if !is_for_servers(&chain[0]) {
            let what = "is a certificate that clients refuse: its extended key usage is not for servers (serverAuth)";
            return Err(TlsError::Content { file: files.certificate.clone(), what });
        }
        let mut terms = vec![Term::of_certificates(&files.certificate, chain.iter().map(validity))];
        // The provider is named here, and not the process's: no other crate decides for this one.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let trust = match (&files.client, &contents.client_ca) {
            (Some(client), Some(ca)) => {
                let (trust, term) = Trust::new(client, ca, contents, &provider, clock)?;
                terms.extend(term);
                Some(trust)
            }
            (Some(_), None) | (None, _) => None,
        };
        let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|_broken| TlsError::Content {
            file: files.key.clone(),
            what: "holds no private key in PEM that can be read without a password",
        })?;
        let builder = ServerConfig::builder_with_details(provider, Arc::new(HandshakeTime(clock.clone())))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("the provider has suites for both versions");
        let builder = match &trust {
            None => builder.with_no_client_auth(),
            Some(trust) => builder.with_client_cert_verifier(Arc::new(trust.verifier.clone())),
        };
        let mut server = builder.with_single_cert(chain, key).map_err(|source| {
            let TlsFiles { certificate, key, .. } = files.clone();
            if source == Error::InconsistentKeys(InconsistentKeys::KeyMismatch) {
                TlsError::Pair { certificate, key }
            } else {
                let file = if matches!(source, Error::InvalidCertificate(_)) { certificate } else { key };
                TlsError::Unusable { file, source }
            }
        })?;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        if trust.is_some() {
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
        }
        Ok(Self { digest: contents.digest(), server: Arc::new(server), trust, terms })
    }

    /// See [`super::Tls::not_after`].
    pub(super) fn not_after(&self) -> Time {
        self.terms[0].not_after
    }
}

impl Trust {
    fn new(
        client: &ClientFiles,
        ca: &[u8],
        contents: &Contents,
        provider: &Arc<rustls::crypto::CryptoProvider>,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Self, Option<Term>), TlsError> {
        let mut roots = RootCertStore::empty();
        for root in items::<CertificateDer<'static>>(ca) {
            let root = root.ok_or(TlsError::Content { file: client.ca.clone(), what: "is not sound PEM" })?;
            roots.add(root).map_err(|source| TlsError::Unusable { file: client.ca.clone(), source })?;
        }
        if roots.is_empty() {
            return Err(TlsError::Content { file: client.ca.clone(), what: "holds no certificate in PEM" });
        }
        let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let mut term = None;
        if let (Some(file), Some(lists)) = (&client.crl, &contents.client_crl) {
            let lists: Option<Vec<_>> = items::<CertificateRevocationListDer<'static>>(lists).collect();
            let lists = lists.ok_or(TlsError::Content { file: file.clone(), what: "is not sound PEM" })?;
            if lists.is_empty() {
                return Err(TlsError::Content { file: file.clone(), what: "holds no revocation list in PEM" });
            }
            term = Term::of_lists(file, lists.iter().filter_map(updates));
            // A list that is out of date does not say who was revoked since: it vouches for nobody.
            verifier = verifier.with_crls(lists).enforce_revocation_expiration();
        }
        if client.auth == ClientAuth::Optional {
            verifier = verifier.allow_unauthenticated();
        }
        let file = client.crl.as_ref().unwrap_or(&client.ca);
        let verifier = verifier.build().map_err(|source| TlsError::Revocation { file: file.clone(), source })?;
        let verifier = Clients::new(verifier, clock.clone());
        Ok((Self { digest: contents.digest_of_trust(), verifier }, term))
    }

    /// Verifies a client's chain.
    pub(super) fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), Error> {
        let (end_entity, intermediates) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        self.verifier.verify(end_entity, intermediates).map(drop)
    }
}

/// Whether a certificate's extended key usage, where it has one, is that of a server. One that cannot be read is told of
/// by TLS itself.
fn is_for_servers(certificate: &CertificateDer<'_>) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return true };
    let usage = certificate.extended_key_usage().ok().flatten();
    usage.is_none_or(|usage| usage.value.any || usage.value.server_auth)
}

fn certificates(files: &TlsFiles, contents: &Contents) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let content = |what| TlsError::Content { file: files.certificate.clone(), what };
    let chain: Option<Vec<_>> = items::<CertificateDer<'static>>(&contents.certificate).collect();
    let chain = chain.ok_or(content("is not sound PEM"))?;
    if chain.is_empty() {
        return Err(content("holds no certificate in PEM"));
    }
    Ok(chain)
}

/// The items of a kind in a PEM file; none in place of a part that cannot be read, whose error would show it.
fn items<T: PemObject>(pem: &[u8]) -> impl Iterator<Item = Option<T>> {
    T::pem_slice_iter(pem).map(Result::ok)
}

/// The time from which a certificate holds, and the last one at which it does; of one that cannot be read, for ever.
pub(super) fn validity(certificate: &CertificateDer<'_>) -> (Time, Time) {
    let read = X509Certificate::from_der(certificate).ok();
    read.map_or((time(0), time(i64::MAX)), |(_, read)| {
        let validity = read.validity();
        (time(validity.not_before.timestamp()), time(validity.not_after.timestamp()))
    })
}

/// The time at which a list was made, and the one at which its next one is due.
fn updates(list: &CertificateRevocationListDer<'static>) -> Option<(Time, Time)> {
    let (_, read) = CertificateRevocationList::from_der(list).ok()?;
    Some((time(read.last_update().timestamp()), time(read.next_update()?.timestamp())))
}
