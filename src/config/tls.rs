//! The settings of TLS on the server's port.

use std::path::PathBuf;

use clap::Args;

use crate::tls::{ClientAuth, ClientFiles, TlsFiles};

/// See the module. All files are PEM, and are read again when they change.
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "the flags are named after the fields")]
pub struct TlsConfig {
    /// The server's certificate, and those up to its root (PEM): the port speaks TLS, and nothing else
    #[arg(long, env = "RUNLEDGER_TLS_CERT", value_name = "FILE")]
    pub(super) tls_cert: Option<PathBuf>,

    /// The key of the certificate (PEM, without a password)
    #[arg(long, env = "RUNLEDGER_TLS_KEY", value_name = "FILE")]
    pub(super) tls_key: Option<PathBuf>,

    /// The CAs whose clients are let in (PEM): clients show certificates
    #[arg(long, env = "RUNLEDGER_TLS_CLIENT_CA", value_name = "FILE")]
    pub(super) tls_client_ca: Option<PathBuf>,

    /// Revocation lists (PEM), one of each CA that issues clients' certificates: who is on one is not let in
    #[arg(long, env = "RUNLEDGER_TLS_CLIENT_CRL", value_name = "FILE")]
    pub(super) tls_client_crl: Option<PathBuf>,

    /// Whether a client without a certificate is let in [default: required]
    #[arg(long, env = "RUNLEDGER_TLS_CLIENT_AUTH", value_name = "WHETHER", value_enum)]
    tls_client_auth: Option<ClientAuth>,
}

impl TlsConfig {
    /// Whether the files that are named suffice. It is not the command line that knows, as a part of them may be named
    /// in the environment or in a file.
    ///
    /// # Errors
    ///
    /// A sentence that says which other file is to be named.
    pub fn check(&self) -> Result<(), &'static str> {
        let Self { tls_cert, tls_key, tls_client_ca, tls_client_crl, tls_client_auth } = self;
        match (tls_cert, tls_key, tls_client_ca) {
            (Some(_), None, _) => Err("--tls-cert needs --tls-key"),
            (None, Some(_), _) => Err("--tls-key needs --tls-cert"),
            (None, None, Some(_)) => Err("--tls-client-ca needs --tls-cert and --tls-key"),
            (_, _, None) if tls_client_crl.is_some() => Err("--tls-client-crl needs --tls-client-ca"),
            (_, _, None) if tls_client_auth.is_some() => Err("--tls-client-auth needs --tls-client-ca"),
            _ => Ok(()),
        }
    }

    /// The files, where the port is to speak TLS.
    #[must_use]
    pub fn files(&self) -> Option<TlsFiles> {
        let (certificate, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        let auth = self.tls_client_auth.unwrap_or_default();
        let client = self.tls_client_ca.clone().map(|ca| ClientFiles { ca, crl: self.tls_client_crl.clone(), auth });
        Some(TlsFiles { certificate, key, client })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        tls: TlsConfig,
    }

    fn read(flags: &str) -> Result<TlsConfig, String> {
        let words = ["runledger"].into_iter().chain(flags.split_whitespace());
        let tls = Flags::try_parse_from(words).map_err(|error| error.to_string())?.tls;
        tls.check()?;
        Ok(tls)
    }

    #[test]
    fn flags_of_tls_come_together_or_are_refused() {
        assert!(read("").unwrap().files().is_none());
        let files = read("--tls-cert c --tls-key k").unwrap().files().unwrap();
        assert!(files.client.is_none());
        let all = "--tls-cert c --tls-key k --tls-client-ca a --tls-client-crl r";
        let client = read(all).unwrap().files().unwrap().client.unwrap();
        assert_eq!((client.auth, client.crl), (ClientAuth::Required, Some("r".into())));
        let optional = read(&format!("{all} --tls-client-auth optional")).unwrap().files().unwrap();
        assert_eq!(optional.client.unwrap().auth, ClientAuth::Optional);
        for (flags, missing) in [
            ("--tls-cert c", "--tls-key"),
            ("--tls-key k", "--tls-cert"),
            ("--tls-client-ca a", "--tls-cert"),
            ("--tls-cert c --tls-key k --tls-client-crl r", "--tls-client-ca"),
            ("--tls-cert c --tls-key k --tls-client-auth optional", "--tls-client-ca"),
        ] {
            let error = read(flags).unwrap_err();
            assert!(error.contains(missing), "{flags}: {error}");
        }
    }
}
