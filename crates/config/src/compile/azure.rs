//! Compiles the base URL and API version of an Azure upstream.

use crate::document::{Document, Fault};
use crate::names::Protocol;
use crate::raw;
use crate::snapshot::Azure;
use crate::spans::DocumentPath;

/// Base path of Azure's API with OpenAI's own paths.
const V1: &str = "/openai/v1";

/// Compiles valid settings, and reports the others; `None` for an upstream other than Azure.
pub(super) fn compile(
    document: &mut Document,
    at: &DocumentPath,
    raw: &raw::UpstreamEntry,
) -> Option<Azure> {
    let is_azure = raw.protocol.0 == Protocol::Azure;
    if !is_azure {
        if raw.api_version.is_some() {
            let protocol = raw.protocol.0.as_str();
            let message = format!("`{protocol}` has no `api_version`");
            let help = "it is for `protocol: azure`: leave it out";
            document.note(Fault::at_key(&at.key("api_version"), message).help(help));
        }
        return None;
    }
    let version = raw.api_version.as_deref();
    if version.is_some_and(|version| !is_version(version)) {
        let fault = Fault::at_value(&at.key("api_version"), "this is no version of Azure's API");
        document.note(fault.help("a date, as in `2024-10-21` or `2025-04-01-preview`"));
    }
    check_url(document, at, &raw.base_url.path_prefix, version.is_some());
    Some(Azure { api_version: version.map(str::to_owned) })
}

/// Notes a path that goes with no way to name deployments.
fn check_url(document: &mut Document, at: &DocumentPath, prefix: &str, has_version: bool) {
    let is_v1 = prefix.ends_with(V1);
    let (message, help) = match (is_v1, has_version) {
        (true, true) => (
            "the API below `/openai/v1` takes no `api_version`",
            "leave `api_version` out, or end the URL with the host, as in \
             `https://NAME.openai.azure.com`",
        ),
        (false, true) if has_openai(prefix) => (
            "the paths of deployments begin with `/openai` already",
            "end the URL with the host, as in `https://NAME.openai.azure.com`",
        ),
        (false, false) => (
            "Azure's API begins elsewhere",
            "end the URL with `/openai/v1`, or with the host and add an `api_version` for the paths \
             of deployments",
        ),
        (true, false) | (false, true) => return,
    };
    document.note(Fault::at_value(&at.key("base_url"), message).help(help));
}

fn has_openai(prefix: &str) -> bool {
    prefix.split('/').any(|segment| segment == "openai")
}

/// True for dates such as `2024-10-21`, with or without `-preview`.
fn is_version(text: &str) -> bool {
    let date = text.strip_suffix("-preview").unwrap_or(text);
    let is_date = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    date.len() == 10 && date.bytes().enumerate().all(is_date)
}
