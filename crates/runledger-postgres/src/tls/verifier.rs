//! What a server's certificate is held against.
//!
//! The signature of the handshake is always verified, also where the certificate is not: channel binding says that the
//! server with this certificate knows the password, and only the signature says that it is that server.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::name;

/// See the module.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// None: whoever answers.
    pub(super) chain: Option<Chain>,
}

/// The roots that a certificate comes from, and whether it bears the name.
#[derive(Debug)]
pub(super) struct Chain {
    /// None where no certificate of the file can be an issuer.
    pub(super) issuers: Option<Arc<WebPkiServerVerifier>>,
    pub(super) roots: Vec<CertificateDer<'static>>,
    pub(super) name: bool,
}

impl Chain {
    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        // A server whose own certificate is a root: as most do who made it with one call of openssl. As an issuer it
        // would be refused, for it is a CA.
        if self.roots.iter().any(|root| root == certificate) {
            in_time(certificate, now)?;
            return if self.name { name::verify(certificate, name) } else { Ok(()) };
        }
        let issuers = self.issuers.as_ref().ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        match issuers.verify_server_cert(certificate, intermediates, name, &[], now) {
            Ok(_) => Ok(()),
            // The name is looked at last: all else holds.
            Err(Error::InvalidCertificate(
                ref wrong @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
            )) => {
                if !self.name || name::is_common_name(certificate, name) {
                    Ok(())
                } else {
                    Err(Error::InvalidCertificate(wrong.clone()))
                }
            }
            Err(error) => Err(error),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(chain) = &self.chain {
            chain.verify(end_entity, intermediates, server_name, now)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // `openssl x509 -req` makes certificates of version 1 unless it is told otherwise, which are not read as
        // certificates here: their key is.
        if is_version_1(cert) {
            let key = SubjectPublicKeyInfoDer::from(parsed(cert)?.tbs_certificate.subject_pki.raw);
            return verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms);
        }
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

pub(super) fn parsed<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    let read = X509Certificate::from_der(certificate);
    read.map(|(_, read)| read).map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))
}

fn is_version_1(certificate: &CertificateDer<'_>) -> bool {
    parsed(certificate).is_ok_and(|read| read.version().0 == 0)
}

fn in_time(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let read = parsed(certificate)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < read.validity().not_before.timestamp() {
        return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
    }
    if now > read.validity().not_after.timestamp() {
        return Err(Error::InvalidCertificate(CertificateError::Expired));
    }
    Ok(())
}
