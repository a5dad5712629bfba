//! MPEG audio of layers I to III, which MP3 is the last of: frames, each of which says how long it is in
//! bytes and in samples. Notes on the whole file in the first frame (Xing, Info, VBRI) are not read.
//!
//! As far as frames of one kind follow each other from the first byte on, every decoder finds the same. From
//! where they do not, decoders look for the next frame in ways of their own: there the dearest of all
//! choices of frames that do not overlap is taken.
//!
//! Source: ISO/IEC 11172-3 and 13818-3, section 2.4.2.3; id3.org's "ID3 tag version 2.4.0", section 3.

use std::num::NonZero;

use super::{AudioFault, Samples};

/// Frames that follow each other at the beginning of a file without tags: fewer could be chance.
const FRAMES_MIN: usize = 2;
/// More than the longest frame has: 2881 bytes, of layer II at 160 kbit/s and 8 kHz.
const WINDOW_BYTES: usize = 4096;
/// The rate in which durations of several rates are added up: 705.6 MHz divides by every rate that frames
/// can have.
const FLICKS: NonZero<u32> = NonZero::new(705_600_000).expect("not zero");

/// Kilobits per second by the index in a frame's head.
const RATES_V1_L1: [u16; 15] =
    [0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448];
const RATES_V1_L2: [u16; 15] = [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384];
const RATES_V1_L3: [u16; 15] = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
const RATES_V2_L1: [u16; 15] = [0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256];
const RATES_V2: [u16; 15] = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MpegFrame {
    /// The bytes of all of it, the four of its head among them.
    pub(super) bytes: usize,
    samples: u32,
    rate: NonZero<u32>,
    /// Version, layer and rate, which are constant within a stream.
    kind: u16,
}

impl MpegFrame {
    /// The frame at the head of `bytes`; `None` where none begins.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let [0xff, second, third, _, ..] = *bytes else { return None };
        if second & 0xe0 != 0xe0 {
            return None;
        }
        let (version, layer) = (second >> 3 & 3, second >> 1 & 3);
        let is_first = version == 3;
        let (table, samples) = match (is_first, layer) {
            (true, 3) => (&RATES_V1_L1, 384),
            (true, 2) => (&RATES_V1_L2, 1152),
            (true, 1) => (&RATES_V1_L3, 1152),
            (false, 3) => (&RATES_V2_L1, 384),
            (false, 2) => (&RATES_V2, 1152),
            (false, 1) => (&RATES_V2, 576),
            _ => return None,
        };
        // Free format, whose frames do not say how long they are, is refused with the first.
        let bits = u32::from(*table.get(usize::from(third >> 4))?) * 1000;
        let base: u32 = *[44_100, 48_000, 32_000].get(usize::from(third >> 2 & 3))?;
        let rate = match version {
            3 => base,
            2 => base / 2,
            0 => base / 4,
            _ => return None,
        };
        let padding = u32::from(third >> 1 & 1);
        let bytes = match layer {
            3 => (12 * bits / rate + padding) * 4,
            _ => samples / 8 * bits / rate + padding,
        };
        let kind = u16::from(second & 0xfe) << 8 | u16::from(third & 0x0c);
        let bytes = usize::try_from(bytes).ok().filter(|_| bits > 0)?;
        Some(Self { bytes, samples, rate: NonZero::new(rate)?, kind })
    }

    /// Length in units of [`FLICKS`].
    fn flicks(&self) -> u64 {
        u64::from(self.samples) * u64::from(FLICKS.get() / self.rate.get())
    }
}

/// The bytes of the ID3v2 tags in front of a file.
pub(super) fn id3_bytes(file: &[u8]) -> usize {
    let mut at = 0;
    while let Some([b'I', b'D', b'3', major, minor, flags, size @ ..]) =
        file.get(at..).and_then(|rest| rest.first_chunk::<10>())
    {
        // What is no tag to everybody is searched for frames like all else.
        if *major == 0xff || *minor == 0xff || size.iter().any(|byte| *byte >= 0x80) {
            break;
        }
        let size = size.iter().fold(0, |size, byte| size << 7 | usize::from(*byte));
        let footer = if flags & 0x10 == 0 { 0 } else { 10 };
        let end = at + 10 + size + footer;
        if end > file.len() {
            break;
        }
        at = end;
    }
    at
}

/// True if a file begins with frames.
pub(super) fn begins(file: &[u8]) -> bool {
    FrameChain::new(file).take(FRAMES_MIN).count() == FRAMES_MIN
        || MpegFrame::read(file).is_some_and(|frame| frame.bytes >= file.len())
}

/// Counts the frames of a file with so many bytes of tags in front.
pub(super) fn count(file: &[u8], tags: usize, samples: &mut Samples) -> Result<(), AudioFault> {
    let audio = file.get(tags..).unwrap_or_default();
    let mut at = 0;
    // Of the last frame of the chain some decoders think otherwise, since none follows.
    let mut last = None;
    for frame in FrameChain::new(audio) {
        if let Some(MpegFrame { rate, samples: count, bytes, .. }) = last.replace(frame) {
            samples.add(rate, count.into());
            at += bytes;
        }
    }
    let unchained = if at == 0 { file } else { audio.get(at..).unwrap_or_default() };
    let most = most_flicks(unchained);
    if at == 0 && most == 0 {
        return Err(AudioFault::Unknown);
    }
    samples.add(FLICKS, most);
    Ok(())
}

/// Frames of one kind that follow each other from the first byte on.
pub(super) struct FrameChain<'a> {
    rest: &'a [u8],
    kind: Option<u16>,
}

impl<'a> FrameChain<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, kind: None }
    }
}

impl Iterator for FrameChain<'_> {
    type Item = MpegFrame;

    fn next(&mut self) -> Option<MpegFrame> {
        let frame = MpegFrame::read(self.rest)?;
        if *self.kind.get_or_insert(frame.kind) != frame.kind {
            return None;
        }
        self.rest = self.rest.get(frame.bytes..).unwrap_or_default();
        Some(frame)
    }
}

/// The longest that frames come to of which no two share a byte, in units of [`FLICKS`]: wherever in
/// these bytes a decoder looks for frames, it finds no more.
fn most_flicks(bytes: &[u8]) -> u64 {
    // From the last byte to the first: the most from here on is that from the next byte on, or the frame
    // that begins here with the most behind it.
    let mut behind = vec![0_u64; WINDOW_BYTES];
    let mut most = 0_u64;
    for at in (0..bytes.len()).rev() {
        if bytes.get(at) == Some(&0xff)
            && let Some(frame) = bytes.get(at..).and_then(MpegFrame::read)
        {
            let end = at + frame.bytes;
            let next = behind.get(end % WINDOW_BYTES).copied().filter(|_| end < bytes.len());
            most = most.max(next.unwrap_or(0).saturating_add(frame.flicks()));
        }
        if let Some(slot) = behind.get_mut(at % WINDOW_BYTES) {
            *slot = most;
        }
    }
    most
}
