//! Amazon's binary event streams (`application/vnd.amazon.eventstream`), cut out of a byte stream without
//! waiting for more than the frame at hand.
//!
//! A frame is its length and that of its headers, 4 bytes each, the CRC-32 of both, the headers, the
//! payload, and the CRC-32 of all that. Numbers are big-endian. Source: Smithy specification, "Amazon
//! Event Stream Specification". Nothing is guessed: what breaks a rule of it breaks the stream, as all
//! that follows could be read at the wrong place.

use std::fmt;

use bytes::BytesMut;

/// Lengths and their checksum.
const PRELUDE_BYTES: usize = 12;
/// The checksum at a frame's end.
const CHECKSUM_BYTES: usize = 4;
/// The longest frame, in bytes: what Amazon's own libraries take.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The most bytes of headers in one frame, by the specification.
const HEADERS_BYTES_MAX: usize = 128 * 1024;
/// The most headers in one frame. Bedrock sends three or four (`:event-type`, `:content-type`,
/// `:message-type`, or those of an error); each one is compared with those before it, and a hostile
/// upstream could write 26,000 of them into one block.
const HEADERS_MAX: usize = 64;

/// Reason why bytes are not an event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenFrame {
    /// A length is impossible, or longer than any frame may be.
    Length,
    /// The checksum of the lengths is another one.
    PreludeChecksum,
    /// The checksum of the frame is another one.
    Checksum,
    /// The headers are not written as headers are, are too many, or one is there twice.
    Headers,
}

impl fmt::Display for BrokenFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "a frame has an impossible length",
            Self::PreludeChecksum => "the checksum of a frame's lengths is wrong",
            Self::Checksum => "the checksum of a frame is wrong",
            Self::Headers => "the headers of a frame are malformed",
        })
    }
}

impl std::error::Error for BrokenFrame {}

/// One frame: string headers and a payload.
#[derive(Debug, PartialEq, Eq)]
pub struct EventFrame<'a> {
    /// Names and values of the headers whose values are texts, in their order.
    headers: Vec<(&'a str, &'a str)>,
    /// The payload, in the form that the header `:content-type` names.
    pub payload: &'a [u8],
}

impl<'a> EventFrame<'a> {
    /// The header's value, if it is there and is a text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.iter().find(|(header, _)| *header == name).map(|(_, value)| *value)
    }

    /// Reads a whole frame, whose prelude has been checked.
    fn read(frame: &'a [u8], lengths: Lengths) -> Result<Self, BrokenFrame> {
        let end = frame.len().saturating_sub(CHECKSUM_BYTES);
        let (checked, checksum) = frame.split_at_checked(end).ok_or(BrokenFrame::Length)?;
        if number(checksum) != Some(crc32fast::hash(checked)) {
            return Err(BrokenFrame::Checksum);
        }
        let inside = checked.get(PRELUDE_BYTES..).ok_or(BrokenFrame::Length)?;
        let (headers, payload) =
            inside.split_at_checked(lengths.headers).ok_or(BrokenFrame::Length)?;
        let headers = read_headers(headers).ok_or(BrokenFrame::Headers)?;
        Ok(Self { headers, payload })
    }
}

/// String headers of a frame; `None` if they are malformed.
fn read_headers(mut rest: &[u8]) -> Option<Vec<(&str, &str)>> {
    let mut names: Vec<&str> = Vec::new();
    let mut texts = Vec::new();
    while !rest.is_empty() {
        let length = usize::from(*take(&mut rest, 1)?.first()?);
        let name = std::str::from_utf8(take(&mut rest, length)?).ok()?;
        if name.is_empty() || names.len() == HEADERS_MAX || names.contains(&name) {
            return None;
        }
        names.push(name);
        let length = match *take(&mut rest, 1)?.first()? {
            // True and false.
            0 | 1 => 0,
            2 => 1,
            3 => 2,
            4 => 4,
            // Integers and times.
            5 | 8 => 8,
            // Bytes and texts say themselves how long they are.
            kind @ (6 | 7) => {
                let length = take(&mut rest, 2)?;
                let length = usize::from(u16::from_be_bytes(length.try_into().ok()?));
                let value = take(&mut rest, length)?;
                if kind == 7 {
                    texts.push((name, std::str::from_utf8(value).ok()?));
                }
                0
            }
            // UUIDs.
            9 => 16,
            _ => return None,
        };
        take(&mut rest, length)?;
    }
    Some(texts)
}

/// The next bytes of `rest`, which is what follows them then.
fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

/// A number of four bytes.
fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_be_bytes)
}

/// The lengths in a frame's prelude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lengths {
    frame: usize,
    headers: usize,
}

impl Lengths {
    /// Reads the prelude of a frame; `None` if it is incomplete.
    fn read(begun: &[u8]) -> Result<Option<Self>, BrokenFrame> {
        let Some(prelude) = begun.get(..PRELUDE_BYTES) else { return Ok(None) };
        let at = |from: usize| prelude.get(from..from + 4).and_then(number).unwrap_or_default();
        let (frame, headers, checksum) = (at(0), at(4), at(8));
        if checksum != crc32fast::hash(prelude.get(..8).unwrap_or_default()) {
            return Err(BrokenFrame::PreludeChecksum);
        }
        let length = |number: u32| usize::try_from(number).map_err(|_| BrokenFrame::Length);
        let (frame, headers) = (length(frame)?, length(headers)?);
        let around = PRELUDE_BYTES + CHECKSUM_BYTES;
        let has_room = frame.checked_sub(around).is_some_and(|inside| headers <= inside);
        if !has_room || frame > FRAME_BYTES_MAX || headers > HEADERS_BYTES_MAX {
            return Err(BrokenFrame::Length);
        }
        Ok(Some(Self { frame, headers }))
    }
}

/// Cuts a stream into its messages.
#[derive(Debug, Default)]
pub struct EventFrames {
    /// The beginning of a frame whose end has not come.
    held: BytesMut,
    /// The lengths of that frame, once its prelude is complete.
    lengths: Option<Lengths>,
    /// The error after which nothing more is read.
    broken: Option<BrokenFrame>,
}

impl EventFrames {
    /// Processes a chunk and passes on each message that it completes. A message within one chunk is read
    /// without a copy.
    ///
    /// # Errors
    /// The stream is broken, here or before: what came until then was handed on.
    pub fn read(
        &mut self,
        chunk: &[u8],
        mut each: impl FnMut(&EventFrame<'_>),
    ) -> Result<(), BrokenFrame> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let read = self.read_on(chunk, &mut each);
        if let Err(broken) = read {
            self.broken = Some(broken);
            self.held = BytesMut::new();
        }
        read
    }

    /// Bytes that wait for the end of their frame.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// True if the stream may end here: it is intact, and no frame has begun.
    #[must_use]
    pub fn is_at_end_of_frame(&self) -> bool {
        self.held.is_empty() && self.broken.is_none()
    }

    fn read_on(
        &mut self,
        mut rest: &[u8],
        each: &mut impl FnMut(&EventFrame<'_>),
    ) -> Result<(), BrokenFrame> {
        while !self.held.is_empty() {
            let needed = self.lengths.map_or(PRELUDE_BYTES, |lengths| lengths.frame);
            let missing = needed.saturating_sub(self.held.len());
            let Some(more) = take(&mut rest, missing) else {
                self.held.extend_from_slice(rest);
                return Ok(());
            };
            self.held.extend_from_slice(more);
            match self.lengths.take() {
                None => self.lengths = Lengths::read(&self.held)?,
                Some(lengths) => each(&EventFrame::read(&self.held.split(), lengths)?),
            }
        }
        while let Some(lengths) = Lengths::read(rest)? {
            let Some(frame) = take(&mut rest, lengths.frame) else {
                self.lengths = Some(lengths);
                break;
            };
            each(&EventFrame::read(frame, lengths)?);
        }
        self.held.extend_from_slice(rest);
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame with text headers, as the specification has it.
    pub(crate) fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in headers {
            block.push(u8::try_from(name.len()).expect("a short name"));
            block.extend_from_slice(name.as_bytes());
            block.push(7);
            block.extend(u16::try_from(value.len()).expect("a short value").to_be_bytes());
            block.extend_from_slice(value.as_bytes());
        }
        frame_of(&block, payload)
    }

    fn frame_of(headers: &[u8], payload: &[u8]) -> Vec<u8> {
        let length = |bytes: usize| u32::try_from(bytes).expect("short").to_be_bytes();
        let mut frame = length(16 + headers.len() + payload.len()).to_vec();
        frame.extend(length(headers.len()));
        frame.extend(crc32fast::hash(&frame).to_be_bytes());
        frame.extend_from_slice(headers);
        frame.extend_from_slice(payload);
        frame.extend(crc32fast::hash(&frame).to_be_bytes());
        frame
    }

    /// Headers and payload of one frame.
    type Frame = (Vec<(String, String)>, Vec<u8>);

    fn read(chunks: &[&[u8]]) -> (Vec<Frame>, Result<bool, BrokenFrame>) {
        let (mut messages, mut seen) = (EventFrames::default(), Vec::new());
        let mut result = Ok(());
        for chunk in chunks {
            result = messages.read(chunk, |message| {
                let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
                seen.push((message.headers.iter().map(own).collect(), message.payload.to_vec()));
            });
        }
        (seen, result.map(|()| messages.is_at_end_of_frame()))
    }

    /// The message of the specification's test vectors that has one header and a payload.
    #[test]
    fn a_documented_frame_is_read() {
        let payload = br#"{'foo':'bar'}"#;
        let header = b"\x0ccontent-type\x07\x00\x10application/json";
        let frame = frame_of(header, payload);
        assert_eq!(&frame[..12], b"\x00\x00\x00\x3d\x00\x00\x00\x20\x07\xfd\x83\x96");
        assert_eq!(&frame[frame.len() - 4..], b"\x8d\x9c\x08\xb1");
        let (seen, end) = read(&[&frame]);
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        assert_eq!(seen, [(headers, payload.to_vec())]);
        assert_eq!(end, Ok(true));
    }

    #[test]
    fn headers_of_all_types_are_stepped_over_and_odd_ones_break_the_stream() {
        let mut all: Vec<u8> = Vec::new();
        for (kind, bytes) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (5, 8), (8, 8), (9, 16)] {
            all.extend([1, b'a' + kind, kind]);
            all.extend(vec![0xff; bytes]);
        }
        all.extend(b"\x01x\x06\x00\x02\xff\xff\x01y\x07\x00\x02ok");
        let (seen, end) = read(&[&frame_of(&all, b"p")]);
        assert_eq!(end, Ok(true));
        assert_eq!(seen[0].0, [("y".to_owned(), "ok".to_owned())]);
        for odd in [
            &b"\x01a\x0a"[..],
            b"\x00\x00",
            b"\x01a",
            b"\x05a\x00",
            b"\x01a\x07\x00\x05ab",
            b"\x01a\x07\x00\x01\xff",
            b"\x01\xff\x00",
            b"\x01a\x00\x01a\x01",
        ] {
            let (seen, end) = read(&[&frame_of(odd, b"")]);
            assert_eq!((seen.len(), end), (0, Err(BrokenFrame::Headers)), "{}", odd.escape_ascii());
        }
    }

    /// However many headers a frame has, no more than a few are looked at: 26,000 in 128 KiB once took
    /// half a second of a core.
    #[test]
    fn a_frame_has_a_bounded_number_of_headers() {
        let numbered = |count: u32| -> Vec<u8> {
            (0..count).flat_map(|number| format!("\x05{number:05}\0").into_bytes()).collect()
        };
        let most = u32::try_from(HEADERS_MAX).expect("few");
        for (count, end) in [
            (most, Ok(true)),
            (most + 1, Err(BrokenFrame::Headers)),
            (18_000, Err(BrokenFrame::Headers)),
        ] {
            let bytes = frame_of(&numbered(count), b"p");
            let (seen, found) = read(&[&bytes]);
            assert_eq!((seen.len(), found), (usize::from(end.is_ok()), end), "{count} headers");
        }
        // Behind the last header that counts nothing is read: not even that it is malformed.
        let mut odd = numbered(most + 1);
        odd.extend([0xff; 100_000]);
        assert_eq!(read(&[&frame_of(&odd, b"")]).1, Err(BrokenFrame::Headers));
    }

    #[test]
    fn impossible_lengths_break_the_stream_before_anything_is_held() {
        let prelude = |frame: u32, headers: u32| {
            let mut bytes = [frame.to_be_bytes(), headers.to_be_bytes()].concat();
            bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
            bytes
        };
        for (frame, headers) in [
            (0, 0),
            (15, 0),
            (16, 1),
            (u32::MAX, 0),
            (16 * 1024 * 1024 + 1, 0),
            (1024 * 1024, 128 * 1024 + 1),
        ] {
            let bytes = prelude(frame, headers);
            for chunks in [vec![&bytes[..]], bytes.chunks(5).collect()] {
                assert_eq!(read(&chunks).1, Err(BrokenFrame::Length), "{frame} {headers}");
            }
        }
        assert_eq!(read(&[&prelude(16 * 1024 * 1024, 128 * 1024)]).1, Ok(false));
    }

    fn any_frames() -> impl Strategy<Value = Vec<Frame>> {
        let headers = prop::collection::vec(("[a-z]{1,6}", ".{0,12}"), 0..3).prop_map(|all| {
            let number = |(place, (name, value)): (usize, (String, String))| {
                (format!("{name}{place}"), value)
            };
            all.into_iter().enumerate().map(number).collect::<Vec<_>>()
        });
        let payload = prop::collection::vec(any::<u8>(), 0..60);
        prop::collection::vec((headers, payload), 1..5)
    }

    fn written(frames: &[Frame]) -> Vec<u8> {
        let write = |(headers, payload): &Frame| {
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            frame(&headers, payload)
        };
        frames.iter().flat_map(write).collect()
    }

    proptest! {
        /// However a stream is cut into chunks, the same messages are read.
        #[test]
        fn cutting_changes_nothing(frames in any_frames(), cuts in prop::collection::vec(0_usize..400, 0..8)) {
            let bytes = written(&frames);
            for at in 0..=bytes.len() {
                let (seen, end) = read(&[&bytes[..at], &bytes[at..]]);
                prop_assert_eq!(&seen, &frames);
                prop_assert_eq!(end, Ok(true));
            }
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(&read(&chunks).0, &frames);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(&read(&single).0, &frames);
        }

        /// A truncated stream yields the messages before the cut, and reports that it is incomplete.
        #[test]
        fn what_is_cut_short_is_not_whole(frames in any_frames(), percent in 0_usize..100) {
            let bytes = written(&frames);
            let (seen, end) = read(&[&bytes[..bytes.len() * percent / 100]]);
            prop_assert!(seen.len() < frames.len());
            prop_assert_eq!(&seen[..], &frames[..seen.len()]);
            let whole = written(&seen).len() == bytes.len() * percent / 100;
            prop_assert_eq!(end, Ok(whole));
        }

        /// No bit can change without breaking the stream there.
        #[test]
        fn a_changed_bit_breaks_the_stream(frames in any_frames(), bit in any::<prop::sample::Index>()) {
            let mut bytes = written(&frames);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (seen, end) = read(&[&bytes]);
            prop_assert!(matches!(
                end, Err(BrokenFrame::PreludeChecksum | BrokenFrame::Checksum)
            ), "{:?}", end);
            prop_assert_eq!(&seen[..], &frames[..seen.len()]);
            let before = written(&seen).len();
            prop_assert!(before <= bit / 8, "the frames before it are read");
        }

        #[test]
        fn nothing_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), headers in prop::collection::vec(any::<u8>(), 0..60)) {
            drop(read(&[&bytes]));
            drop(read(&[&frame_of(&headers, &bytes)]));
        }
    }
}
