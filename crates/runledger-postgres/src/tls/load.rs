//! Reads the files, and makes the client's side of TLS of them.

use std::io;
use std::sync::Arc;

use rustls::client::{ClientConfig, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::{RootCertStore, client};
use sha2::{Digest as _, Sha256};
use tokio_postgres::config::SslNegotiation;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::files::{FilesError, Loaded};
use super::pem;
use super::time::HandshakeTime;
use super::verifier::{Chain, Verifier};
use crate::settings::{Identity, Mode, Roots, Settings};

/// The protocol that a server of release 17 wants to hear of before a handshake that nothing announced.
const ALPN: &[u8] = b"postgresql";

/// What tells the contents of files apart.
pub(super) type Digest = [u8; 32];

/// Makes TLS of the files; none when they are those that are known.
pub(super) fn load(settings: &Settings, known: Option<Digest>) -> Result<Option<Loaded>, FilesError> {
    let read = Read::of(settings)?;
    let digest = read.digest();
    if known == Some(digest) {
        return Ok(None);
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(settings, &read, &provider)?;
    let config =
        ClientConfig::builder_with_details(provider, Arc::new(HandshakeTime)).with_safe_default_protocol_versions();
    let unusable =
        |parameter, source: Box<dyn std::error::Error + Send + Sync>| FilesError::Unusable { parameter, source };
    let config = config.map_err(|error| unusable("sslmode", error.into()))?;
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match (&settings.identity, &read.identity) {
        (Some(identity), Some((certificate, key))) => {
            let chain = pem::certificates("sslcert", &identity.certificate, certificate)?;
            let key = pem::key(&identity.key, key)?;
            config.with_client_auth_cert(chain, key).map_err(|error| unusable("sslcert and sslkey", error.into()))?
        }
        (None | Some(_), None) | (None, Some(_)) => config.with_no_client_auth(),
    };
    // A resumed session would take over what was verified by roots that have gone since.
    config.resumption = Resumption::disabled();
    if settings.config.get_ssl_negotiation() == SslNegotiation::Direct {
        config.alpn_protocols = vec![ALPN.to_vec()];
    }
    Ok(Some(Loaded { make: MakeRustlsConnect::new(config), digest }))
}

/// The files as they are now.
struct Read {
    roots: Option<Found>,
    revoked: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

enum Found {
    File(Vec<u8>),
    System(Vec<CertificateDer<'static>>),
}

impl Read {
    fn of(settings: &Settings) -> Result<Self, FilesError> {
        let roots = match &settings.roots {
            Some(Roots::File(path)) => Some(Found::File(pem::read("sslrootcert", path)?)),
            Some(Roots::System) => Some(Found::System(system()?)),
            None => None,
        };
        let revoked = settings.revoked.as_ref().map(|path| pem::read("sslcrl", path)).transpose()?;
        let both =
            |Identity { certificate, key }: &Identity| Ok((pem::read("sslcert", certificate)?, pem::read_key(key)?));
        Ok(Self { roots, revoked, identity: settings.identity.as_ref().map(both).transpose()? })
    }

    fn digest(&self) -> Digest {
        let mut digest = Sha256::new();
        let mut add = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        };
        match &self.roots {
            Some(Found::File(bytes)) => add(bytes),
            Some(Found::System(certificates)) => certificates.iter().for_each(|certificate| add(certificate)),
            None => add(&[]),
        }
        add(self.revoked.as_deref().unwrap_or_default());
        if let Some((certificate, key)) = &self.identity {
            add(certificate);
            add(key);
        }
        digest.finalize().into()
    }
}

fn system() -> Result<Vec<CertificateDer<'static>>, FilesError> {
    let found = rustls_native_certs::load_native_certs();
    // One that cannot be read among many is none of ours.
    if found.certs.is_empty() { Err(FilesError::NoSystemRoots) } else { Ok(found.certs) }
}

fn verifier(settings: &Settings, read: &Read, provider: &Arc<CryptoProvider>) -> Result<Verifier, FilesError> {
    let algorithms = provider.signature_verification_algorithms;
    let parameter = "sslrootcert";
    let unusable = |source: io::Error| FilesError::Unusable { parameter, source: source.into() };
    let mut store = RootCertStore::empty();
    let certificates = match (&settings.roots, &read.roots) {
        (Some(Roots::File(path)), Some(Found::File(bytes))) => pem::certificates(parameter, path, bytes)?,
        (_, Some(Found::System(certificates))) => certificates.clone(),
        (_, None | Some(Found::File(_))) => return Ok(Verifier { algorithms, chain: None }),
    };
    // Old certificates that are their own root are not read as roots, and stand for themselves nonetheless.
    store.add_parsable_certificates(certificates.iter().cloned());
    let issuers = if store.is_empty() {
        None
    } else {
        let builder = WebPkiServerVerifier::builder_with_provider(store.into(), provider.clone());
        let revoked = match (&settings.revoked, &read.revoked) {
            (Some(path), Some(bytes)) => pem::revocations(path, bytes)?,
            (None | Some(_), None) | (None, Some(_)) => Vec::new(),
        };
        let builder = builder.with_crls(revoked).enforce_revocation_expiration();
        let built: Result<_, client::VerifierBuilderError> = builder.build();
        Some(built.map_err(|error| unusable(io::Error::other(error)))?)
    };
    let name = settings.mode == Mode::VerifyFull;
    Ok(Verifier { algorithms, chain: Some(Chain { issuers, roots: certificates, name }) })
}
