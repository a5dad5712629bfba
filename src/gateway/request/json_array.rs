//! A stream of events as one JSON array: Google's API streams so where nobody asks for `alt=sse`.

use bytes::{Bytes, BytesMut};

use crate::protocols::sse::{self, EventAction, Events};

/// Writes the data of events as the elements of an array, each as soon as it has come.
pub(crate) struct ArrayWriter {
    events: Events,
    has_begun: bool,
    /// An event came that was too long to be cut out: the array is left without an end.
    is_broken: bool,
}

impl Default for ArrayWriter {
    fn default() -> Self {
        Self { events: Events::for_images(), has_begun: false, is_broken: false }
    }
}

impl ArrayWriter {
    /// Adds a piece of the stream to the array.
    pub(crate) fn write(&mut self, piece: &Bytes, is_end: bool) -> Bytes {
        let mut out = BytesMut::with_capacity(piece.len());
        let Self { events, has_begun, is_broken } = self;
        let uncut = events.relay(piece, |event| {
            let data = sse::data(event);
            if !data.is_empty() && !*is_broken {
                let begun = std::mem::replace(has_begun, true);
                out.extend_from_slice(if begun { b",\r\n" } else { b"[" });
                out.extend_from_slice(&data);
            }
            EventAction::Drop
        });
        *is_broken |= !uncut.is_empty();
        if is_end && !*is_broken {
            out.extend_from_slice(if *has_begun { b"]" } else { b"[]" });
        }
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_become_elements_wherever_they_are_cut() {
        let stream = b"data: {\"a\":1}\r\n\r\n: comment\n\ndata: {\"b\":\"]\"}\n\n";
        for cut in 0..stream.len() {
            let mut writer = ArrayWriter::default();
            let mut out = writer.write(&Bytes::copy_from_slice(&stream[..cut]), false).to_vec();
            out.extend_from_slice(&writer.write(&Bytes::copy_from_slice(&stream[cut..]), true));
            assert_eq!(out, b"[{\"a\":1},\r\n{\"b\":\"]\"}]", "{cut}");
        }
        assert_eq!(ArrayWriter::default().write(&Bytes::new(), true), "[]");
    }
}
