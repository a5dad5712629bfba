//! The head of a part, and parameters as `Content-Type` and `Content-Disposition` have them.
//!
//! Source: RFC 7578, section 4.2, and RFC 9110, section 5.6.6, but for what programs read in
//! different ways: white space before `;` or around `=`, empty parameters, and quoted strings
//! whose end depends on whether a backslash escapes a quote.

use std::ops::Range;

use percent_encoding::percent_decode_str;

use super::{FormError, HEADER_LINES_MAX};

/// The headers of a part.
#[derive(Debug)]
pub(super) struct PartHead {
    pub(super) name: String,
    pub(super) filename: Option<String>,
    pub(super) content_type: Option<String>,
    /// The `Content-Length` and the position of its digits in the body.
    pub(super) length: Option<(usize, Range<usize>)>,
    /// Its header lines in the gateway's words, where the customer's say more than upstreams get.
    pub(super) rewritten: Option<String>,
}

impl PartHead {
    /// Reads `block`, the header lines without the blank line. It starts at `offset` in the body.
    pub(super) fn read(block: &[u8], offset: usize, delimiter: &[u8]) -> Result<Self, FormError> {
        let mut headers = Headers::default();
        let mut start = 0;
        for count in 1.. {
            let Some(rest) = block.get(start..).filter(|rest| !rest.is_empty()) else { break };
            if count > HEADER_LINES_MAX {
                return Err(FormError::TooManyHeaders);
            }
            let end = memchr::memmem::find(rest, b"\r\n").unwrap_or(rest.len());
            let line = rest.get(..end).unwrap_or_default();
            if line.starts_with(delimiter) {
                return Err(FormError::Header);
            }
            headers.take(line, offset + start)?;
            start += end + 2;
        }
        headers.finish()
    }
}

/// The value of a header and its position in the body.
type SpannedValue<'a> = (&'a [u8], usize);

/// The headers that mean something. RFC 7578, section 4.8, has all others ignored.
#[derive(Default)]
struct Headers<'a> {
    disposition: Option<SpannedValue<'a>>,
    content_type: Option<SpannedValue<'a>>,
    transfer_encoding: Option<SpannedValue<'a>>,
    encoding: Option<SpannedValue<'a>>,
    length: Option<SpannedValue<'a>>,
    /// The part has other headers.
    has_others: bool,
}

impl<'a> Headers<'a> {
    fn take(&mut self, line: &'a [u8], offset: usize) -> Result<(), FormError> {
        let colon = memchr::memchr(b':', line).ok_or(FormError::Header)?;
        let (name, rest) = line.split_at_checked(colon).unwrap_or_default();
        // A bare CR or LF is a control character, and the space that folds a line is no name.
        let plain = name.iter().copied().all(is_token) && !line.iter().any(u8::is_ascii_control);
        if name.is_empty() || !plain {
            return Err(FormError::Header);
        }
        let value = rest.get(1..).unwrap_or_default();
        let spaces = value.len() - value.trim_ascii_start().len();
        let slots = [
            ("Content-Disposition", &mut self.disposition),
            ("Content-Type", &mut self.content_type),
            ("Content-Transfer-Encoding", &mut self.transfer_encoding),
            ("Content-Encoding", &mut self.encoding),
            ("Content-Length", &mut self.length),
        ];
        for (header, slot) in slots {
            if header.as_bytes().eq_ignore_ascii_case(name) {
                let value = (value.trim_ascii(), offset + colon + 1 + spaces);
                return match slot.replace(value) {
                    None => Ok(()),
                    Some(_) => Err(FormError::HeaderTwice(header)),
                };
            }
        }
        self.has_others = true;
        Ok(())
    }

    fn finish(self) -> Result<PartHead, FormError> {
        let (disposition, _) = self.disposition.ok_or(FormError::Disposition)?;
        let Disposition { name, filename, has_others } = Disposition::read(disposition)?;
        let is_one_of = |(value, _): SpannedValue<'_>, words: &[&str]| {
            words.iter().any(|word| word.as_bytes().eq_ignore_ascii_case(value))
        };
        // Upstreams that honour these headers would read another content than is here.
        if self.transfer_encoding.is_some_and(|it| !is_one_of(it, &["7bit", "8bit", "binary"]))
            || self.encoding.is_some_and(|it| !is_one_of(it, &["identity"]))
        {
            return Err(FormError::EncodedContent(name));
        }
        let content_type =
            self.content_type.map(|(value, _)| String::from_utf8_lossy(value).into_owned());
        let kind = content_type.as_ref().and_then(|value| value.get(.."multipart".len()));
        if kind.is_some_and(|kind| kind.eq_ignore_ascii_case("multipart")) {
            return Err(FormError::Nested(name));
        }
        let length = match self.length {
            None => None,
            Some((digits, start)) => match number(digits) {
                None => return Err(FormError::ContentLength(name)),
                Some(length) => Some((length, start..start + digits.len())),
            },
        };
        let has_others = has_others || self.has_others;
        let rewritten =
            has_others.then(|| write_head(&name, filename.as_ref(), content_type.as_deref()));
        let filename = filename.map(|filename| filename.text);
        Ok(PartHead { name, filename, content_type, length, rewritten })
    }
}

/// The header lines of a part, without the blank line behind them. The length and the encodings of a
/// content, which say nothing that is not so without them, are left out.
fn write_head(name: &str, filename: Option<&FileName>, content_type: Option<&str>) -> String {
    let mut head = format!("Content-Disposition: form-data; name=\"{name}\"");
    if let Some(FileName { written, .. }) = filename {
        head.push_str(&format!("; filename=\"{written}\""));
    }
    if let Some(content_type) = content_type {
        head.push_str(&format!("\r\nContent-Type: {content_type}"));
    }
    head
}

/// The name of a file.
struct FileName {
    text: String,
    /// The quoted text, as written.
    written: String,
}

impl FileName {
    /// A `filename`, in whose quotes nothing but `\"` is an escape.
    fn plain(value: &[u8]) -> Self {
        Self { text: unescape(value), written: String::from_utf8_lossy(value).into_owned() }
    }

    /// A `filename*` alone: a charset, a language and percent-encoded text (RFC 5987, section 3.2). Parsers
    /// that do not know it would take the part for a field.
    fn extended(value: &[u8]) -> Result<Self, FormError> {
        let value = std::str::from_utf8(value).map_err(|_| FormError::Disposition)?;
        let encoded = match value.split_once('\'') {
            None => value,
            Some((charset, rest)) if charset.eq_ignore_ascii_case("utf-8") => {
                rest.split_once('\'').map(|(_, text)| text).ok_or(FormError::Disposition)?
            }
            Some(_) => return Err(FormError::Disposition),
        };
        let text = percent_decode_str(encoded).decode_utf8();
        let text = text.map_err(|_| FormError::Disposition)?.into_owned();
        if text.contains(char::is_control) {
            return Err(FormError::Disposition);
        }
        // As browsers write them.
        let written = text.replace('\\', "%5C").replace('"', "%22");
        Ok(Self { text, written })
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    // `parse` would take a plus sign as well.
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

/// The name and file name of a `Content-Disposition`.
struct Disposition {
    name: String,
    filename: Option<FileName>,
    /// True if there are parameters beside these two. Parsers disagree on which of `filename` and `filename*`
    /// counts.
    has_others: bool,
}

impl Disposition {
    /// Reads the value of the header.
    ///
    /// The name must come first, as every client sends it: some upstreams take the first `name=` that
    /// they find, even inside a file name.
    fn read(value: &[u8]) -> Result<Self, FormError> {
        let (kind, mut parameters) = split_parameters(value);
        if !kind.eq_ignore_ascii_case(b"form-data") {
            return Err(FormError::Disposition);
        }
        let first = parameters.next().and_then(Result::ok).ok_or(FormError::Disposition)?;
        if is_extended(first.name, b"name") {
            return Err(FormError::EncodedName);
        }
        if !first.name.eq_ignore_ascii_case(b"name") {
            return Err(FormError::Disposition);
        }
        let name = read_name(first.value)?;
        let (mut filename, mut extended, mut has_others) = (None, None, false);
        for parameter in parameters {
            let Ok(Parameter { name, value }) = parameter else {
                return Err(FormError::Disposition);
            };
            let before = if name.eq_ignore_ascii_case(b"filename") {
                filename.replace(value)
            } else if name.eq_ignore_ascii_case(b"filename*") {
                has_others = true;
                extended.replace(value)
            } else if name.eq_ignore_ascii_case(b"name") {
                return Err(FormError::ParameterTwice("name"));
            } else if is_extended(name, b"name") {
                return Err(FormError::EncodedName);
            } else if is_extended(name, b"filename") {
                return Err(FormError::Disposition);
            } else {
                has_others = true;
                None
            };
            if before.is_some() {
                return Err(FormError::ParameterTwice("filename"));
            }
        }
        let filename = match (filename, extended) {
            (Some(plain), _) => Some(FileName::plain(plain)),
            (None, Some(extended)) => Some(FileName::extended(extended)?),
            (None, None) => None,
        };
        Ok(Self { name, filename, has_others })
    }
}

/// True if `name` is `base` followed by a star: RFC 2231's encoded and continued parameters.
pub(super) fn is_extended(name: &[u8], base: &[u8]) -> bool {
    let (head, tail) = name.split_at_checked(base.len()).unwrap_or_default();
    head.eq_ignore_ascii_case(base) && tail.starts_with(b"*")
}

/// A name without the escapes that some upstreams decode and others do not: backslashes and RFC
/// 2047's encoded words. Browsers percent-encode, which nobody decodes.
fn read_name(value: &[u8]) -> Result<String, FormError> {
    let name = std::str::from_utf8(value).map_err(|_| FormError::EncodedName)?;
    if name.contains('\\') || name.contains("=?") {
        return Err(FormError::EncodedName);
    }
    if name.trim().is_empty() {
        return Err(FormError::EmptyName);
    }
    // Its value would name the encoding of all other fields (RFC 7578, section 4.6).
    if name.trim().eq_ignore_ascii_case("_charset_") {
        return Err(FormError::Charset);
    }
    Ok(name.to_owned())
}

/// A file name with `\"` as a quote. Other backslashes are separators of somebody's directories.
fn unescape(value: &[u8]) -> String {
    String::from_utf8_lossy(value).replace("\\\"", "\"")
}

/// True if `text` reads the same in UTF-8 and in the charset of its part's content type.
pub(super) fn is_in_charset(text: &str, content_type: &str) -> bool {
    split_parameters(content_type.as_bytes()).1.all(|parameter| match parameter {
        Err(MalformedParameter) => false,
        Ok(Parameter { name, .. }) if is_extended(name, b"charset") => false,
        Ok(Parameter { name, value }) if name.eq_ignore_ascii_case(b"charset") => {
            let names_ascii = value.eq_ignore_ascii_case(b"us-ascii")
                || value.eq_ignore_ascii_case(b"iso-8859-1");
            value.eq_ignore_ascii_case(b"utf-8") || names_ascii && text.is_ascii()
        }
        Ok(_) => true,
    })
}

/// One `name=value`, without the quotes but with the backslashes of the value.
#[derive(Debug)]
pub(super) struct Parameter<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
}

/// A parameter that is malformed, or that parsers read differently.
#[derive(Debug)]
pub(super) struct MalformedParameter;

/// The value before the first `;`, and the parameters behind it.
pub(super) fn split_parameters(value: &[u8]) -> (&[u8], Parameters<'_>) {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let (kind, rest) = value.split_at_checked(end).unwrap_or_default();
    (kind, Parameters { rest })
}

/// Parameters, each behind a `;`. Ends with the first that is malformed.
#[derive(Debug)]
pub(super) struct Parameters<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Parameters<'a> {
    type Item = Result<Parameter<'a>, MalformedParameter>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() {
            return None;
        }
        let Some((parameter, rest)) = parameter(rest) else { return Some(Err(MalformedParameter)) };
        self.rest = rest;
        Some(Ok(parameter))
    }
}

/// The first parameter of `text`, and the remaining text.
fn parameter(text: &[u8]) -> Option<(Parameter<'_>, &[u8])> {
    let (name, rest) = token(text.strip_prefix(b";")?.trim_ascii_start())?;
    let rest = rest.strip_prefix(b"=")?;
    let (value, rest) = match rest.strip_prefix(b"\"") {
        None => token(rest)?,
        Some(quoted) => {
            let (value, rest) = quoted.split_at_checked(quoted_end(quoted)?)?;
            (value, rest.get(1..)?)
        }
    };
    Some((Parameter { name, value }, rest))
}

fn token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| !is_token(*byte)).unwrap_or(text.len());
    text.split_at_checked(end).filter(|(token, _)| !token.is_empty())
}

/// Position of the closing quote in `text`, which begins behind the opening one. `None` without one, or where
/// it depends on the meaning of a backslash.
fn quoted_end(text: &[u8]) -> Option<usize> {
    for at in memchr::memchr_iter(b'"', text) {
        let value = text.get(..at)?;
        if value.ends_with(b"\\\\") {
            return None;
        }
        if !value.ends_with(b"\\") {
            // Whoever does not know `\"` would go on with the next parameter behind it.
            let has_escapes = memchr::memmem::find(value, b"\\\"").is_some();
            return (!has_escapes || memchr::memchr(b';', value).is_none()).then_some(at);
        }
    }
    None
}

/// The characters of a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
