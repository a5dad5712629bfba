//! Secrets of the operator in answers of upstreams: credentials, and the organization that they belong to.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use memchr::memmem;
use once_cell::sync::Lazy;

use crate::balance::Candidate;
use crate::config::snapshot::{Credential, Upstream};
use crate::credentials::Token;

/// Length below which a secret is searched only as a whole word, since it may occur by chance.
const CERTAIN_BYTES_MIN: usize = 8;
/// Headers in which providers name whose account was used.
const WHOSE: [&str; 5] = [
    "openai-organization",
    "openai-project",
    "anthropic-organization-id",
    "anthropic-workspace-id",
    "x-dashscope-workspace",
];

/// Finds pieces of a stream that may contain an error; each piece is searched.
static ERROR_KEY: Lazy<memmem::Finder<'static>> = Lazy::new(|| memmem::Finder::new(b"\"error\""));

/// The secrets that an answer must not contain: all credentials of the upstream, and the token of this try.
#[derive(Clone, Copy)]
pub(crate) struct UpstreamSecrets<'a> {
    pub(crate) upstream: &'a Upstream,
    pub(crate) token: Option<&'a Token>,
}

impl<'a> UpstreamSecrets<'a> {
    /// The secrets for an answer to a try.
    pub(crate) fn at(candidate: &'a Candidate) -> Self {
        Self { upstream: &candidate.target.upstream, token: candidate.token.as_ref() }
    }

    /// True if a word contains the first `bytes` of a secret.
    pub(crate) fn begins_like_secret(self, word: &str, bytes: usize) -> bool {
        let beginnings = self.secrets().filter_map(|secret| secret.as_bytes().get(..bytes));
        beginnings.into_iter().any(|beginning| memmem::find(word.as_bytes(), beginning).is_some())
    }

    fn secrets(self) -> impl Iterator<Item = &'a str> {
        let configured = self.upstream.credentials.iter().flat_map(Credential::secrets);
        // A short one, such as `1` or a word, is no secret and stands in every text.
        let own = self.upstream.headers.iter().map(|own| own.value.expose());
        let own = own.filter(|value| value.len() >= CERTAIN_BYTES_MIN);
        configured.chain(own).chain(self.token.into_iter().flat_map(Token::secrets))
    }
}

/// True if a text contains a secret.
pub(crate) fn contains_secret(text: &[u8], hidden: UpstreamSecrets<'_>) -> bool {
    hidden.secrets().any(|secret| stands_in(text, secret.as_bytes()))
}

/// True if the body of a refusal cannot be shown: it contains a secret, also with JSON escapes, or the
/// organization that its `headers` name; or nobody can check it, because it is compressed, not UTF-8, or
/// empty.
pub(crate) fn hides(body: &[u8], headers: &HeaderMap, hidden: Option<UpstreamSecrets<'_>>) -> bool {
    let is_plain =
        headers.get(CONTENT_ENCODING).is_none_or(|coding| coding.as_bytes() == b"identity");
    let is_text = std::str::from_utf8(body).is_ok_and(|text| !text.contains('\0'));
    let is_readable = is_plain && is_text && !body.is_empty();
    !is_readable || hidden.is_some_and(|hidden| contains_secret_in(body, headers, hidden))
}

fn contains_secret_in(body: &[u8], headers: &HeaderMap, hidden: UpstreamSecrets<'_>) -> bool {
    let whose = || WHOSE.into_iter().flat_map(|name| headers.get_all(name));
    let tells = |text: &[u8]| {
        contains_secret(text, hidden) || whose().any(|value| stands_in(text, value.as_bytes()))
    };
    let mut text = Cow::Borrowed(body);
    loop {
        if tells(&text) {
            return true;
        }
        // A document can stand in a text of another, with escapes for its escapes.
        let Some(plainer) = unescaped(&text) else { return false };
        text = plainer.into();
    }
}

/// Masks secrets by asterisks in errors within a stream or document. A piece without an error is the client's
/// own text and is not changed.
pub(crate) fn masked(piece: Bytes, hidden: UpstreamSecrets<'_>) -> Bytes {
    // Within a text the quotation marks are escaped.
    if ERROR_KEY.find(&piece).is_none() {
        return piece;
    }
    // A shorter one stands in a customer's text by chance.
    let certain = hidden.secrets().filter(|secret| secret.len() >= CERTAIN_BYTES_MIN);
    certain.fold(piece, |piece, secret| {
        let piece = without(piece, secret.as_bytes());
        // Some writers escape every slash.
        if secret.contains('/') {
            without(piece, secret.replace('/', "\\/").as_bytes())
        } else {
            piece
        }
    })
}

fn without(piece: Bytes, secret: &[u8]) -> Bytes {
    if memmem::find(&piece, secret).is_none() {
        return piece;
    }
    let places: Vec<usize> = memmem::find_iter(&piece, secret).collect();
    let mut masked = BytesMut::from(piece);
    for at in places {
        if let Some(place) = masked.get_mut(at..at + secret.len()) {
            place.fill(b'*');
        }
    }
    masked.freeze()
}

/// A text without the escapes of JSON; `None` where there are none. It is not parsed: what no parser
/// takes is passed on as well, and this takes no more memory than the text, whatever is in it. What comes
/// of it has half as many backslashes at most.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut at = memchr::memchr(b'\\', text)?;
    let (mut plain, mut rest) = (Vec::with_capacity(text.len()), text);
    loop {
        let (before, escape) = rest.split_at_checked(at).unwrap_or((rest, &[]));
        plain.extend_from_slice(before);
        let code = escape.get(2..6).filter(|_| escape.get(1) == Some(&b'u'));
        let (letter, length) = match (code.and_then(hexadecimal), escape.get(1)) {
            (_, None) => return Some(plain),
            (Some(letter), _) => (Some(letter), 6),
            (None, Some(b'b' | b'f' | b'n' | b'r' | b't')) => (Some(' '), 2),
            // What is behind the backslash stands for itself, also if it is another one.
            (None, Some(_)) => (None, 1),
        };
        if let Some(letter) = letter {
            plain.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        }
        rest = escape.get(length..).unwrap_or_default();
        let from = usize::from(letter.is_none());
        let next = memchr::memchr(b'\\', rest.get(from..).unwrap_or_default());
        at = next.map_or(rest.len(), |next| next + from);
    }
}

/// Character of a `\u` escape. Half of a surrogate pair cannot be part of a credential.
fn hexadecimal(digits: &[u8]) -> Option<char> {
    let are_digits = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| are_digits)?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    Some(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER))
}

fn stands_in(text: &[u8], secret: &[u8]) -> bool {
    // Most values are too short, and a search has its price before it begins.
    if secret.is_empty() || secret.len() > text.len() {
        return false;
    }
    if secret.len() >= CERTAIN_BYTES_MIN {
        return memmem::find(text, secret).is_some();
    }
    let is_letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    memmem::find_iter(text, secret).any(|at| {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        !is_letter(before) && !is_letter(text.get(at + secret.len()))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::balance::sample;
    use crate::secret::Secret;

    /// An upstream with these credentials.
    pub(in crate::gateway) fn upstream(credentials: &[&str]) -> Upstream {
        let credential = |secret: &&str| Credential::key("", Secret::new((*secret).to_owned()));
        let credentials = credentials.iter().map(credential).collect();
        Upstream { credentials, ..sample::upstream() }
    }

    fn hidden(upstream: &Upstream) -> UpstreamSecrets<'_> {
        UpstreamSecrets { upstream, token: None }
    }

    #[test]
    fn a_secret_is_found_however_json_writes_it() {
        let upstream = upstream(&["sk-a/b+c-canary", "word"]);
        let mut headers = HeaderMap::new();
        headers.insert("openai-organization", http::HeaderValue::from_static("org-canary"));
        for body in [
            "Bearer sk-a/b+c-canary",
            "{\"a\":[{\"b\":\"sk-a\\/b+c-canary\"}]}",
            "{\"sk-a\\u002fb+c\\u002dcanary\":1}",
            "data: {\"a\":\"\\u0073k-a/b+c-canary\"}\n\n",
            "{\"a\":\"\\u0073k-a/b+c-canary",
            r#"{"error":"{\"key\":\"sk-a\\/b+c\\u002dcanary\"}"}"#,
            "a word of it",
            "word",
            "{\"key\":\"word\"}",
            "in organization org-canary on tokens",
            // No parser takes these.
            r#"{"a":"\ud800","b":"\u0073k-a/b+c-canary""#,
            r"\q \u00g0 sk\u002Da/b+c-canary",
            r#"{"a":"\nword\n"}"#,
            // A document in a text of another, and once more.
            r#"{"a":"{\"b\":\"\\u0073k-a/b+c-canary\"}"}"#,
            r"\\\\u0073k-a\\/b+c-canary",
        ] {
            assert!(contains_secret_in(body.as_bytes(), &headers, hidden(&upstream)), "{body}");
        }
        for body in
            ["", "{}", "sk-a/b+c", "words", "password", "{\"a\\n\":\"swords\"}", r"\", r"\u0"]
        {
            assert!(!contains_secret_in(body.as_bytes(), &headers, hidden(&upstream)), "{body}");
        }
    }

    #[test]
    fn an_error_loses_the_credential_and_other_texts_stay() {
        let upstream = upstream(&["sk-a/b-canary", "word"]);
        let masked = |text: &str| {
            let masked = masked(Bytes::copy_from_slice(text.as_bytes()), hidden(&upstream));
            String::from_utf8(masked.to_vec()).expect("text")
        };
        let leaked = r#"data: {"error":{"message":"no sk-a/b-canary, nor sk-a\/b-canary: word"}}"#;
        let hidden = r#"data: {"error":{"message":"no *************, nor **************: word"}}"#;
        assert_eq!(masked(leaked), hidden);
        for text in [r#"{"content":"sk-a/b-canary"}"#, r#"{"content":"\"error\": sk-a/b-canary"}"#]
        {
            assert_eq!(masked(text), text, "the customer's own words");
        }
    }

    /// However much and however deep it is: neither a tree of it is made nor a stack used up.
    #[test]
    fn the_search_takes_what_no_parser_takes() {
        let upstream = upstream(&["sk-canary-of-ours"]);
        let contains_secret =
            |body: &str| contains_secret_in(body.as_bytes(), &HeaderMap::new(), hidden(&upstream));
        let leaked = r"\u0073k-canary-of-ours";
        for body in [
            format!("{}{leaked}", "[".repeat(500_000)),
            format!("[{}\"{leaked}\"]", "0,".repeat(500_000)),
            format!("{}{leaked}", r"\\".repeat(200_000)),
        ] {
            assert!(contains_secret(&body), "{} bytes", body.len());
        }
        assert!(!contains_secret(&r"\".repeat(1 << 20)));
    }

    #[test]
    fn what_nobody_can_read_is_hidden() {
        let with = |coding: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, http::HeaderValue::from_static(coding));
            headers
        };
        let upstream = upstream(&["sk-canary-of-ours"]);
        let hides =
            |body: &[u8], headers: &HeaderMap| hides(body, headers, Some(hidden(&upstream)));
        assert!(!hides(b"{}", &HeaderMap::new()) && !hides(b"{}", &with("identity")));
        assert!(hides(b"{}", &with("gzip")) && hides(b"{}", &with("br")));
        assert!(hides(b"", &HeaderMap::new()) && hides(b"\x1f\x8b\x08", &HeaderMap::new()));
        let wide: Vec<u8> = b"sk-canary-of-ours".iter().flat_map(|byte| [*byte, 0]).collect();
        assert!(hides(&wide, &HeaderMap::new()), "UTF-16");
    }
}
