//! TLS as a client: settings, handshakes, and what their failures mean.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{AlertDescription, CertificateError, ClientConfig, Error};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tollgate_options::network::ClientTls;

use super::error::{DialError, DialFault, Reason};
use crate::roots::{self, RootsUnread};

/// Maximum number of cached settings: one per upstream with its own, and one for each change of its files.
const CONFIGS_MAX: usize = 256;
/// The most names of a certificate in a message.
const NAMES_SHOWN_MAX: usize = 3;

/// The settings of TLS that are in use. Those of one fingerprint share the sessions that can be resumed.
#[derive(Debug, Default)]
pub(super) struct TlsConfigs(Mutex<Vec<([u8; 32], Arc<ClientConfig>)>>);

impl TlsConfigs {
    pub(super) async fn get(&self, tls: &ClientTls) -> Result<Arc<ClientConfig>, Reason> {
        if tls.authorities.is_none() {
            // Reading hundreds of files would hold the other connections of this thread up.
            roots::ready().await.map_err(Reason::exhausted)?;
        }
        if tls.authorities.is_none() && tls.certificate.is_none() {
            return roots::client_config().map_err(unusable);
        }
        let cached = |all: &Vec<([u8; 32], Arc<ClientConfig>)>| {
            let found = all.iter().find(|(fingerprint, _)| *fingerprint == tls.fingerprint);
            found.map(|(_, config)| Arc::clone(config))
        };
        if let Some(config) = cached(&self.0.lock()) {
            return Ok(config);
        }
        let config = Arc::new(configure(tls).map_err(unusable)?);
        let mut all = self.0.lock();
        if all.len() >= CONFIGS_MAX {
            all.clear();
        }
        all.push((tls.fingerprint, Arc::clone(&config)));
        Ok(config)
    }
}

fn configure(tls: &ClientTls) -> Result<ClientConfig, Error> {
    let builder = roots::builder()?;
    let builder = match &tls.authorities {
        Some(authorities) => builder.with_root_certificates(Arc::clone(authorities)),
        None => roots::by_machine(builder),
    };
    let mut config = match &tls.certificate {
        Some(certificate) => {
            let resolver = SingleCertAndKey::from(Arc::clone(certificate));
            builder.with_client_cert_resolver(Arc::new(resolver))
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![roots::HTTP_1.to_vec()];
    Ok(config)
}

fn unusable(error: Error) -> Reason {
    Reason::new(DialFault::Tls, format!("TLS cannot be spoken: {error}"))
}

pub(super) async fn handshake<S>(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    stream: S,
) -> Result<TlsStream<S>, Reason>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let secured = TlsConnector::from(config).connect(name, stream).await;
    secured.map_err(|error| match tls_error(&error) {
        Some(error) => reason(error),
        None => match Reason::from(error) {
            Reason { fault: DialFault::Closed, text } => Reason::new(
                DialFault::Tls,
                format!("{text} in the TLS handshake: is TLS spoken at this port?"),
            ),
            other => other,
        },
    })
}

fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Reads from a connection's error that the server refused the client certificate, or its absence: since TLS
/// 1.3 this follows the handshake. The server has read nothing of the request then.
#[must_use]
pub fn certificate_refusal(
    who: &str,
    error: &(dyn std::error::Error + 'static),
) -> Option<DialError> {
    let mut next = Some(error);
    while let Some(error) = next {
        let found = error.downcast_ref::<io::Error>().and_then(tls_error);
        if let Some(found) = found.or_else(|| error.downcast_ref())
            && reason(found).fault == DialFault::TlsClientCertificate
        {
            return Some(DialError::new(who, reason(found)));
        }
        next = error.source();
    }
    None
}

/// Describes a TLS failure for operators.
fn reason(error: &Error) -> Reason {
    let (fault, text) = match error {
        Error::InvalidCertificate(error) => return certificate_reason(error),
        Error::Other(error) if let Some(RootsUnread(resource)) = error.0.downcast_ref() => {
            return Reason::exhausted(*resource);
        }
        Error::InvalidMessage(_) => (
            DialFault::TlsPlainPort,
            "what it says is not TLS: this port speaks something else".to_owned(),
        ),
        Error::PeerIncompatible(error) => {
            (DialFault::TlsVersion, format!("no version or cipher of TLS in common: {error:?}"))
        }
        Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => {
                (DialFault::TlsClientCertificate, "TLS: it wants a client certificate".to_owned())
            }
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied => (
                DialFault::TlsClientCertificate,
                format!("TLS: it refuses the client certificate, or the lack of one: {alert:?}"),
            ),
            AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity => (
                DialFault::TlsVersion,
                "TLS: it speaks neither version 1.2 nor 1.3, or no cipher in common".to_owned(),
            ),
            AlertDescription::UnrecognisedName => {
                (DialFault::TlsName, "TLS: it knows no server of that name".to_owned())
            }
            alert => (DialFault::Tls, format!("TLS: it broke the handshake off: {alert:?}")),
        },
        error => (DialFault::Tls, format!("TLS: {error}")),
    };
    Reason::new(fault, text)
}

fn certificate_reason(error: &CertificateError) -> Reason {
    use CertificateError as Fault;
    let (fault, text) = match error {
        Fault::UnknownIssuer => (
            DialFault::TlsUntrusted,
            "TLS: its certificate is not from an authority that is trusted".to_owned(),
        ),
        // An authority of that name is trusted, and has another key.
        Fault::BadSignature => (
            DialFault::TlsUntrusted,
            "TLS: its certificate is signed with another key than that of the authority of that \
             name, which is trusted"
                .to_owned(),
        ),
        Fault::Expired => (DialFault::TlsExpired, "TLS: its certificate has expired".to_owned()),
        Fault::ExpiredContext { not_after, .. } => {
            let at = time(not_after.as_secs());
            (DialFault::TlsExpired, format!("TLS: its certificate expired {at}"))
        }
        Fault::NotValidYet => {
            (DialFault::TlsNotYetValid, "TLS: its certificate is not valid yet".to_owned())
        }
        Fault::NotValidYetContext { not_before, .. } => {
            let at = time(not_before.as_secs());
            (DialFault::TlsNotYetValid, format!("TLS: its certificate is not valid before {at}"))
        }
        Fault::NotValidForName => {
            (DialFault::TlsName, "TLS: its certificate is for another name".to_owned())
        }
        Fault::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            let names = presented.iter().take(NAMES_SHOWN_MAX).map(|name| plain(name));
            let names = names.collect::<Vec<_>>().join(", ");
            let names = if names.is_empty() { "no name at all".to_owned() } else { names };
            (DialFault::TlsName, format!("TLS: its certificate is for {names}, not for {expected}"))
        }
        Fault::Revoked => (DialFault::TlsUntrusted, "TLS: its certificate is revoked".to_owned()),
        // Whose certificate is an authority's has signed it himself, as a rule.
        Fault::Other(error) if format!("{error:?}").contains("CaUsedAsEndEntity") => (
            DialFault::TlsUntrusted,
            "TLS: its certificate is an authority's own, which is not trusted".to_owned(),
        ),
        error => (DialFault::Tls, format!("TLS: its certificate cannot be used: {error}")),
    };
    Reason::new(fault, text)
}

/// A name out of the text in which rustls shows it: `DnsName("localhost")`.
fn plain(shown: &str) -> &str {
    let inside = shown.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inside.unwrap_or(shown).trim_matches('"')
}

/// A time that a certificate names.
fn time(seconds: u64) -> String {
    tollgate_types::clock::UnixMs(seconds.saturating_mul(1000)).to_rfc3339()
}
