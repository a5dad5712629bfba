//! Compiles the connection to an upstream: forward proxy and TLS.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::certificate::{Certificate, CertificateFile, CertificateFiles};
use crate::document::{Document, Fault};
use crate::raw;
use crate::spans::DocumentPath;
use tollgate_options::network::{ClientTls, Destination, Proxy, ProxyRules};
use tollgate_options::postgres::authorities_of;
use tollgate_types::clock::UnixMs;

/// Name for no proxy.
const NO_PROXY: &str = "none";

/// Help for an unusable client certificate.
const CERTIFICATE_HELP: &str = "a readable PEM file with a client certificate that is valid now, and the \
                                intermediates behind it; a relative path begins at the directory of \
                                this YAML file";

/// The field `proxy` of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TypedProxy {
    /// Nothing: the environment decides for each host.
    Default,
    /// This proxy, or none, regardless of the environment.
    Fixed(Option<Arc<Proxy>>),
}

/// A server that may be behind a proxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerAddress<'a> {
    /// True for a server with TLS.
    tls: bool,
    /// The name or address, without brackets.
    host: &'a str,
    port: u16,
}

impl<'a> ServerAddress<'a> {
    /// The server of a URL.
    pub(super) fn of_url(url: &'a Url) -> Self {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = url.port_or_known_default().unwrap_or_default();
        Self { tls: url.scheme() == "https", host, port }
    }
}

impl TypedProxy {
    /// The proxy of an upstream; notes a text that is none.
    pub(super) fn compile(
        document: &mut Document,
        path: &DocumentPath,
        raw: &raw::UpstreamEntry,
    ) -> Self {
        let Some(typed) = &raw.proxy else { return Self::Default };
        match typed.0.expose().trim() {
            NO_PROXY => Self::Fixed(None),
            text => match Proxy::parse(text) {
                Ok(proxy) => Self::Fixed(Some(Arc::new(proxy))),
                Err(error) => {
                    let fault = Fault::at_value(&path.key("proxy"), error.message);
                    document.note(fault.help(format!("{}, or `none`", error.help)));
                    Self::Fixed(None)
                }
            },
        }
    }

    /// The proxy in front of a host; notes at `path` that the environment names none that can be used.
    pub(super) fn before(
        &self,
        document: &mut Document,
        path: &DocumentPath,
        rules: &ProxyRules,
        place: ServerAddress<'_>,
    ) -> Option<Arc<Proxy>> {
        match self {
            Self::Fixed(proxy) => proxy.clone(),
            Self::Default => {
                rules.find(place.tls, place.host, place.port).unwrap_or_else(|error| {
                    let message = format!("the proxy for it cannot be used: {error}");
                    let help = format!("{}, or add `proxy: none`", error.error.help);
                    document.note(Fault::at_key(path, message).help(help));
                    None
                })
            }
        }
    }
}

/// Compile the connection settings of the upstream at `path`, as far as they are valid.
pub(super) fn compile(
    document: &mut Document,
    path: &DocumentPath,
    raw: &raw::UpstreamEntry,
    proxy: &TypedProxy,
    rules: &ProxyRules,
) -> Destination {
    let url = &raw.base_url;
    let proxy = proxy.before(
        document,
        path,
        rules,
        ServerAddress { tls: url.tls, host: &url.host, port: url.port },
    );
    let tls = match &raw.tls {
        Some(_) if !url.tls => {
            let fault = Fault::at_key(&path.key("tls"), "there is no TLS with `http://`");
            document.note(fault.help("begin `base_url` with `https://`, or remove this"));
            None
        }
        Some(typed) => Some(client_tls(document, &path.key("tls"), typed)),
        None => url.tls.then(ClientTls::default),
    };
    Destination { host: url.host.clone(), port: url.port, tls, proxy }
}

fn client_tls(document: &mut Document, path: &DocumentPath, raw: &raw::UpstreamTls) -> ClientTls {
    let mut hasher = Sha256::new();
    let authorities =
        raw.ca_file.as_deref().and_then(|file| match authorities_of(&document.beside(file)) {
            Ok(authorities) => Some(authorities),
            Err(reason) => {
                let message = format!("the authorities cannot be used: {reason}");
                let help = "a PEM file; a relative path begins at the directory of this YAML file";
                document.note(Fault::at_value(&path.key("ca_file"), message).help(help));
                None
            }
        });
    if let Some(authorities) = &authorities {
        add(&mut hasher, authorities);
    }
    let certificate = client_certificate(document, path, raw);
    if let Some(certificate) = &certificate {
        // The tag keeps a certificate apart from a server name of the same bytes.
        hasher.update([1]);
        hasher.update(certificate.fingerprint());
    }
    if let Some(name) = &raw.server_name {
        if ServerName::try_from(name.as_str()).is_err() {
            let fault = Fault::at_value(&path.key("server_name"), "no server can be called so");
            document.note(fault.help("a DNS name or an IP address, without a port"));
        }
        hasher.update([2]);
        hasher.update(name);
    }
    let is_usual = authorities.is_none() && certificate.is_none() && raw.server_name.is_none();
    ClientTls {
        authorities: authorities.map(Arc::new),
        certificate: certificate.map(|certificate| certificate.certified),
        server_name: raw.server_name.clone(),
        // Connections are pooled by this: upstreams with the usual settings share theirs.
        fingerprint: if is_usual { [0; 32] } else { hasher.finalize().into() },
    }
}

/// Adds the trusted authorities to a digest.
fn add(hasher: &mut Sha256, authorities: &RootCertStore) {
    for authority in &authorities.roots {
        for part in [&authority.subject, &authority.subject_public_key_info] {
            // The length keeps a byte that moves between two parts from going unseen.
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
    }
}

fn client_certificate(
    document: &mut Document,
    path: &DocumentPath,
    raw: &raw::UpstreamTls,
) -> Option<Certificate> {
    let (certificate, key) = match (&raw.certificate, &raw.key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return None,
        (present, _) => {
            let (has, lacks) =
                if present.is_some() { ("certificate", "key") } else { ("key", "certificate") };
            let message = format!("a client certificate needs its `{lacks}` too");
            document.note(Fault::at_key(&path.key(has), message));
            return None;
        }
    };
    let files =
        CertificateFiles { certificate: document.beside(certificate), key: document.beside(key) };
    match Certificate::load(&files, UnixMs::now()) {
        Ok(certificate) => Some(certificate),
        Err(errors) => {
            for error in errors {
                let (field, help) = match error.file {
                    CertificateFile::Certificate => ("certificate", CERTIFICATE_HELP),
                    CertificateFile::Key => ("key", error.help),
                };
                document.note(Fault::at_value(&path.key(field), error.message).help(help));
            }
            None
        }
    }
}
