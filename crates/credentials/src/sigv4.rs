//! Signatures of requests to AWS: version 4, with the signature in a header.
//!
//! Source: AWS's "Signature Version 4 for API requests", and the test suite that goes with it. The path is
//! encoded once more for the signature, as every service but S3 has it.

use std::fmt::Write as _;

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use ring::digest::{Context, SHA256};
use ring::hmac;
use tollgate_options::auth::AwsKeys;
use tollgate_types::clock::UnixMs;

/// Name of the signing algorithm.
pub(crate) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Last element of the scope of a signing key.
const TERMINATOR: &str = "aws4_request";

/// The characters encoded in a query: all but the unreserved ones.
pub(crate) const QUERY: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The characters encoded in a path: the same, except the slash.
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// Signed parts of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signable<'a> {
    /// The method, in capital letters.
    pub(crate) method: &'a str,
    /// Path as sent, with its query.
    pub(crate) path: &'a str,
    /// The headers that are signed, by names in small letters, sorted by them.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// The SHA-256 of the body, in hex.
    pub(crate) body_sha256: &'a str,
}

/// The region, service and moment that a signature is valid for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SigningScope<'a> {
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
    /// The moment as [`timestamp`] writes it.
    pub(crate) at: &'a str,
}

impl SigningScope<'_> {
    /// The credential scope: `20150830/us-east-1/iam/aws4_request`.
    pub(crate) fn credential_scope(&self) -> String {
        [self.date(), self.region, self.service, TERMINATOR].join("/")
    }

    fn date(&self) -> &str {
        self.at.get(..8).unwrap_or_default()
    }
}

/// The signature of a canonical request, in hex.
pub(crate) fn signature(
    keys: &AwsKeys,
    canonical_request: &str,
    scope: &SigningScope<'_>,
) -> String {
    let canonical = sha256_hex(canonical_request.as_bytes());
    let text = [ALGORITHM, scope.at, &scope.credential_scope(), &canonical].join("\n");
    let secret = ["AWS4", keys.secret_access_key.expose()].concat();
    let mut key = sign(secret.as_bytes(), scope.date());
    for part in [scope.region, scope.service, TERMINATOR] {
        key = sign(key.as_ref(), part);
    }
    hex(sign(key.as_ref(), &text).as_ref())
}

/// The value of `Authorization`.
pub(crate) fn authorization(
    keys: &AwsKeys,
    request: &Signable<'_>,
    scope: &SigningScope<'_>,
) -> String {
    let signature = signature(keys, &canonical(request), scope);
    let credential_scope = scope.credential_scope();
    let id = keys.access_key_id.expose();
    let names = names(request.headers);
    format!(
        "{ALGORITHM} Credential={id}/{credential_scope}, SignedHeaders={names}, Signature={signature}"
    )
}

/// Timestamp in signatures: `20150830T123600Z`.
pub(crate) fn timestamp(at: UnixMs) -> String {
    let text = at.to_rfc3339();
    let digits =
        text.get(..19).unwrap_or_default().chars().filter(|letter| !"-:".contains(*letter));
    digits.chain(std::iter::once('Z')).collect()
}

/// Hex SHA-256 of a body in pieces.
pub(crate) fn pieces_sha256(pieces: &[Bytes]) -> String {
    let mut context = Context::new(&SHA256);
    for piece in pieces {
        context.update(piece);
    }
    hex(context.finish().as_ref())
}

/// The SHA-256 of a text, in hex.
pub(crate) fn sha256_hex(text: &[u8]) -> String {
    hex(ring::digest::digest(&SHA256, text).as_ref())
}

/// The request in the one way to write it that both sides know.
fn canonical(request: &Signable<'_>) -> String {
    let (path, query) = request.path.split_once('?').unwrap_or((request.path, ""));
    let mut text =
        format!("{}\n{}\n{}\n", request.method, canonical_path(path), canonical_query(query));
    for (name, value) in request.headers {
        let value = value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        // Writing into memory does not fail.
        let _written = writeln!(text, "{name}:{value}");
    }
    let names = names(request.headers);
    let _written = write!(text, "\n{names}\n{}", request.body_sha256);
    text
}

fn names(headers: &[(&str, &str)]) -> String {
    headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";")
}

/// The path without steps up and empty segments, encoded once more.
fn canonical_path(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            other => segments.push(other),
        }
    }
    let is_open = path.ends_with('/') && !segments.is_empty();
    let end = if is_open { "/" } else { "" };
    let joined = format!("/{}{end}", segments.join("/"));
    utf8_percent_encode(&joined, PATH).to_string()
}

/// The query's parameters, sorted.
fn canonical_query(query: &str) -> String {
    let encoded = |text: &str| {
        let plain = percent_decode_str(text).decode_utf8_lossy();
        utf8_percent_encode(&plain, QUERY).to_string()
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(String, String)> = pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (encoded(name), encoded(value))
        })
        .collect();
    pairs.sort_unstable();
    let joined: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    joined.join("&")
}

fn sign(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing into memory does not fail.
        let _written = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use tollgate_types::secret::Secret;

    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn keys() -> AwsKeys {
        AwsKeys {
            access_key_id: Secret::new("AKIDEXAMPLE".to_owned()),
            secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned()),
            session_token: None,
        }
    }

    fn signature_of(service: &str, request: &Signable<'_>) -> String {
        let scope = SigningScope { region: "us-east-1", service, at: "20150830T123600Z" };
        let value = authorization(&keys(), request, &scope);
        value.rsplit('=').next().unwrap_or_default().to_owned()
    }

    /// AWS's test suite, by the names of its cases.
    #[test]
    fn the_published_vectors_are_signed_as_published() {
        let headers = [("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z")];
        for (case, method, path, expected) in [
            (
                "get-vanilla",
                "GET",
                "/",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "post-vanilla",
                "POST",
                "/",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "get-vanilla-query-order-key-case",
                "GET",
                "/?Param2=value2&Param1=value1",
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "get-vanilla-utf8-query",
                "GET",
                "/?\u{1234}=bar",
                "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
            ),
            (
                "get-unreserved",
                "GET",
                "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
                "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
            ),
            (
                "get-relative (normalized)",
                "GET",
                "/example/..",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
        ] {
            let request = Signable { method, path, headers: &headers, body_sha256: EMPTY };
            assert_eq!(signature_of("service", &request), expected, "{case}");
        }
    }

    /// The example of AWS's documentation.
    #[test]
    fn the_documented_example_is_signed_as_documented() {
        let headers = [
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
            ("host", "iam.amazonaws.com"),
            ("x-amz-date", "20150830T123600Z"),
        ];
        let path = "/?Action=ListUsers&Version=2010-05-08";
        let request = Signable { method: "GET", path, headers: &headers, body_sha256: EMPTY };
        assert_eq!(
            signature_of("iam", &request),
            "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
    }

    #[test]
    fn a_path_is_encoded_once_more() {
        assert_eq!(
            canonical_path("/model/anthropic.claude%3A0/converse"),
            "/model/anthropic.claude%253A0/converse"
        );
        assert_eq!(canonical_path("/model/a:0/converse"), "/model/a%3A0/converse");
        for (path, canonical) in [("", "/"), ("//a//b/", "/a/b/"), ("/a/./b", "/a/b"), ("/..", "/")]
        {
            assert_eq!(canonical_path(path), canonical, "{path}");
        }
    }

    #[test]
    fn a_body_in_pieces_is_hashed_as_a_whole() {
        let pieces = [Bytes::from_static(b"ab"), Bytes::new(), Bytes::from_static(b"c")];
        assert_eq!(pieces_sha256(&pieces), sha256_hex(b"abc"));
        assert_eq!(pieces_sha256(&[]), EMPTY);
    }

    #[test]
    fn moments_have_no_marks_between_their_parts() {
        assert_eq!(timestamp(UnixMs(1_440_938_160_123)), "20150830T123600Z");
    }
}
