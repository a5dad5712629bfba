//! The head of an answer on the wire, and how its body is framed.

use std::io::Write as _;

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, TRANSFER_ENCODING};
use http::{Method, Version};
use pingora::http::RequestHeader;
use pingora::protocols::http::date;
use pingora::{Error, ErrorType, Result};

use crate::gateway::wire::head::AnswerHead;
use crate::gateway::wire::length::declared_length;

/// Room for a head, in bytes: those of most answers fit, with a short body.
const HEAD_BYTES: usize = 2 * 1024;
/// Size up to which a piece is copied behind the head, so that both leave in one write, in bytes. Longer
/// pieces are written without a copy.
const COPIED_BYTES_MAX: usize = 8 * 1024;
/// The most that a line with the size of a chunk takes, in bytes.
const SIZE_BYTES: usize = 18;
/// End of a chunk's data.
const CHUNK_END: &[u8] = b"\r\n";
/// Last chunk of a chunked body.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Framing of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// The head has not been written.
    NotBegun,
    /// Number of bytes to come.
    Length(u64),
    /// Chunks are to come, and a last one.
    Chunks,
    /// A body that ends with the connection.
    ToTheEnd,
    /// The whole answer was written.
    Whole,
}

impl BodyFraming {
    /// The body that follows `head`, which is changed where the client of `request` cannot read it.
    pub(super) fn behind(request: &RequestHeader, head: &mut AnswerHead) -> Self {
        if head.switches_protocols() {
            return Self::ToTheEnd;
        }
        if !head.may_have_body() || request.method == Method::HEAD {
            return Self::Length(0);
        }
        let headers = &mut head.headers;
        if headers.contains(&TRANSFER_ENCODING) {
            if request.version == Version::HTTP_11 {
                return Self::Chunks;
            }
            // HTTP/1.0 knows no chunks.
            headers.remove(&TRANSFER_ENCODING);
            return Self::ToTheEnd;
        }
        declared_length(headers.get(&CONTENT_LENGTH)).map_or(Self::ToTheEnd, Self::Length)
    }

    /// True if the end of the body is the end of the connection.
    pub(super) fn ends_with_connection(self) -> bool {
        self == Self::ToTheEnd
    }

    /// True if the head may wait for the first piece of the body: it is no stream, and a piece will come.
    pub(super) fn is_waited_for(self) -> bool {
        matches!(self, Self::Length(1..))
    }

    /// Frames a piece of the body: appends its prefix to `before`, and returns the part of the piece that
    /// belongs to the answer and its suffix.
    pub(super) fn frame(
        &mut self,
        before: &mut BytesMut,
        mut piece: Bytes,
    ) -> (Bytes, &'static [u8]) {
        match self {
            _ if piece.is_empty() => {}
            // Bytes behind the end would be read as the next response.
            Self::NotBegun | Self::Whole => piece.clear(),
            Self::ToTheEnd => {}
            Self::Length(left) => {
                piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left = left.saturating_sub(piece.len() as u64);
            }
            Self::Chunks => {
                let is_copied = piece.len() <= COPIED_BYTES_MAX;
                let copied = if is_copied { piece.len() + CHUNK_END.len() } else { 0 };
                before.reserve(SIZE_BYTES + copied);
                // There is room for it.
                let _is_written = write!(before.writer(), "{:X}\r\n", piece.len());
                return (piece, CHUNK_END);
            }
        }
        (piece, b"")
    }

    /// Ends the answer, and returns the bytes to send for that.
    ///
    /// # Errors
    /// When some of it is missing: the client must not take it for whole.
    pub(super) fn end(&mut self) -> Result<&'static [u8]> {
        match self {
            Self::Length(1..) => {
                Error::e_explain(ErrorType::WriteError, "the end of an answer is missing")
            }
            Self::Chunks => {
                *self = Self::Whole;
                Ok(LAST_CHUNK)
            }
            Self::Length(0) => {
                *self = Self::Whole;
                Ok(b"")
            }
            Self::NotBegun | Self::ToTheEnd | Self::Whole => Ok(b""),
        }
    }
}

/// Appends a head to `unsent`. An answer says when it was made, and whether the connection is kept for
/// another request.
pub(super) fn write_head(unsent: &mut BytesMut, head: &AnswerHead, keeps: bool) {
    let AnswerHead { status, headers } = head;
    unsent.reserve(HEAD_BYTES);
    let reason = status.canonical_reason().unwrap_or_default();
    for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
        unsent.extend_from_slice(part.as_bytes());
    }
    let is_interim = status.is_informational();
    // An upstream's date and connection are its own; an interim response has neither.
    let is_own = |name: &HeaderName| !is_interim && (*name == DATE || *name == CONNECTION);
    for (name, value) in headers.iter().filter(|(name, _)| !is_own(name)) {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            unsent.extend_from_slice(part);
        }
    }
    if !is_interim {
        let date = date::get_cached_date();
        let connection: &[u8] = if keeps { b"keep-alive" } else { b"close" };
        for part in [b"Date: ", date.as_bytes(), b"\r\nConnection: ", connection, b"\r\n"] {
            unsent.extend_from_slice(part);
        }
    }
    unsent.extend_from_slice(b"\r\n");
}

/// True if the data behind `unsent` is short enough that a copy is cheaper than a second buffer in the write.
pub(super) fn is_sooner_copied(unsent: &BytesMut, behind: &impl Buf) -> bool {
    unsent.len().saturating_add(behind.remaining()) <= COPIED_BYTES_MAX
}
