//! Headers of one's own in requests to an upstream.

use std::collections::HashSet;

use http::HeaderName;

use super::secrets;
use crate::document::{Document, Fault};
use crate::raw;
use crate::snapshot::{Azure, UpstreamHeader};
use crate::spans::DocumentPath;

/// Headers that say how a message is read, that are about one connection, or that the gateway sets for
/// each request.
const OWN: [&str; 18] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "accept-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "http2-settings",
    "x-request-id",
    "date",
];
/// Maximum number of headers per upstream: a request head has room for them beside a client's.
const COUNT_MAX: usize = 32;
/// The longest value, in bytes: servers refuse heads of 8 KiB and more.
const VALUE_BYTES_MAX: usize = 4096;

/// Compiles valid headers, and reports the others.
pub(super) fn compile(
    document: &mut Document,
    upstream: &DocumentPath,
    raw: &raw::UpstreamEntry,
    azure: Option<&Azure>,
) -> Vec<UpstreamHeader> {
    let (path, mut seen) = (upstream.key("headers"), HashSet::new());
    if raw.headers.0.len() > COUNT_MAX {
        let message = format!("these are more than {COUNT_MAX} headers");
        document.note(Fault::at_key(&path, message));
    }
    let mut compiled = Vec::with_capacity(raw.headers.0.len());
    for (typed, value) in &raw.headers.0 {
        let at = path.key(typed);
        let Ok(name) = HeaderName::from_bytes(typed.as_bytes()) else {
            let fault = Fault::at_key(&at, "this is not the name of a header");
            document.note(fault.help("as in `X-Title: my gateway`"));
            continue;
        };
        if let Some((message, help)) = refused(&name, raw, azure) {
            document.note(Fault::at_key(&at, message).help(help));
            continue;
        }
        // YAML keys differ by case, header names do not.
        if !seen.insert(name.clone()) {
            let fault = Fault::at_key(&at, "this header is here twice");
            document.note(fault.help("the letters of a name may be small or large"));
            continue;
        }
        let text = value.0.expose();
        secrets::check_quotes(document, &at, text);
        if !is_value(text) {
            let message = "this cannot be sent in a header: it is empty, or has line breaks, other \
                           letters than ASCII, or white space around it";
            document.note(Fault::at_value(&at, message));
        } else if text.len() > VALUE_BYTES_MAX {
            let message = format!("this is longer than {VALUE_BYTES_MAX} bytes");
            document.note(Fault::at_value(&at, message));
        } else {
            compiled.push(UpstreamHeader { name, value: value.0.clone() });
        }
    }
    compiled
}

/// The reason why operators cannot set this header, and an alternative.
fn refused(
    name: &HeaderName,
    raw: &raw::UpstreamEntry,
    azure: Option<&Azure>,
) -> Option<(String, &'static str)> {
    let name = name.as_str();
    if OWN.contains(&name) {
        let message = format!("the gateway sets `{name}` itself");
        return Some((message, "leave it out"));
    }
    let has_key = raw.credential.is_some() || !raw.credentials.0.is_empty();
    let signs_in = raw.auth.is_some() || !raw.auths.0.is_empty();
    let of_key = match azure {
        Some(_) => "api-key",
        None => raw.protocol.0.dialect().credential_header("").0,
    };
    let is_credentials = has_key && name == of_key
        // Signatures cover all `x-amz-` headers, and one added later would invalidate them.
        || signs_in && (name == "authorization" || name.starts_with("x-amz-"));
    is_credentials.then(|| {
        let message = format!("`{name}` carries the upstream's credential");
        (message, "leave it out, or leave the credential out and write it here")
    })
}

fn is_value(text: &str) -> bool {
    let is_plain = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
    !text.is_empty() && text.trim() == text && text.bytes().all(is_plain)
}
