//! Validation of request heads on the wire, stricter than HTTP parsers are.
//!
//! Proxies are attacked where two parsers read one message differently (request smuggling), so
//! every form that RFC 9112 calls an error, or lets a recipient repair, is refused here and the
//! connection is closed behind the answer. HTTP/2 frames its messages itself; there only the
//! number of fields is left to check.

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, HeaderName};

use crate::error::{ErrorKind, GatewayError};

/// The most header fields in a request. SDKs and browsers send fewer than 40, proxies add a few.
pub(crate) const FIELDS_MAX: usize = 100;

/// Checks the fields of a request whose framing another layer has checked (HTTP/2).
///
/// # Errors
/// [`ErrorKind::HeaderTooLarge`] past [`FIELDS_MAX`] fields.
pub(crate) fn check_fields(headers: &HeaderMap) -> Result<(), GatewayError> {
    if headers.len() > FIELDS_MAX { Err(too_many_fields()) } else { Ok(()) }
}

/// Framing of a request body (RFC 9112, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyIs {
    /// A body of so many bytes, possibly none.
    OfLength(u64),
    /// Body with the chunked encoding.
    InChunks,
}

/// Framing of a valid head, and the persistence of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageFraming {
    /// The body that follows.
    pub(crate) body: BodyIs,
    /// True if the client intends to reuse the connection.
    pub(crate) keeps: bool,
}

/// Checks an HTTP/1 request head as it came over the wire: every byte from the request line to the
/// empty line that ends it, both included. RFC 9112, sections 2 to 6.
///
/// # Errors
/// [`ErrorKind::HeaderTooLarge`] past [`FIELDS_MAX`] fields, else [`ErrorKind::BadFraming`].
#[cfg(test)]
pub(crate) fn check_head(head: &[u8]) -> Result<MessageFraming, GatewayError> {
    RequestLine::read(head)?.check_fields(|_, value| {
        http::HeaderValue::from_bytes(value).map(drop).map_err(|_| malformed_value())
    })
}

/// The lines of a head, each of which must end in CR LF: a parser that takes a bare LF for a line
/// end sees other fields than one that does not. A bare CR fails as what it stands in.
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = Result<&'a [u8], GatewayError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let ended =
            memchr::memchr(b'\n', self.rest).and_then(|end| self.rest.split_at_checked(end));
        let Some((line, rest)) = ended else {
            return Some(Err(bad("The request head ends in the middle of a line.")));
        };
        self.rest = rest.get(1..).unwrap_or_default();
        let line = line.strip_suffix(b"\r");
        Some(line.ok_or_else(|| bad("Lines of the request head must end in CR LF.")))
    }
}

/// Schemes of request targets in absolute form.
const ABSOLUTE_FORM: [&[u8]; 2] = [b"http://", b"https://"];

/// `POST /v1/chat/completions HTTP/1.1`, and the lines behind it.
pub(crate) struct RequestLine<'a> {
    /// The method, a token.
    pub(crate) method: &'a [u8],
    /// A path, a URL or `*`.
    pub(crate) target: &'a [u8],
    /// True for HTTP/1.0, false for HTTP/1.1.
    pub(crate) is_http_10: bool,
    lines: Lines<'a>,
}

impl<'a> RequestLine<'a> {
    /// Reads the first line of `head`, which ends with an empty line. RFC 9112, section 3.
    ///
    /// # Errors
    /// [`ErrorKind::BadFraming`].
    pub(crate) fn read(head: &'a [u8]) -> Result<Self, GatewayError> {
        let mut lines = Lines { rest: head };
        let line = lines.next().unwrap_or(Err(bad("The request has no request line.")))?;
        Self::parse(line, lines)
    }

    /// Checks the fields behind it, and gives each to `put`, which checks the bytes of values. RFC 9112,
    /// sections 5 to 6.
    ///
    /// # Errors
    /// [`ErrorKind::HeaderTooLarge`] past [`FIELDS_MAX`] fields, else [`ErrorKind::BadFraming`], or what
    /// `put` does not take.
    pub(crate) fn check_fields(
        mut self,
        mut put: impl FnMut(HeaderName, &'a [u8]) -> Result<(), GatewayError>,
    ) -> Result<MessageFraming, GatewayError> {
        let mut fields = FramingFields::default();
        for line in self.lines.by_ref() {
            let line = line?;
            if line.is_empty() {
                break;
            }
            let (name, value) = split_field(line)?;
            fields.take(&name, value)?;
            put(name, value)?;
        }
        fields.agree_with(&self)
    }

    fn parse(line: &'a [u8], lines: Lines<'a>) -> Result<Self, GatewayError> {
        let mut parts = line.splitn(3, |&byte| byte == b' ');
        let (Some(method), Some(target), Some(version)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed_line());
        };
        if method.is_empty() || !TOKEN.holds(method) || target.is_empty() {
            return Err(malformed_line());
        }
        if !TARGET.holds(target) {
            return Err(bad("The request target holds bytes that must be percent-encoded."));
        }
        let is_absolute = ABSOLUTE_FORM.iter().any(|scheme| target.starts_with(scheme));
        if !(target.starts_with(b"/") || target == b"*" || is_absolute) {
            return Err(bad("The request target is neither a path nor a URL."));
        }
        match version {
            b"HTTP/1.1" => Ok(Self { method, target, is_http_10: false, lines }),
            b"HTTP/1.0" => Ok(Self { method, target, is_http_10: true, lines }),
            _ => Err(bad("The HTTP version is not one that is spoken here.")),
        }
    }

    /// The authority of a target in absolute form (`http://host/path`).
    fn authority(&self) -> Option<&'a [u8]> {
        let rest = ABSOLUTE_FORM.iter().find_map(|scheme| self.target.strip_prefix(*scheme))?;
        rest.split(|byte| matches!(byte, b'/' | b'?')).next()
    }
}

/// The fields that decide where the message ends and whom it is for.
#[derive(Default)]
struct FramingFields<'a> {
    count: usize,
    host: Option<&'a [u8]>,
    content_length: Option<&'a [u8]>,
    transfer_encoding: Option<&'a [u8]>,
    /// Options of the `Connection` fields seen so far.
    connection: ConnectionOptions,
}

impl<'a> FramingFields<'a> {
    fn take(&mut self, name: &HeaderName, value: &'a [u8]) -> Result<(), GatewayError> {
        self.count += 1;
        if self.count > FIELDS_MAX {
            return Err(too_many_fields());
        }
        let once = if *name == HOST {
            &mut self.host
        } else if *name == CONTENT_LENGTH {
            &mut self.content_length
        } else if *name == TRANSFER_ENCODING {
            &mut self.transfer_encoding
        } else if *name == CONNECTION {
            return self.connection.take(value);
        } else {
            return Ok(());
        };
        match once.replace(value) {
            None => Ok(()),
            Some(_) => {
                Err(bad("Host, Content-Length and Transfer-Encoding may be sent only once."))
            }
        }
    }

    fn agree_with(&self, line: &RequestLine<'_>) -> Result<MessageFraming, GatewayError> {
        match (self.host, line.authority()) {
            (None, _) if !line.is_http_10 => return Err(bad("A request needs a Host.")),
            (Some(host), _) if host.is_empty() || !AUTHORITY.holds(host) => {
                return Err(bad("The Host is malformed."));
            }
            // An authority that no parser of URLs makes sense of, such as `]a:80`.
            (_, Some(authority)) if Authority::try_from(authority).is_err() => {
                return Err(bad("The host of the request target is malformed."));
            }
            // Byte for byte: whether two spellings are one host, others may see differently.
            (Some(host), Some(authority)) if host != authority => {
                return Err(bad("The Host differs from the request target's."));
            }
            _ => {}
        }
        let body = match (self.content_length, self.transfer_encoding) {
            (Some(_), Some(_)) => {
                return Err(bad("Content-Length and Transfer-Encoding exclude each other."));
            }
            (Some(length), None) => BodyIs::OfLength(
                body_length(length)
                    .ok_or_else(|| bad("The Content-Length is not a number of bytes."))?,
            ),
            (None, Some(_)) if line.is_http_10 => {
                return Err(bad("HTTP/1.0 knows no Transfer-Encoding."));
            }
            (None, Some(coding)) if !coding.eq_ignore_ascii_case(b"chunked") => {
                return Err(bad("The only Transfer-Encoding that is read here is chunked."));
            }
            (None, Some(_)) => BodyIs::InChunks,
            (None, None) => BodyIs::OfLength(0),
        };
        // RFC 9112, section 9.3.
        let keeps = !self.connection.closes && (!line.is_http_10 || self.connection.keeps_alive);
        Ok(MessageFraming { body, keeps })
    }
}

/// A number of bytes in decimal digits. One that 64 bits cannot hold would wrap in a careless parser.
fn body_length(value: &[u8]) -> Option<u64> {
    if value.len() >= 20 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Splits `name: value`. A line that begins with a blank (an obsolete line fold) or has one before its
/// colon has no name: the characters of names are those of tokens (RFC 9110, section 5.1).
fn split_field(line: &[u8]) -> Result<(HeaderName, &[u8]), GatewayError> {
    let colon = memchr::memchr(b':', line).ok_or_else(malformed_field)?;
    let (name, value) = line.split_at(colon);
    let name = HeaderName::from_bytes(name).map_err(|_| malformed_field())?;
    Ok((name, without_blanks(value.get(1..).unwrap_or_default())))
}

/// The value without surrounding spaces and tabs. Other bytes that some parsers trim are not allowed in a
/// value.
fn without_blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Options of `Connection` (RFC 9110, section 7.6.1) that decide about persistence and upgrades.
#[derive(Default)]
struct ConnectionOptions {
    closes: bool,
    keeps_alive: bool,
}

impl ConnectionOptions {
    /// `Connection` may name fields that end at the next hop. Naming those that frame and address the
    /// message would have them dropped on the way (RFC 9110, section 7.6.1).
    fn take(&mut self, value: &[u8]) -> Result<(), GatewayError> {
        const KEPT: [&[u8]; 3] = [b"host", b"content-length", b"transfer-encoding"];
        for option in value.split(|&byte| byte == b',') {
            let is = |name: &[u8]| option.trim_ascii().eq_ignore_ascii_case(name);
            if KEPT.iter().any(|name| is(name)) {
                return Err(bad("Connection names a field that must be kept."));
            }
            self.closes |= is(b"close");
            self.keeps_alive |= is(b"keep-alive");
        }
        Ok(())
    }
}

/// A set of bytes, by table: every byte of every head is looked up.
struct ByteSet([bool; 256]);

impl ByteSet {
    /// ASCII letters and digits, and `others`.
    const fn alphanumeric_and(others: &[u8]) -> Self {
        let mut set = [false; 256];
        let mut byte = 0;
        while byte < 128_u8 {
            set[byte as usize] = byte.is_ascii_alphanumeric();
            byte += 1;
        }
        let mut index = 0;
        while index < others.len() {
            set[others[index] as usize] = true;
            index += 1;
        }
        Self(set)
    }

    /// Length of the longest prefix of `bytes` within the set.
    fn length_in(&self, bytes: &[u8]) -> usize {
        bytes.iter().position(|&byte| !self.0[usize::from(byte)]).unwrap_or(bytes.len())
    }

    fn holds(&self, bytes: &[u8]) -> bool {
        self.length_in(bytes) == bytes.len()
    }
}

/// `tchar` of RFC 9110, section 5.6.2.
static TOKEN: ByteSet = ByteSet::alphanumeric_and(b"!#$%&'*+-.^_`|~");
/// The characters of RFC 3986, and the bracket and bar that clients send unescaped in queries. A
/// backslash is not one of them: some parsers read it as a slash.
static TARGET: ByteSet = ByteSet::alphanumeric_and(b"-._~!$&'()*+,;=:@/?%[]|");
/// Host, port and brackets (RFC 3986, section 3.2); no user name.
static AUTHORITY: ByteSet = ByteSet::alphanumeric_and(b"-._~:[]%");

/// Visible ASCII, blanks, and the bytes above ASCII that RFC 9110, section 5.5, puts up with.
pub(crate) fn is_value(bytes: &[u8]) -> bool {
    // Without a shortcut the compiler looks at many bytes at a time.
    bytes.iter().fold(true, |ok, &byte| ok & ((byte >= b' ') & (byte != 0x7f) | (byte == b'\t')))
}

/// Error for a body with malformed chunks.
pub(crate) fn bad_chunks() -> GatewayError {
    bad("The chunks of the body are malformed: their lines must end in CR LF, without blanks.")
}

/// Error for a malformed request line.
pub(crate) fn malformed_line() -> GatewayError {
    bad("The request line is malformed.")
}

fn malformed_field() -> GatewayError {
    bad("A header line does not begin with a name and a colon.")
}

/// Error for a field value with forbidden bytes.
pub(crate) fn malformed_value() -> GatewayError {
    bad("A header value holds control characters.")
}

fn too_many_fields() -> GatewayError {
    GatewayError::new(ErrorKind::HeaderTooLarge, "The request has too many header fields.")
}

fn bad(message: &'static str) -> GatewayError {
    GatewayError::new(ErrorKind::BadFraming, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(head: &[u8]) -> Option<ErrorKind> {
        check_head(head).err().map(|error| error.kind)
    }

    /// A head with these lines after a good request line and host.
    fn with(lines: &str) -> Option<ErrorKind> {
        kind(format!("POST /v1/x HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes())
    }

    #[test]
    fn ordinary_heads_pass() {
        let heads: [&[u8]; 7] = [
            b"GET / HTTP/1.0\r\n\r\n",
            b"GET /v1/models?limit=1000&a[]=1 HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
            b"POST http://a:80/v1/x HTTP/1.1\r\nHost: a:80\r\nContent-Length: 005\r\n\r\n",
            b"POST /x?to=http://b/ HTTP/1.1\r\nHost:a\r\nContent-Length:\t5 \r\n\r\n",
            b"POST /x HTTP/1.1\r\nhost: a\r\nTRANSFER-ENCODING: Chunked\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, te\r\n\r\n",
            b"GET /x HTTP/1.1\r\nHost: a\r\nX-Name: caf\xc3\xa9 \xff\r\nX-Empty:\r\n\r\n",
        ];
        for head in heads {
            assert_eq!(kind(head), None, "{} should pass", head.escape_ascii());
        }
    }

    #[test]
    fn request_lines_with_two_readings_are_refused() {
        let lines: [&[u8]; 22] = [
            b"",
            b"\r\n",
            b"GET / HTTP/1.1",
            b"GET /\r\n",
            b"GET  / HTTP/1.1\r\n",
            b"GET / HTTP/1.1 \r\n",
            b"GET\t/\tHTTP/1.1\r\n",
            b"GE(T / HTTP/1.1\r\n",
            b" / HTTP/1.1\r\n",
            b"GET /a b HTTP/1.1\r\n",
            b"GET /a\0b HTTP/1.1\r\n",
            b"GET /a\x01b HTTP/1.1\r\n",
            b"GET /\xff HTTP/1.1\r\n",
            b"GET /a#b HTTP/1.1\r\n",
            b"GET http:\\\\b/ HTTP/1.1\r\n",
            b"GET ftp://a/ HTTP/1.1\r\n",
            b"GET x HTTP/1.1\r\n",
            b"CONNECT a:80 HTTP/1.1\r\n",
            b"GET / HTTP/1.2\r\n",
            b"GET / HTTP/2.0\r\n",
            b"GET / http/1.1\r\n",
            b"GET / HTTP/1.1\n",
        ];
        for line in lines {
            let head = [line, b"Host: a\r\n\r\n"].concat();
            assert_eq!(kind(&head), Some(ErrorKind::BadFraming), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn every_framing_trick_is_refused() {
        let tricks = [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\ncontent-length: 6\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: -5\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length: 5 5\r\n",
            "Content-Length: 5.0\r\n",
            "Content-Length:\r\n",
            "Content-Length: 18446744073709551621\r\n",
            "Content-Length : 5\r\n",
            "Content-Length\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: identity, chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: \"chunked\"\r\n",
            "Transfer-Encoding: \x0bchunked\r\n",
            "Transfer-Encoding: \x0cchunked\r\n",
            "Transfer-Encoding:\r\n",
            "Connection: close, Content-Length\r\n",
            "Connection: host\r\n",
            "Connection: transfer-encoding\r\n",
            "Host: a\r\n",
            "Host: b\r\n",
            "X: a\r\n b\r\n",
            "X: a\r\n\tb\r\n",
            "X: a\nContent-Length: 5\r\n",
            "X: a\rContent-Length: 5\r\n",
            "X: a\0b\r\n",
            "X: a\x7f\r\n",
            "X : a\r\n",
            "X\t: a\r\n",
            "X(: a\r\n",
            ": a\r\n",
            "X\u{e9}: a\r\n",
        ];
        for trick in tricks {
            assert_eq!(with(trick), Some(ErrorKind::BadFraming), "{trick:?} passed");
        }
    }

    #[test]
    fn hosts_that_say_two_things_are_refused() {
        let heads = [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
            "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET http://a:80/ HTTP/1.1\r\nHost: A:80\r\n\r\n",
            "GET http://b?x HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET http://a@b/ HTTP/1.1\r\nHost: b\r\n\r\n",
            "GET http://]a:80/ HTTP/1.0\r\n\r\n",
            "GET http://]a:80/ HTTP/1.1\r\nHost: ]a:80\r\n\r\n",
            "GET http://[::1/ HTTP/1.0\r\n\r\n",
            "GET http://a:1:2/ HTTP/1.0\r\n\r\n",
            "GET http:// HTTP/1.0\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",
        ];
        for head in heads {
            assert_eq!(kind(head.as_bytes()), Some(ErrorKind::BadFraming), "{head:?} passed");
        }
    }

    #[test]
    fn the_number_of_fields_is_bounded() {
        let lines = |count: usize| "X: y\r\n".repeat(count);
        assert_eq!(with(&lines(FIELDS_MAX - 1)), None, "Host and {} more", FIELDS_MAX - 1);
        assert_eq!(with(&lines(FIELDS_MAX)), Some(ErrorKind::HeaderTooLarge));
        let mut headers = HeaderMap::new();
        for _ in 0..FIELDS_MAX {
            headers.append("x", http::HeaderValue::from_static("y"));
        }
        assert!(check_fields(&headers).is_ok(), "{FIELDS_MAX} fields over HTTP/2");
        headers.append("x", http::HeaderValue::from_static("y"));
        assert!(check_fields(&headers).is_err(), "one field more over HTTP/2");
    }
}
