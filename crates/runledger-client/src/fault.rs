//! The reasons why a client and a server that is there do not come to an HTTP/2 connection, each told in one sentence.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error as TlsError};

/// The reason why a client and a server that is there have no connection. Whatever it is, nothing was asked of the
/// server, and somebody has to look at it: no other server is called in its place without a word.
///
/// Each is a clause that goes on after the server's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Nobody who is trusted vouches for the server's certificate.
    #[error("its certificate was issued by a CA that is not trusted here")]
    UnknownCa,
    /// The server's certificate is over.
    #[error("its certificate expired {} ago", spoken(*.0))]
    Expired(Duration),
    /// The server's certificate is not valid yet.
    #[error("its certificate is valid only in {}: one of the two clocks may be wrong", spoken(*.0))]
    NotValidYet(Duration),
    /// The server's certificate has other names.
    #[error("its certificate is for {presented} and not for {expected}")]
    WrongName {
        /// The name that was called.
        expected: String,
        /// The names in the certificate.
        presented: String,
    },
    /// The server's certificate is not accepted for another reason.
    #[error("its certificate is not accepted: {0}")]
    BadCertificate(String),
    /// The server does not speak TLS.
    #[error("it does not speak TLS: it serves plain text")]
    PlainText,
    /// The server hung up on a TLS hello.
    #[error("it closed the connection when TLS began: it may serve plain text")]
    HungUp,
    /// The server speaks TLS, and was called in plain text.
    #[error("it speaks TLS, and was called in plain text")]
    SpeaksTls,
    /// The server answers in another protocol than HTTP/2.
    #[error("it does not answer in HTTP/2: it is no gRPC server, or a proxy before it does not pass HTTP/2 on")]
    NoHttp2,
    /// The server asks for a certificate, and the client has none.
    #[error("it asks for a client certificate, and none was given")]
    WantsCertificate,
    /// The server ended the connection right after the handshake, without a word.
    #[error("it ended the connection right after the TLS handshake: {0}")]
    Ended(&'static str),
    /// The server does not accept the client's certificate.
    #[error("it does not accept the client certificate: {0}")]
    RefusedCertificate(&'static str),
    /// The server ends the handshake for another reason.
    #[error("it refused the TLS handshake: {0}")]
    RefusedHandshake(String),
    /// The handshake failed on this side for another reason.
    #[error("the TLS handshake failed: {0}")]
    Handshake(String),
    /// The server's name leads to another machine, and the token would cross the network for everybody to read.
    #[error("its name leads to {0}, and the token would be sent there in plain text, for everybody on the way to read")]
    TokenInPlainText(IpAddr),
    /// The client's own files cannot be used.
    #[error("{0}")]
    Files(String),
}

impl Fault {
    /// Whether the fault is in the client's own files, and no server had a part in it.
    #[must_use]
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Files(_))
    }

    /// Whether the server may just have ended: then another one may be called in its place.
    pub(crate) fn may_be_an_end(&self) -> bool {
        matches!(self, Self::HungUp | Self::Ended(_))
    }

    /// The fault of a handshake that failed.
    pub(crate) fn of_handshake(error: &io::Error, has_identity: bool) -> Self {
        match of_rustls(error) {
            Some(TlsError::InvalidCertificate(error)) => Self::of_certificate(error),
            // The first bytes of the answer are no TLS record.
            Some(TlsError::InvalidMessage(_)) => Self::PlainText,
            Some(TlsError::NoApplicationProtocol) => Self::NoHttp2,
            Some(TlsError::AlertReceived(alert)) => Self::of_alert(*alert, has_identity),
            Some(error) => Self::Handshake(error.to_string()),
            None if [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset].contains(&error.kind()) => {
                Self::HungUp
            }
            None => Self::Handshake(error.to_string()),
        }
    }

    /// The fault behind a first read that failed on a connection whose handshake was done: with TLS 1.3, a client hears
    /// only then that its certificate was refused.
    pub(crate) fn of_first_read(error: &io::Error, has_identity: bool) -> Option<Self> {
        let TlsError::AlertReceived(alert) = of_rustls(error)? else { return None };
        Some(Self::of_alert(*alert, has_identity))
    }

    /// The fault that the first bytes of an answer in plain text show. An HTTP/2 server begins with its settings.
    pub(crate) fn of_first_bytes(bytes: &[u8]) -> Option<Self> {
        const SETTINGS: u8 = 4;
        match bytes {
            // A TLS record with an alert, or with a part of a handshake.
            [0x15 | 0x16, 3, ..] => Some(Self::SpeaksTls),
            [_, _, _, SETTINGS, ..] | [] => None,
            [0, ..] if bytes.len() < 4 => None,
            _ => Some(Self::NoHttp2),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "rustls has many more errors, and may have others")]
    fn of_certificate(error: &CertificateError) -> Self {
        let between =
            |later: UnixTime, earlier: UnixTime| Duration::from_secs(later.as_secs().saturating_sub(earlier.as_secs()));
        match error {
            CertificateError::UnknownIssuer => Self::UnknownCa,
            CertificateError::ExpiredContext { time, not_after } => Self::Expired(between(*time, *not_after)),
            CertificateError::NotValidYetContext { time, not_before } => Self::NotValidYet(between(*not_before, *time)),
            CertificateError::NotValidForNameContext { expected, presented } => {
                let names: Vec<_> = presented.iter().map(|name| bare(name)).collect();
                let presented = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
                Self::WrongName { expected: expected.to_str().into_owned(), presented }
            }
            other => Self::BadCertificate(other.to_string()),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "TLS has many more alerts, and may have others")]
    fn of_alert(alert: AlertDescription, has_identity: bool) -> Self {
        let refused = match alert {
            AlertDescription::CertificateRequired => return Self::WantsCertificate,
            AlertDescription::NoApplicationProtocol => return Self::NoHttp2,
            // TLS 1.2 has no alert of its own for a certificate that is missing.
            AlertDescription::HandshakeFailure | AlertDescription::BadCertificate if !has_identity => {
                return Self::RefusedHandshake(format!("{alert:?} (it may ask for a client certificate)"));
            }
            AlertDescription::UnknownCA => "its CA is not trusted there",
            AlertDescription::CertificateExpired => "it has expired",
            AlertDescription::CertificateRevoked => "it was revoked",
            AlertDescription::CertificateUnknown => "it is not known there",
            AlertDescription::BadCertificate | AlertDescription::UnsupportedCertificate => "it is not sound",
            AlertDescription::AccessDenied => "it has no access",
            other => return Self::RefusedHandshake(format!("{other:?}")),
        };
        if has_identity { Self::RefusedCertificate(refused) } else { Self::RefusedHandshake(format!("{alert:?}")) }
    }
}

/// The error of TLS inside an error of I/O.
fn of_rustls(error: &io::Error) -> Option<&TlsError> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// A name of a certificate, of which rustls says the kind: `DnsName("a.example")`.
fn bare(name: &str) -> &str {
    name.split_once('(').and_then(|(_kind, rest)| rest.strip_suffix(')')).map_or(name, |name| name.trim_matches('"'))
}

/// A time in its largest unit.
fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    let (count, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7_200 => (seconds / 60, "minute"),
        7_200..172_800 => (seconds / 3_600, "hour"),
        172_800.. => (seconds / 86_400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_what_a_server_speaks() {
        let settings = [0, 0, 18, 4, 0, 0, 0, 0, 0];
        for (bytes, fault) in [
            (&settings[..], None),
            (&settings[..2], None),
            (&[], None),
            (&[0x15, 3, 3, 0, 2, 2, 22], Some(Fault::SpeaksTls)),
            (b"HTTP/1.1 400 Bad Request", Some(Fault::NoHttp2)),
            (b"SSH-2.0-OpenSSH", Some(Fault::NoHttp2)),
        ] {
            assert_eq!(Fault::of_first_bytes(bytes), fault, "{bytes:?}");
        }
    }

    #[test]
    fn a_time_is_told_in_a_unit_that_people_count_in() {
        for (seconds, told) in [(1, "1 second"), (119, "119 seconds"), (7_199, "119 minutes"), (90_000, "25 hours")] {
            assert_eq!(spoken(Duration::from_secs(seconds)), told);
        }
        assert_eq!(spoken(Duration::from_hours(24 * 400)), "400 days");
    }
}
