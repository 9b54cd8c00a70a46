//! Refusals: reasons why a client is not served.

use rustls::{CertificateError, Error};
use std::fmt;

/// Reason why a client is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It does not use TLS, where that is wanted.
    NoTls,
    /// It has no certificate.
    NoCertificate,
    /// Its certificate is not good enough.
    Certificate {
        /// Why.
        reason: String,
    },
    /// It does not take our certificate.
    Distrusted {
        /// Its own words.
        reason: String,
    },
    /// It sends no TLS, or none that is understood.
    Garbled {
        /// The fault in it.
        reason: String,
    },
    /// It went away before TLS was agreed on.
    WentAway,
}

impl Refusal {
    /// The reason behind an error of TLS.
    pub(crate) fn of(error: &Error) -> Refusal {
        match error {
            Error::NoCertificatesPresented => Refusal::NoCertificate,
            Error::InvalidCertificate(error) => Refusal::Certificate { reason: fault(error) },
            Error::AlertReceived(alert) => Refusal::Distrusted { reason: format!("{alert:?}") },
            error => Refusal::Garbled { reason: error.to_string() },
        }
    }

    /// The kind of refusal, the same for all clients.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Refusal::NoTls => "no TLS",
            Refusal::NoCertificate => "no certificate",
            Refusal::Certificate { .. } => "certificate",
            Refusal::Distrusted { .. } => "distrusted",
            Refusal::Garbled { .. } => "garbled",
            Refusal::WentAway => "went away",
        }
    }
}

/// The fault of a certificate.
fn fault(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet; are the clocks right?".to_owned()
        }
        // An authority of the same name has another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "nobody in ca-cert.pem has signed it".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not one for clients".to_owned()
        }
        error => error.to_string(),
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoTls => f.write_str("it does not use TLS"),
            Refusal::NoCertificate => f.write_str("it has no certificate"),
            Refusal::Certificate { reason } => write!(f, "its certificate is not taken: {reason}"),
            Refusal::Distrusted { reason } => write!(f, "it does not take our certificate ({reason})"),
            Refusal::Garbled { reason } => write!(f, "its TLS is not understood: {reason}"),
            Refusal::WentAway => f.write_str("it went away before TLS was agreed on"),
        }
    }
}
