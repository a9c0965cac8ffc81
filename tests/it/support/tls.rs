//! Certificates made for a test, the files that a server is given, and clients that speak TLS.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
    date_time_ymd,
};
use runledger::clock::{Clock as _, SystemClock};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Endpoint;

use tower::service_fn;

use super::everywhere::{Bearer, Wire};

/// A CA.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
    serial: SerialNumber,
}

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a server at loopback.
    pub(crate) fn server(&self) -> Pair {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
        self.signs(CertificateParams::new(names).unwrap(), ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a client with these URIs.
    pub(crate) fn client(&self, uris: &[&str]) -> Pair {
        self.client_until(uris, 4_000_000_000)
    }

    /// The same, which holds until this second after the epoch.
    pub(crate) fn client_until(&self, uris: &[&str], not_after: u64) -> Pair {
        let mut params = CertificateParams::default();
        params.subject_alt_names = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(not_after);
        self.signs(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A certificate for a client of Postgres, which is known by its common name.
    pub(crate) fn named(&self, name: &str) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        self.signs(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn signs(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Pair {
        static SERIALS: AtomicU64 = AtomicU64::new(1);
        let serial = SerialNumber::from(SERIALS.fetch_add(1, Ordering::Relaxed));
        params.serial_number = Some(serial.clone());
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        Pair { certificate, key: key.serialize_pem(), serial }
    }

    /// The list of the CA's certificates that are revoked.
    pub(crate) fn revokes(&self, pairs: &[&Pair]) -> String {
        let revoked = pairs.iter().map(|pair| RevokedCertParams {
            serial_number: pair.serial.clone(),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).unwrap().pem().unwrap()
    }

    /// The settings of a client that trusts this CA alone.
    pub(crate) fn trusted(&self, own: Option<&Pair>, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![pair.der()], key).unwrap()
            }
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }
}

impl Pair {
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()
    }

    /// Puts the pair where a server looks for it.
    pub(crate) fn write(&self, certificate: &Path, key: &Path) {
        replace(certificate, &self.certificate);
        replace(key, &self.key);
    }
}

/// Replaces a file by one step, as tools do that renew certificates.
pub(crate) fn replace(file: &Path, text: &str) {
    let next = file.with_extension("next");
    fs::write(&next, text).unwrap();
    fs::rename(next, file).unwrap();
}

/// The second after the epoch that comes so many after now.
pub(crate) fn seconds_after_now(seconds: u64) -> u64 {
    u64::try_from(SystemClock.now().micros()).unwrap() / 1_000_000 + seconds
}

/// Connects and makes the handshake.
pub(crate) async fn connect(
    address: SocketAddr,
    config: Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, std::io::Error> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(config).connect(ServerName::IpAddress(address.ip().into()), stream).await
}

/// A channel that connects when it is first used, and again after each cut.
pub(crate) fn channel(address: SocketAddr, config: Arc<ClientConfig>) -> Wire {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let channel =
        endpoint.connect_timeout(Duration::from_secs(5)).connect_with_connector_lazy(service_fn(move |_uri| {
            let config = config.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(connect(address, config).await?)) }
        }));
    InterceptedService::new(channel, Bearer)
}
