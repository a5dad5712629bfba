//! Reading an answer over HTTP/1.1 (RFC 9112): its head, and where its body ends.

use std::mem::MaybeUninit;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderValue;
use http::header::{CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use pingora::{Error, ErrorType, Result};

use crate::balance::QuotaReport;
use crate::config::snapshot::Upstream;
use crate::gateway::upstream::response_headers;
use crate::gateway::wire::chunk_scan::ChunkScan;
use crate::gateway::wire::head::{self, AnswerHead, AnswerHeaders};

/// The largest head of an answer, in bytes. Providers send 2 KiB or less.
pub(super) const HEAD_BYTES_MAX: usize = 128 * 1024;
/// The most header fields of an answer. Providers send 40 or fewer.
const FIELDS_MAX: usize = 256;
/// The longest name of a field that is compared before it becomes one, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A response head with the framing of its body and the fate of its connection.
#[derive(Debug)]
pub(super) struct ReadHead {
    pub(super) head: AnswerHead,
    pub(super) body: UnreadAnswer,
    pub(super) keep: Keep,
    /// The operator's quota in the head.
    pub(super) quota: Option<QuotaReport>,
}

/// The reuse of a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// The connection is closed after the response.
    No,
    /// The connection can be reused, within this time if the upstream declares one.
    For(Option<Duration>),
}

/// The unread rest of an answer's body.
#[derive(Debug)]
pub(super) enum UnreadAnswer {
    /// Number of bytes to come.
    Length(u64),
    /// Body with the chunked encoding.
    Chunks(ChunkScan),
    /// The body ends with the connection, which is still open.
    UntilClose,
}

impl UnreadAnswer {
    /// No body, or the end of one.
    pub(super) const NONE: Self = Self::Length(0);

    /// True once the whole body was read.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunks(scan) => scan.is_over(),
            Self::UntilClose => false,
        }
    }

    /// Takes the next piece of the body out of `read`; `None` if there is none yet. The framing behind the
    /// piece is removed too.
    ///
    /// # Errors
    /// Framing that is malformed.
    pub(super) fn take(&mut self, read: &mut BytesMut) -> Result<Option<Bytes>> {
        let taken = match self {
            Self::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(read.len());
                *left = left.saturating_sub(taken as u64);
                taken
            }
            Self::Chunks(scan) => {
                skip_framing(scan, read)?;
                scan.take_data(read.len())
            }
            Self::UntilClose => read.len(),
        };
        if taken == 0 {
            return Ok(None);
        }
        let piece = read.split_to(taken).freeze();
        if let Self::Chunks(scan) = self {
            skip_framing(scan, read)?;
        }
        Ok(Some(piece))
    }

    /// Notes that the connection has ended.
    ///
    /// # Errors
    /// The body should have gone on.
    pub(super) fn end(&mut self) -> Result<()> {
        match self {
            Self::UntilClose => {
                *self = Self::NONE;
                Ok(())
            }
            body if body.is_over() => Ok(()),
            _ => Err(Error::explain(ErrorType::ConnectionClosed, "the body is not whole")),
        }
    }
}

fn skip_framing(scan: &mut ChunkScan, read: &mut BytesMut) -> Result<()> {
    let skipped = scan.skip_framing(read);
    let skipped = skipped.ok_or_else(|| malformed("the chunks of the body are malformed"))?;
    read.advance(skipped);
    Ok(())
}

/// Takes a complete head out of `read`; `scanned` is the number of bytes that earlier calls searched. Of a
/// successful response only the used header fields are kept: providers send 30, most of them unused.
///
/// # Errors
/// A head that is none, or is too large.
pub(super) fn take_head(
    read: &mut BytesMut,
    scanned: &mut usize,
    upstream: &Upstream,
) -> Result<Option<ReadHead>> {
    let Some(end) = head_end(read, *scanned) else {
        *scanned = read.len();
        return if read.len() > HEAD_BYTES_MAX {
            Err(malformed("it is too large"))
        } else {
            Ok(None)
        };
    };
    *scanned = 0;
    parse(&read.split_to(end).freeze(), upstream).map(Some)
}

/// The end of the head, behind its empty line. The bytes before `scanned` have no empty line, except in their
/// last line.
fn head_end(read: &[u8], scanned: usize) -> Option<usize> {
    // The line end that a head ends with may lie across the two reads.
    let from = scanned.saturating_sub(2);
    let rest = read.get(from..)?;
    memchr::memchr_iter(b'\n', rest).find_map(|at| match rest.get(at + 1..)? {
        [b'\n', ..] => Some(from + at + 2),
        [b'\r', b'\n', ..] => Some(from + at + 3),
        _ => None,
    })
}

fn parse(head: &Bytes, upstream: &Upstream) -> Result<ReadHead> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let mut config = httparse::ParserConfig::default();
    config.allow_spaces_after_header_name_in_responses(true);
    let status = config.parse_response_with_uninit_headers(&mut parsed, head, &mut fields);
    if !status.is_ok_and(|status| status.is_complete()) {
        return Err(malformed("its head cannot be read"));
    }
    let status = parsed.code.filter(|code| (100..1000).contains(code));
    let status = status.ok_or_else(|| malformed("its status is none"))?;
    let is_success = (200..300).contains(&status);
    let mut answer = head::of(status);
    let mut neighbour = Neighbour::default();
    let mut quota = None;
    for field in parsed.headers.iter() {
        let mut room = [0; NAME_BYTES_MAX];
        // Compared before it becomes a `HeaderName`: most of a provider's 30 fields are dropped, and need no
        // parsing.
        let is_left_out = in_small_letters(field.name, &mut room).is_some_and(|name| {
            QuotaReport::note(&mut quota, name, field.value);
            neighbour.says(name, field.value)
                || is_success && !response_headers::is_of_use(name, upstream)
        });
        if is_left_out {
            continue;
        }
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(malformed("a header cannot be read"));
        };
        answer.headers.append(name, value);
    }
    let is_old = parsed.version == Some(0);
    let (body, is_sound) = frame(&mut answer, is_old)?;
    let keep = match body {
        UnreadAnswer::UntilClose => Keep::No,
        _ if !is_sound || answer.switches_protocols() => Keep::No,
        _ => neighbour.keep(is_old),
    };
    Ok(ReadHead { head: answer, body, keep, quota })
}

/// The name of a field in small letters; `None` if it has no room.
fn in_small_letters<'a>(name: &str, room: &'a mut [u8; NAME_BYTES_MAX]) -> Option<&'a [u8]> {
    let room = room.get_mut(..name.len())?;
    room.copy_from_slice(name.as_bytes());
    room.make_ascii_lowercase();
    Some(room)
}

/// The framing of the body (RFC 9112, section 6.3), and true if two readers must agree on it: a connection on
/// which they may not takes no other request.
fn frame(head: &mut AnswerHead, is_old: bool) -> Result<(UnreadAnswer, bool)> {
    let has_none = head.status.is_informational() || !head.may_have_body();
    let (coding, another) = {
        let mut codings = head.headers.get_all(&TRANSFER_ENCODING);
        (codings.next(), codings.next())
    };
    let Some(coding) = coding else {
        let length = length(&head.headers)?;
        return Ok(match length {
            _ if has_none => (UnreadAnswer::NONE, true),
            Some(length) => (UnreadAnswer::Length(length), true),
            None => (UnreadAnswer::UntilClose, false),
        });
    };
    // A coding beside that of chunks would hide what is to be metered.
    if another.is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Err(malformed("its transfer coding is not chunked"));
    }
    // The chunks decide (RFC 9112, section 6.3). Another reader may take the length, so the connection is not
    // reused.
    let has_length = head.headers.remove(&CONTENT_LENGTH);
    if has_none {
        return Ok((UnreadAnswer::NONE, false));
    }
    Ok((UnreadAnswer::Chunks(ChunkScan::lenient()), !has_length && !is_old))
}

/// Declared length, which may be repeated with equal values.
fn length(headers: &AnswerHeaders) -> Result<Option<u64>> {
    let mut length = None;
    for value in headers.get_all(&CONTENT_LENGTH) {
        for declared in members(value.as_bytes()) {
            let declared = number(declared);
            if declared.is_none() || length.is_some_and(|length| Some(length) != declared) {
                return Err(malformed("its length is no number, or there are two"));
            }
            length = declared;
        }
    }
    Ok(length)
}

/// The members of a list in a field (RFC 9110, section 5.6.1).
fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// A number of digits only, without a sign.
fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

/// Hop-by-hop fields of a head (RFC 9112, section 9.3).
#[derive(Default)]
struct Neighbour {
    closes: bool,
    keeps: bool,
    /// Declared idle time of the connection.
    idle: Option<Duration>,
}

impl Neighbour {
    /// Notes a hop-by-hop field; false for any other field.
    fn says(&mut self, name: &[u8], value: &[u8]) -> bool {
        match name {
            b"connection" => {
                for option in members(value) {
                    self.closes |= option.eq_ignore_ascii_case(b"close");
                    self.keeps |= option.eq_ignore_ascii_case(b"keep-alive");
                }
                true
            }
            b"keep-alive" => {
                self.idle = self.idle.or_else(|| idle_timeout(value));
                true
            }
            _ => false,
        }
    }

    fn keep(&self, is_old: bool) -> Keep {
        if self.closes || is_old && !self.keeps { Keep::No } else { Keep::For(self.idle) }
    }
}

/// `Keep-Alive: timeout=5, max=100`
fn idle_timeout(value: &[u8]) -> Option<Duration> {
    let seconds = members(value).find_map(|one| number(one.strip_prefix(b"timeout=")?))?;
    Some(Duration::from_secs(seconds))
}

/// An answer that cannot be read.
fn malformed(cause: &'static str) -> Box<Error> {
    Error::explain(ErrorType::InvalidHTTPHeader, cause)
}
