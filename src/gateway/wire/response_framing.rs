//! Framing of an upstream's answer: by its head, and where head and body disagree, by its body. An answer
//! that is read with the wrong framing could not be metered, and would be free.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use crate::gateway::wire::head::AnswerHeaders;
use crate::protocols::{Call, Framing};

/// The media type of Amazon's binary event streams.
const AMAZON_EVENT_STREAM: &str = "application/vnd.amazon.eventstream";

/// The framing that the head of a 2xx response declares; `None` if no client could read it.
pub(crate) fn declared_framing(headers: &AnswerHeaders, call: &dyn Call) -> Option<Framing> {
    // What is compressed, although it was asked for as it is, cannot be metered.
    if headers.get(&CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return None;
    }
    let value = headers.get(&CONTENT_TYPE)?.to_str().ok()?;
    let media_type = value.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("text/event-stream") {
        Some(Framing::Sse).filter(|_| !call.comes_in_frames())
    } else if call.comes_in_frames() && media_type.eq_ignore_ascii_case(AMAZON_EVENT_STREAM) {
        Some(Framing::EventStream)
    } else if is_json(media_type) {
        Some(Framing::Json).filter(|_| !call.answers_binary())
    } else {
        Some(Framing::Binary).filter(|_| call.answers_binary())
    }
}

/// True if a media type without parameters is JSON.
pub(crate) fn is_json(media_type: &str) -> bool {
    media_type.eq_ignore_ascii_case("application/json") || media_type.ends_with("+json")
}

/// Framing that the beginning of a body shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShownFraming {
    /// Undecided: upstreams send blank lines while the model thinks.
    Blank,
    /// The only possible framing.
    Only(Framing),
    /// Another type, which the codec may recognise.
    Other,
}

/// The framing by the first byte that is not blank: no JSON document begins like a line of an event stream
/// (HTML standard, section 9.2.5), and the other way round.
pub(crate) fn shown_framing(body: &[u8]) -> ShownFraming {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => ShownFraming::Blank,
        Some(b'{' | b'[' | b'"') => ShownFraming::Only(Framing::Json),
        // A comment, `data`, `event`, `id` and `retry`.
        Some(b':' | b'd' | b'e' | b'i' | b'r') => ShownFraming::Only(Framing::Sse),
        Some(_) => ShownFraming::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_shows_what_it_is_with_its_first_byte() {
        for (body, kind) in [
            (&b""[..], ShownFraming::Blank),
            (b"\r\n\n \t", ShownFraming::Blank),
            (b"\n\n{\"a\":1}", ShownFraming::Only(Framing::Json)),
            (b"[1]", ShownFraming::Only(Framing::Json)),
            (b"\xef\xbb\xbfdata: {}", ShownFraming::Only(Framing::Sse)),
            (b": keep-alive\n\n", ShownFraming::Only(Framing::Sse)),
            (b"event: ping\n", ShownFraming::Only(Framing::Sse)),
            (b"id: 1\n", ShownFraming::Only(Framing::Sse)),
            (b"retry: 1\n", ShownFraming::Only(Framing::Sse)),
            (b"<html>", ShownFraming::Other),
            (b"null", ShownFraming::Other),
        ] {
            assert_eq!(shown_framing(body), kind, "{}", body.escape_ascii());
        }
    }
}
