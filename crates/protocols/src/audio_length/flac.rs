//! FLAC: the heads of frames, each of which says how many samples it has and ends in a check sum. All of
//! them count that are anywhere in the file, so that no decoder can find more. What the file's own head
//! says of samples in all is not read.
//!
//! Source: RFC 9639, sections 8.2 and 9.1.

use std::num::NonZero;

use super::{AudioFault, Samples};

/// Rates by their code in a frame's head; the first stands in the file's head.
const RATES: [u32; 12] =
    [0, 88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000];

pub(super) fn count(file: &[u8], samples: &mut Samples) -> Result<(), AudioFault> {
    let file_rate = rate_of_file(file).ok_or(AudioFault::Malformed("the FLAC file has no head"))?;
    let mut has_frames = false;
    for at in memchr::memchr_iter(0xff, file) {
        let Some(head) = file.get(at..).and_then(FlacFrameHead::read) else { continue };
        // Some decoders go by the file's rate, others by the frame's: the longer counts.
        let rate = head.rate.map_or(file_rate, |rate| {
            file_rate.map_or(Some(rate), |file_rate| Some(file_rate.min(rate)))
        });
        let rate = rate.ok_or(AudioFault::Malformed("the FLAC file does not tell its rate"))?;
        samples.add(rate, head.samples.into());
        has_frames = true;
    }
    if has_frames { Ok(()) } else { Err(AudioFault::Malformed("the FLAC file has no frames")) }
}

/// The rate in the file's head, which can be left out there.
fn rate_of_file(file: &[u8]) -> Option<Option<NonZero<u32>>> {
    // The first block is the one about the stream, with a rate of 20 bits behind sizes of ten bytes.
    let block =
        file.get(4..42).filter(|block| block.first().is_some_and(|kind| kind & 0x7f == 0))?;
    let [first, second, third] = *block.get(14..)?.first_chunk::<3>()?;
    let rate = u32::from(first) << 12 | u32::from(second) << 4 | u32::from(third >> 4);
    Some(NonZero::new(rate))
}

/// The header of a frame.
struct FlacFrameHead {
    samples: u32,
    /// `None` for the rate of the file.
    rate: Option<NonZero<u32>>,
}

impl FlacFrameHead {
    /// Reads one with the right check sum at the head of `bytes`.
    fn read(bytes: &[u8]) -> Option<Self> {
        let [0xff, 0xf8 | 0xf9, sizes, channels, ..] = *bytes else { return None };
        if channels >> 4 > 10 || channels & 1 != 0 {
            return None;
        }
        let (size_code, rate_code) = (sizes >> 4, sizes & 0xf);
        let mut at = 4 + coded_number_bytes(*bytes.get(4)?)?;
        let mut number = |count: usize| {
            let digits = bytes.get(at..at + count)?;
            at += count;
            Some(digits.iter().fold(0, |number, digit| number << 8 | u32::from(*digit)))
        };
        let samples = match size_code {
            0 => return None,
            1 => 192,
            2..=5 => 144 << size_code,
            6 => number(1)? + 1,
            7 => number(2)? + 1,
            _ => 1 << size_code,
        };
        let rate = match rate_code {
            12 => number(1)? * 1000,
            13 => number(2)?,
            14 => number(2)? * 10,
            code => *RATES.get(usize::from(code))?,
        };
        let sum = *bytes.get(at)?;
        let is_right = check_sum(bytes.get(..at)?) == sum;
        is_right.then_some(Self { samples, rate: NonZero::new(rate) })
    }
}

/// The bytes of the number of a frame or sample, by the first of them.
fn coded_number_bytes(first: u8) -> Option<usize> {
    match first.leading_ones() {
        0 => Some(1),
        1 | 8 => None,
        count => usize::try_from(count).ok(),
    }
}

/// CRC-8 with the polynomial x^8 + x^2 + x + 1.
fn check_sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ byte, |sum, _| if sum & 0x80 == 0 { sum << 1 } else { sum << 1 ^ 7 })
    })
}
