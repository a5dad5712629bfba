//! Server-sent events, cut out of a byte stream without waiting for more than the event at hand.
//!
//! Source: WHATWG HTML, section 9.2 "Server-sent events". Lines end with `\n`, `\r\n` or `\r`; a
//! blank line ends an event.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};

/// The longest event of text that is looked into. A longer one is relayed as it comes, unread.
const EVENT_BYTES_MAX: usize = 1024 * 1024;
/// The longest event that carries images, in bytes. A longer one is relayed as it comes, unread.
const IMAGE_EVENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Handling of a complete event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventAction {
    /// The event goes to the customer.
    Keep,
    /// The event is left out.
    Drop,
}

/// Cuts a stream into events and relays those that are kept.
///
/// A started event is held until its blank line has come: no client acts on less than a whole
/// event, and a stream that is cut in the middle of one then still ends on an event's boundary, so
/// an error event can follow. A chunk of whole kept events is passed on without a copy.
#[derive(Debug)]
pub struct Events {
    /// The beginning of an event whose end has not come.
    held: BytesMut,
    bytes_max: usize,
    line: LinePosition,
    /// Inside an event that grew past `bytes_max`.
    oversize: bool,
    /// There was such an event.
    has_unread: bool,
}

/// Position of the stream in a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LinePosition {
    /// At the first byte of a line.
    #[default]
    Start,
    /// After at least one byte of a line.
    Inside,
    /// Behind a `\r` that ended a line with content: a `\n` would belong to it.
    AfterCr,
    /// Behind a `\r` that ended an event: a `\n` would belong to it.
    AfterLastCr,
}

impl Events {
    /// For a stream of text.
    #[must_use]
    pub fn for_text() -> Self {
        Self::new(EVENT_BYTES_MAX)
    }

    /// For a stream of images.
    #[must_use]
    pub fn for_images() -> Self {
        Self::new(IMAGE_EVENT_BYTES_MAX)
    }

    fn new(bytes_max: usize) -> Self {
        let (held, line) = (BytesMut::new(), LinePosition::default());
        Self { held, bytes_max, line, oversize: false, has_unread: false }
    }

    /// True if an event was too long to be read.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        self.has_unread
    }

    /// Bytes that wait for the end of their event.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Takes a chunk; returns what can be relayed now. `judge` sees each complete event once.
    pub fn relay(&mut self, chunk: &Bytes, mut judge: impl FnMut(&[u8]) -> EventAction) -> Bytes {
        let mut kept = KeptPieces::new(chunk);
        let mut start = 0;
        let mut from = 0;
        while let Some(end) = self.event_end(chunk, from) {
            from = end;
            let tail = chunk.get(start..end).unwrap_or_default();
            // Its beginning was passed on unread, so the end must follow; it cannot be judged any
            // more.
            if std::mem::take(&mut self.oversize) {
                kept.range(start, end);
            } else if self.held.is_empty() {
                if judge(tail) == EventAction::Keep {
                    kept.range(start, end);
                }
            } else {
                self.held.extend_from_slice(tail);
                let event = self.held.split();
                if judge(&event) == EventAction::Keep {
                    kept.bytes(&event);
                }
            }
            start = end;
        }
        let rest = chunk.get(start..).unwrap_or_default();
        if self.oversize || self.held.len() + rest.len() > self.bytes_max {
            self.oversize = true;
            self.has_unread = true;
            // Passed on rather than held: a stream without blank lines must not grow in memory.
            kept.bytes(&self.held.split());
            kept.range(start, chunk.len());
        } else {
            self.held.extend_from_slice(rest);
        }
        kept.finish()
    }

    /// The stream has ended: whatever was held of an unfinished event.
    pub fn take_unfinished(&mut self) -> Bytes {
        self.line = LinePosition::Start;
        self.held.split().freeze()
    }

    /// The position behind the blank line that ends the event running at `from`.
    fn event_end(&mut self, chunk: &[u8], mut from: usize) -> Option<usize> {
        loop {
            if matches!(self.line, LinePosition::Inside) {
                let rest = chunk.get(from..)?;
                match memchr::memchr2(b'\n', b'\r', rest) {
                    None => return None,
                    Some(position) => {
                        // The standard allows CR, LF and CRLF, also mixed in one stream.
                        let cr = rest.get(position) == Some(&b'\r');
                        self.line = if cr { LinePosition::AfterCr } else { LinePosition::Start };
                        from += position + 1;
                    }
                }
            }
            let byte = *chunk.get(from)?;
            match (self.line, byte) {
                (LinePosition::AfterCr | LinePosition::AfterLastCr, b'\n') => {
                    self.line = LinePosition::Start;
                    from += 1;
                }
                (_, b'\n') => {
                    self.line = LinePosition::Start;
                    return Some(from + 1);
                }
                (LinePosition::AfterLastCr, _) => self.line = LinePosition::Start,
                (_, b'\r') => {
                    // The event ends here; a `\n` behind it, in this chunk, belongs to it.
                    if chunk.get(from + 1) == Some(&b'\n') {
                        self.line = LinePosition::Start;
                        return Some(from + 2);
                    }
                    // Whether a LF follows is known with the next chunk only; the event need not
                    // wait for that.
                    self.line = LinePosition::AfterLastCr;
                    return Some(from + 1);
                }
                (_, _) => {
                    self.line = LinePosition::Inside;
                    from += 1;
                }
            }
        }
    }
}

/// Collects kept pieces; as long as they are one run of the chunk, it is a slice and not a copy.
struct KeptPieces<'a> {
    chunk: &'a Bytes,
    run: (usize, usize),
    copy: Option<BytesMut>,
}

impl<'a> KeptPieces<'a> {
    fn new(chunk: &'a Bytes) -> Self {
        Self { chunk, run: (0, 0), copy: None }
    }

    fn range(&mut self, start: usize, end: usize) {
        if self.copy.is_none() {
            if self.run.0 == self.run.1 {
                self.run = (start, end);
                return;
            }
            // Kept events that stand together stay one slice of the chunk, so the usual stream is
            // never copied.
            if self.run.1 == start {
                self.run.1 = end;
                return;
            }
        }
        let piece = self.chunk.get(start..end).unwrap_or_default();
        self.bytes(piece);
    }

    fn bytes(&mut self, piece: &[u8]) {
        let (start, end) = self.run;
        let run = self.chunk.get(start..end).unwrap_or_default();
        self.copy.get_or_insert_with(|| BytesMut::from(run)).extend_from_slice(piece);
    }

    fn finish(self) -> Bytes {
        match self.copy {
            Some(copy) => copy.freeze(),
            None => self.chunk.slice(self.run.0..self.run.1),
        }
    }
}

/// The data of an event: its `data` lines joined with `\n`. Empty when it has none.
#[must_use]
pub fn data(event: &[u8]) -> Cow<'_, [u8]> {
    let mut joined: Option<Cow<'_, [u8]>> = None;
    let mut rest = event;
    while !rest.is_empty() {
        let end = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let line = rest.get(..end).unwrap_or_default();
        rest = rest.get(end + 1..).unwrap_or_default();
        let Some(value) = line.strip_prefix(b"data") else { continue };
        let value = match value.strip_prefix(b":") {
            Some(value) => value.strip_prefix(b" ").unwrap_or(value),
            None if value.is_empty() => value,
            None => continue,
        };
        joined = Some(match joined {
            None => Cow::Borrowed(value),
            Some(before) => {
                let mut both = before.into_owned();
                both.push(b'\n');
                both.extend_from_slice(value);
                Cow::Owned(both)
            }
        });
    }
    joined.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(chunks: &[&[u8]], drop: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let (mut events, mut out, mut seen) = (Events::for_text(), Vec::new(), Vec::new());
        for chunk in chunks {
            let relayed = events.relay(&Bytes::copy_from_slice(chunk), |event| {
                seen.push(event.to_vec());
                let dropped = !drop.is_empty() && data(event).as_ref() == drop;
                if dropped { EventAction::Drop } else { EventAction::Keep }
            });
            out.extend_from_slice(&relayed);
        }
        out.extend_from_slice(&events.take_unfinished());
        (out, seen)
    }

    #[test]
    fn whole_events_pass_without_a_copy() {
        let chunk = Bytes::from_static(b"data: 1\n\ndata: 2\n\n");
        let relayed = Events::for_text().relay(&chunk, |_| EventAction::Keep);
        assert_eq!(relayed.as_ptr(), chunk.as_ptr(), "same memory");
        assert_eq!(relayed, chunk);
    }

    #[test]
    fn a_dropped_event_leaves_nothing_behind() {
        for text in
            ["data: 1\n\ndata: x\n\ndata: 2\n\n", "data: 1\r\n\r\ndata: x\r\n\r\ndata: 2\r\n\r\n"]
        {
            let expected = text.replace("data: x\r\n\r\n", "").replace("data: x\n\n", "");
            let (out, seen) = run(&[text.as_bytes()], b"x");
            assert_eq!(String::from_utf8(out).expect("text"), expected);
            assert_eq!(seen.len(), 3, "{text:?}");
        }
    }

    #[test]
    fn all_line_ends_are_understood() {
        for end in ["\n", "\r\n", "\r"] {
            let text = format!(
                "event: a{end}data: 1{end}data: 2{end}{end}: comment{end}{end}data:3{end}{end}"
            );
            let (_, seen) = run(&[text.as_bytes()], b"");
            let datas: Vec<_> = seen.iter().map(|event| data(event).into_owned()).collect();
            assert_eq!(datas, [b"1\n2".to_vec(), b"".to_vec(), b"3".to_vec()], "{end:?}");
        }
    }

    #[test]
    fn an_oversize_event_is_relayed_unread() {
        let giant = vec![b'x'; EVENT_BYTES_MAX + 10];
        let (out, seen) = run(&[b"data: ", &giant, b"\n\ndata: 2\n\n"], b"");
        assert_eq!(out.len(), 6 + giant.len() + 11);
        assert_eq!(seen, [b"data: 2\n\n".to_vec()]);
    }

    proptest! {
        /// However a stream is cut into chunks, the same bytes come out, and the same events are seen.
        #[test]
        fn cutting_changes_nothing(text in "(data: [a-c]{0,3}|:|x|\n|\r|\r\n|\n\n){0,30}", cuts in proptest::collection::vec(0usize..200, 0..12)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let (whole, whole_seen) = run(&[bytes], b"");
            let (cut, cut_seen) = run(&chunks, b"");
            prop_assert_eq!(&whole, bytes);
            prop_assert_eq!(&cut, bytes);
            let datas = |events: &[Vec<u8>]| events.iter().map(|event| data(event).into_owned()).filter(|data| !data.is_empty()).collect::<Vec<_>>();
            prop_assert_eq!(datas(&cut_seen), datas(&whole_seen));
        }
    }
}
