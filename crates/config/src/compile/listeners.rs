//! `listeners`: addresses, and the certificates that are shown there.

use std::collections::HashSet;
use std::sync::Arc;

use crate::certificate::{Certificate, CertificateFile, CertificateFiles};
use crate::document::{Document, Fault};
use crate::snapshot::{Admin, Listener};
use crate::spans::DocumentPath;
use crate::{Overrides, raw};
use tollgate_types::clock::UnixMs;

/// Compiles valid listeners, and reports the others.
pub(super) fn compile(
    document: &mut Document,
    raw: &[raw::ListenerEntry],
    admin: &Admin,
    overrides: &Overrides,
) -> Vec<Listener> {
    if let Some(address) = overrides.listen {
        // The command line replaces the whole list: a test or a demo must not open other ports.
        return vec![Listener { address, h2c: true, proxy_protocol: false, tls: None }];
    }
    let path = DocumentPath::root().key("listeners");
    if raw.is_empty() {
        let help = "such as `- address: 0.0.0.0:8080`";
        document.note(Fault::at_key(&path, "there is no listener").help(help));
    }
    let mut seen = HashSet::from([admin.address]);
    let mut listeners = Vec::with_capacity(raw.len());
    for (index, raw) in raw.iter().enumerate() {
        let path = path.index(index);
        let address = raw.address.0;
        // Port 0 takes any free port, so several listeners can have it.
        if address.port() != 0 && !seen.insert(address) {
            let message = format!("`{address}` is taken by another listener or by `admin`");
            document.note(Fault::at_value(&path.key("address"), message));
        }
        let tls = raw.tls.as_ref().and_then(|raw| certificate(document, &path.key("tls"), raw));
        listeners.push(Listener { address, h2c: raw.h2c, proxy_protocol: raw.proxy_protocol, tls });
    }
    listeners
}

/// Reads the two files; `None` for a pair that cannot be used, which is noted.
pub(super) fn certificate(
    document: &mut Document,
    path: &DocumentPath,
    raw: &raw::Tls,
) -> Option<Arc<Certificate>> {
    let files = CertificateFiles {
        certificate: document.beside(&raw.certificate),
        key: document.beside(&raw.key),
    };
    match Certificate::load(&files, UnixMs::now()) {
        Ok(certificate) => Some(Arc::new(certificate)),
        Err(errors) => {
            for error in errors {
                let field = match error.file {
                    CertificateFile::Certificate => "certificate",
                    CertificateFile::Key => "key",
                };
                document.note(Fault::at_value(&path.key(field), error.message).help(error.help));
            }
            None
        }
    }
}
