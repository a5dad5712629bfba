//! Compiles `pass`: fields, tools and content that operators allow beyond the known ones.

use crate::document::{Document, Fault};
use crate::snapshot::{PassedHeaders, Upstream};
use crate::spans::DocumentPath;
use tollgate_protocols::limits::{PassList, has};

/// Maximum length of a permitted name, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// The header that names betas.
const BETA: &str = "anthropic-beta";
/// Headers that are the gateway's own to send, or belong to one connection.
const OWN_HEADERS: [&str; 24] = [
    "host",
    "content-length",
    "transfer-encoding",
    "accept-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "http2-settings",
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "x-goog-api-key",
    "api-key",
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-real-ip",
    "x-request-id",
    "x-tollgate-clamp",
];
/// Headers of answers that nobody can let through: the gateway's own to send, and those that would have
/// a front proxy, a browser or a cache do something on this origin.
const NEVER_RESPONSE_HEADERS: [&str; 44] = [
    "accept-ch",
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "age",
    "alt-svc",
    "authorization",
    "cache-control",
    "clear-site-data",
    "connection",
    "content-encoding",
    "content-length",
    "content-security-policy",
    "content-security-policy-report-only",
    "content-type",
    "etag",
    "expires",
    "keep-alive",
    "link",
    "location",
    "nel",
    "permissions-policy",
    "proxy-authenticate",
    "refresh",
    "report-to",
    "reporting-endpoints",
    "request-id",
    "service-worker-allowed",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "via",
    "www-authenticate",
    "x-accel-redirect",
    "x-content-type-options",
    "x-frame-options",
    "x-request-id",
    "x-sendfile",
];
/// Prefixes of response headers that cannot be permitted.
const NEVER_RESPONSE_PREFIXES: [&str; 2] = ["x-accel-", "x-tollgate-"];
/// Fields that cannot be permitted: their answers cannot be metered.
const NEVER_FIELDS: [&str; 2] = ["background", "deferred"];

/// Fields that a request can do without: hints, and names for the provider's own books.
const HINTS: [&str; 17] = [
    "frequency_penalty",
    "logit_bias",
    "metadata",
    "min_p",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "repetition_penalty",
    "safety_identifier",
    "seed",
    "store",
    "stream_options",
    "temperature",
    "top_k",
    "top_p",
    "user",
];

/// The lists of one model or upstream.
pub(super) struct Lists<'a> {
    pub(super) fields: &'a [String],
    pub(super) headers: &'a [String],
    pub(super) tools: &'a [String],
    pub(super) content: &'a [String],
}

/// Compiles the lists that stand at `at`, and notes what cannot be let through.
pub(super) fn compile(
    document: &mut Document,
    at: &DocumentPath,
    lists: &Lists<'_>,
) -> (PassList, PassedHeaders) {
    let pass = PassList {
        fields: names(document, &at.key("pass_fields"), lists.fields),
        tools: names(document, &at.key("pass_tools"), lists.tools),
        content: names(document, &at.key("pass_content"), lists.content),
    };
    for (index, field) in lists.fields.iter().enumerate() {
        let path = at.key("pass_fields").index(index);
        // A wildcard entry that covers the field is refused like the field itself.
        if NEVER_FIELDS.iter().any(|never| has(std::slice::from_ref(field), never)) {
            let message = format!("`{field}` cannot be let through: the answer comes elsewhere");
            document.note(Fault::at_value(&path, message));
        }
        let mut parts = field.split('.');
        if parts.any(str::is_empty) {
            let help = "a field of an object is named with a dot, as in `parameters.seed`";
            document.note(Fault::at_value(&path, "this is not a path").help(help));
        }
    }
    (pass, headers(document, &at.key("pass_headers"), lists.headers))
}

/// Entries that all of these upstreams allow.
pub(super) fn common<'a>(mut upstreams: impl Iterator<Item = &'a Upstream>) -> PassList {
    let Some(first) = upstreams.next() else { return PassList::default() };
    // Of two entries one of which stands for the other, the narrower one is in both lists.
    let keep = |names: &mut Vec<String>, others: &[String]| {
        let narrower = others.iter().filter(|other| !names.contains(other) && covers(names, other));
        let narrower: Vec<String> = narrower.cloned().collect();
        names.retain(|name| covers(others, name));
        names.extend(narrower);
    };
    upstreams.fold(first.pass.clone(), |mut pass, other| {
        keep(&mut pass.fields, &other.pass.fields);
        keep(&mut pass.tools, &other.pass.tools);
        keep(&mut pass.content, &other.pass.content);
        pass
    })
}

/// True if an entry of `list` allows everything that `entry` allows.
fn covers(list: &[String], entry: &str) -> bool {
    let plain = entry.strip_suffix('*').unwrap_or(entry);
    list.iter().any(|listed| match listed.strip_suffix('*') {
        // A `*` reaches into an object only behind the object's own dot.
        Some(start) => plain.starts_with(start) && start.contains('.') == plain.contains('.'),
        None => listed == entry,
    })
}

/// The names of a model's own, and those of its upstreams.
pub(super) fn with(mut own: PassList, upstreams: PassList) -> PassList {
    own.fields.extend(upstreams.fields);
    own.tools.extend(upstreams.tools);
    own.content.extend(upstreams.content);
    own
}

/// Ids that all customers may name.
pub(super) fn shared_ids(
    document: &mut Document,
    at: &DocumentPath,
    ids: &[String],
) -> Vec<String> {
    names(document, at, ids)
}

fn names(document: &mut Document, at: &DocumentPath, names: &[String]) -> Vec<String> {
    for (index, name) in names.iter().enumerate() {
        let plain = name.strip_suffix('*').unwrap_or(name);
        let is_name = !plain.is_empty()
            && plain.len() <= NAME_BYTES_MAX
            && plain.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*');
        if !is_name {
            let fault = Fault::at_value(&at.index(index), "this is not a name");
            document.note(fault.help("ASCII letters without spaces, and a `*` at the end at most"));
        }
    }
    names.to_vec()
}

/// The fields that are left out of requests to an upstream, and what cannot be one of them noted: what
/// has a meaning or a price is never left out.
pub(super) fn left_out_fields(
    document: &mut Document,
    at: &DocumentPath,
    names: &[String],
) -> Vec<String> {
    for (index, name) in names.iter().enumerate() {
        if !HINTS.contains(&name.as_str()) {
            let message =
                format!("`{name}` cannot be left out: a request means something else then");
            let help = format!("the fields that can be are {}", HINTS.join(", "));
            document.note(Fault::at_value(&at.index(index), message).help(help));
        }
    }
    names.to_vec()
}

/// The names of headers of answers, and what cannot be one of them noted.
pub(super) fn response_headers(
    document: &mut Document,
    at: &DocumentPath,
    names: &[String],
) -> Vec<String> {
    let mut passed = Vec::with_capacity(names.len());
    for (index, name) in names.iter().enumerate() {
        // HTTP/2 has lower-case names only, and HTTP/1.1 compares without case.
        let one = [name.to_ascii_lowercase()];
        let stands_for = |never: &str| has(&one, never);
        let plain = one[0].strip_suffix('*').unwrap_or(&one[0]);
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = (1..=NAME_BYTES_MAX).contains(&plain.len()) && plain.bytes().all(is_letter);
        let fault = |message: &str| Fault::at_value(&at.index(index), message);
        if !is_name {
            document.note(fault("this is not a header").help("such as `x-vendor-region`"));
        } else if NEVER_RESPONSE_HEADERS.iter().any(|never| stands_for(never))
            || NEVER_RESPONSE_PREFIXES.iter().any(|prefix| {
                plain.starts_with(prefix) || plain != one[0] && prefix.starts_with(plain)
            })
        {
            let message =
                "this header of an answer is the gateway's own to send, or stands for one";
            document.note(fault(message));
        } else {
            passed.extend(one);
        }
    }
    passed
}

fn headers(document: &mut Document, at: &DocumentPath, lines: &[String]) -> PassedHeaders {
    let mut passed = PassedHeaders::default();
    for (index, line) in lines.iter().enumerate() {
        let (name, beta) = match line.split_once(':') {
            Some((name, beta)) => (name.trim(), Some(beta.trim())),
            None => (line.as_str(), None),
        };
        let name = name.to_ascii_lowercase();
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_word = |word: &str| !word.is_empty() && word.bytes().all(is_letter);
        let fault = |message: &str| Fault::at_value(&at.index(index), message);
        let one = [name];
        let is_own = OWN_HEADERS.iter().any(|own| has(&one, own));
        let [name] = one;
        let plain = name.strip_suffix('*').unwrap_or(&name);
        if is_own {
            document.note(fault("this header is the gateway's own to send"));
        } else if !is_word(plain) || beta.is_some_and(|beta| name != BETA || !is_word(beta)) {
            let help = "a header's name, or `anthropic-beta: NAME`";
            document.note(fault("this is not a header").help(help));
        } else if let Some(beta) = beta {
            passed.betas.push(beta.to_owned());
        // The whole header would let through betas that change prices.
        } else if has(std::slice::from_ref(&name), BETA) {
            let help = "such as `anthropic-beta: context-1m-2025-08-07`";
            document.note(fault("betas are let through one by one").help(help));
        } else {
            passed.names.push(name);
        }
    }
    passed
}
