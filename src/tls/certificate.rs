//! A client's certificate, as far as it says who the client is.

use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::domain::Time;

/// Bytes of a name: those of a SPIFFE ID.
const NAME_BYTES_MAX: usize = 2048;

/// A certificate by which a client has shown who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The client's name: its URI (as SPIFFE has it), or else its first DNS name.
    pub name: String,
    /// The distinguished name of the CA that says so.
    pub issuer: String,
    /// The time after which the certificate says nothing any more.
    pub not_after: Time,
}

/// The reason why a certificate that verifies does not name a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum Unnamed {
    #[error("the certificate cannot be read")]
    Unreadable,
    #[error("the certificate has no URI and no DNS name")]
    NoName,
    #[error("the certificate has more than one URI")]
    TwoUris,
    #[error("the certificate's name is empty, too long, or has characters that no name has")]
    StrangeName,
}

impl ClientCertificate {
    /// Reads a certificate that was verified.
    pub(super) fn read(der: &[u8]) -> Result<Self, Unnamed> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_broken| Unnamed::Unreadable)?;
        let names = certificate.subject_alternative_name().map_err(|_twice| Unnamed::Unreadable)?;
        let names = names.map_or(&[][..], |names| &names.value.general_names);
        let mut uris = names.iter().filter_map(|name| if let GeneralName::URI(uri) = name { Some(*uri) } else { None });
        let mut hosts =
            names.iter().filter_map(|it| if let GeneralName::DNSName(host) = it { Some(*host) } else { None });
        let name = match (uris.next(), uris.next()) {
            (Some(_), Some(_)) => return Err(Unnamed::TwoUris),
            (Some(uri), None) => uri,
            (None, _) => hosts.next().ok_or(Unnamed::NoName)?,
        };
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Unnamed::StrangeName);
        }
        let not_after = time(certificate.validity().not_after.timestamp());
        Ok(Self { name: name.to_owned(), issuer: certificate.issuer().to_string(), not_after })
    }
}

/// A time from seconds since the epoch.
pub(super) fn time(seconds: i64) -> Time {
    Time::from_micros(seconds.saturating_mul(1_000_000))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn named(names: &[SanType]) -> Result<ClientCertificate, Unnamed> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "a common name");
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        params.subject_alt_names = names.to_vec();
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        ClientCertificate::read(certificate.der())
    }

    fn uri(text: &str) -> SanType {
        SanType::URI(text.try_into().unwrap())
    }

    fn host(text: &str) -> SanType {
        SanType::DnsName(text.try_into().unwrap())
    }

    #[test]
    fn a_client_is_named_by_its_uri_or_else_by_its_first_host_and_never_by_its_common_name() {
        let name = |names: &[SanType]| named(names).map(|it| it.name);
        assert_eq!(name(&[host("a.b"), uri("spiffe://d/x")]).as_deref(), Ok("spiffe://d/x"));
        assert_eq!(name(&[host("a.b"), host("c.d")]).as_deref(), Ok("a.b"));
        assert_eq!(name(&[uri("spiffe://d/x"), uri("spiffe://d/y")]), Err(Unnamed::TwoUris));
        assert_eq!(name(&[]), Err(Unnamed::NoName));
        assert_eq!(name(&[SanType::Rfc822Name("a@b.c".try_into().unwrap())]), Err(Unnamed::NoName));
        for strange in ["spiffe://d/\u{0}x", "spiffe://d/a b", "", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!(name(&[uri(strange)]), Err(Unnamed::StrangeName), "{strange:?}");
        }
        assert_eq!(ClientCertificate::read(b"no certificate"), Err(Unnamed::Unreadable));
    }

    #[test]
    fn a_certificate_says_who_made_it_and_until_when_it_holds() {
        let read = named(&[host("a.b")]).unwrap();
        assert!(read.issuer.contains("CN=a common name"), "{}", read.issuer);
        assert_eq!(read.not_after.to_string(), "2030-01-01T00:00:00.000000Z");
    }
}
