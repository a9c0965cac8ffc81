//! Whether a certificate bears a server's name.
//!
//! The names are the certificate's alternative ones. As libpq does it, the common name counts where a certificate has
//! no alternative name: many that were made for Postgres by hand have none.

use rustls::Error;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use x509_parser::prelude::GeneralName;

use super::verifier::parsed;

/// Holds a certificate whose issuer is verified against a name.
pub(super) fn verify(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    if is_common_name(certificate, name) {
        return Ok(());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
}

/// Whether a certificate without an alternative name has this name as its common name.
pub(super) fn is_common_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let Ok(read) = parsed(certificate) else { return false };
    let has_others = match read.subject_alternative_name() {
        Ok(names) => names.is_some_and(|names| {
            names
                .value
                .general_names
                .iter()
                .any(|name| matches!(name, GeneralName::DNSName(_) | GeneralName::IPAddress(_)))
        }),
        // Whatever cannot be read may be a name.
        Err(_) => true,
    };
    let common = read.subject().iter_common_name().next().and_then(|common| common.as_str().ok());
    !has_others && common.is_some_and(|common| matches(common, name.to_str().as_ref(), name))
}

/// A star stands for the first label of a host's name, and for nothing of an address.
fn matches(common: &str, wanted: &str, name: &ServerName<'_>) -> bool {
    let of_star = common.strip_prefix("*.").filter(|rest| rest.contains('.') && matches!(name, ServerName::DnsName(_)));
    match of_star {
        Some(rest) => wanted.split_once('.').is_some_and(|(_, domain)| domain.eq_ignore_ascii_case(rest)),
        None => common.eq_ignore_ascii_case(wanted),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(common: &str, others: &[&str]) -> CertificateDer<'static> {
        let names: Vec<String> = others.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_common_name_counts_only_where_there_is_no_other() {
        for (common, others, name, bears) in [
            ("db.example", &[][..], "db.example", true),
            ("DB.example", &[], "db.Example", true),
            ("db.example", &[], "other.example", false),
            ("db.example", &["x.example"], "db.example", false),
            ("x", &["db.example"], "db.example", true),
            ("x", &["*.example.org"], "db.example.org", true),
            ("*.example.org", &[], "db.example.org", true),
            ("*.example.org", &[], "a.db.example.org", false),
            ("*.org", &[], "example.org", false),
            ("127.0.0.1", &[], "127.0.0.1", true),
            ("*.0.0.1", &[], "127.0.0.1", false),
            ("x", &["127.0.0.1"], "127.0.0.1", true),
            ("x", &["127.0.0.1"], "127.0.0.2", false),
        ] {
            let server = ServerName::try_from(name).unwrap();
            let verified = verify(&certificate(common, others), &server);
            assert_eq!(verified.is_ok(), bears, "{common} {others:?} for {name}: {verified:?}");
        }
    }
}
