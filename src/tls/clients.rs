//! The verifier of clients' chains: that of webpki, by the clock of credentials instead of the machine's.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::clock::{Clock, unix};

/// See the module.
#[derive(Clone)]
pub(super) struct Clients {
    inner: Arc<dyn ClientCertVerifier>,
    clock: Arc<dyn Clock>,
}

impl Clients {
    pub(super) fn new(inner: Arc<dyn ClientCertVerifier>, clock: Arc<dyn Clock>) -> Self {
        Self { inner, clock }
    }

    /// Verifies a client's chain. One that is too new for the time now may have begun by the latest time that it may be:
    /// by that, too, it must not have ended.
    pub(super) fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Result<ClientCertVerified, Error> {
        let by = |time| self.inner.verify_client_cert(end_entity, intermediates, unix(time));
        match by(self.clock.now()) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            )) => by(self.clock.latest()),
            verified => verified,
        }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clients").field(&self.inner).finish()
    }
}

impl ClientCertVerifier for Clients {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _by_the_machine: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(end_entity, intermediates)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    use rustls::RootCertStore;
    use rustls::server::WebPkiClientVerifier;

    use super::*;
    use crate::domain::Time;

    /// In seconds.
    const YEAR: i64 = 31_557_600;

    /// A clock that stands, in seconds.
    struct Stands {
        now: i64,
        latest: i64,
    }

    impl Clock for Stands {
        fn now(&self) -> Time {
            Time::from_micros(self.now * 1_000_000)
        }

        fn latest(&self) -> Time {
            Time::from_micros(self.latest * 1_000_000)
        }
    }

    #[test]
    fn a_clients_certificate_holds_by_the_clock_of_credentials_and_not_by_the_machines() {
        let mut ca = CertificateParams::new([]).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (ca.not_before, ca.not_after) = (rcgen::date_time_ymd(1990, 1, 1), rcgen::date_time_ymd(2090, 1, 1));
        let ca_key = KeyPair::generate().unwrap();
        let root = ca.self_signed(&ca_key).unwrap();
        let mut client = CertificateParams::new(["client".to_owned()]).unwrap();
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        (client.not_before, client.not_after) = (rcgen::date_time_ymd(2001, 1, 1), rcgen::date_time_ymd(2002, 1, 1));
        let key = KeyPair::generate().unwrap();
        let client = client.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let webpki = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        for (now, latest, is_good) in [
            (31 * YEAR + 1_000_000, 31 * YEAR + 1_000_000, true),
            (31 * YEAR + 1_000_000, 50 * YEAR, true),
            (33 * YEAR, 33 * YEAR, false),
            (YEAR, 31 * YEAR + 1_000_000, true),
            (YEAR, YEAR, false),
            (YEAR, 50 * YEAR, false),
        ] {
            let clients = Clients::new(webpki.clone(), Arc::new(Stands { now, latest }));
            let verified =
                ClientCertVerifier::verify_client_cert(&clients, client.der(), &[], unix(Time::from_micros(0)));
            assert_eq!(verified.is_ok(), is_good, "{now} {latest}: {verified:?}");
        }
    }
}
