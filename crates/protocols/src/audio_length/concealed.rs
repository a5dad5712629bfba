//! Compressed streams that pass for samples of PCM: ffmpeg looks into the first packets of a WAV file, and
//! decodes what it finds there. A stream of 8 kbit/s would so be heard for hours, and counted in seconds.
//!
//! Source: ffmpeg's `libavformat/wavdec.c` and `set_codec_from_probe_data`.

use super::mpeg::FrameChain;

/// Bytes that ffmpeg probes: 32 packets of 4096 bytes, and as much again.
const LOOKED_AT_BYTES: usize = 256 * 1024;
/// Frames in a row that no samples have by chance.
const FRAMES_MIN: usize = 5;
/// The first bytes of a frame of DTS, in its four ways of writing.
const DTS: [[u8; 4]; 4] = [
    [0x7f, 0xfe, 0x80, 0x01],
    [0xfe, 0x7f, 0x01, 0x80],
    [0x1f, 0xff, 0xe8, 0x00],
    [0xff, 0x1f, 0x00, 0xe8],
];
/// Frames of DTS that no samples have by chance: each has four bytes by which it is known.
const DTS_FRAMES_MIN: usize = 3;
/// Kilobits per second of AC-3, by half of the code in a frame's head.
const AC3_RATES: [u32; 19] =
    [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640];

/// True if some decoders take these samples for a compressed stream.
pub(super) fn is_compressed(samples: &[u8]) -> bool {
    let begin = samples.get(..LOOKED_AT_BYTES).unwrap_or(samples);
    let has_mpeg = memchr::memchr_iter(0xff, begin).any(|at| {
        let rest = begin.get(at..).unwrap_or_default();
        FrameChain::new(rest).take(FRAMES_MIN).count() == FRAMES_MIN || is_chain(rest, adts_bytes)
    });
    let starts_chain = |at: usize| is_chain(begin.get(at..).unwrap_or_default(), ac3_bytes);
    let has_dts = |head: &[u8; 4]| {
        memchr::memmem::find_iter(begin, head).take(DTS_FRAMES_MIN).count() == DTS_FRAMES_MIN
    };
    // Its bytes can be swapped in pairs as well.
    has_mpeg
        || memchr::memmem::find_iter(begin, &[0x0b, 0x77]).any(starts_chain)
        || is_swapped_ac3(begin)
        || DTS.iter().any(has_dts)
}

fn is_swapped_ac3(samples: &[u8]) -> bool {
    memchr::memmem::find_iter(samples, &[0x77, 0x0b]).any(|at| {
        is_chain(samples.get(at..).unwrap_or_default(), |bytes| {
            let [a, b, c, d, e, f, ..] = *bytes else { return None };
            ac3_bytes(&[b, a, d, c, f, e])
        })
    })
}

/// True if frames follow each other from the first byte on. `bytes_of` returns the length of the frame that
/// begins there.
fn is_chain(bytes: &[u8], bytes_of: impl Fn(&[u8]) -> Option<usize>) -> bool {
    let mut rest = bytes;
    for _ in 0..FRAMES_MIN {
        let Some(length) = bytes_of(rest) else { return false };
        rest = rest.get(length..).unwrap_or_default();
    }
    true
}

/// A frame of AAC as ADTS has it (ISO/IEC 14496-3, section 1.A.2).
fn adts_bytes(bytes: &[u8]) -> Option<usize> {
    let [0xff, second, third, fourth, fifth, sixth, ..] = *bytes else { return None };
    let length = usize::from(fourth & 3) << 11 | usize::from(fifth) << 3 | usize::from(sixth >> 5);
    (second & 0xf6 == 0xf0 && third >> 2 & 0xf < 13 && length >= 7).then_some(length)
}

/// A frame of AC-3 or E-AC-3 (ETSI TS 102 366, sections 4.4.1 and E.1.3.1).
fn ac3_bytes(bytes: &[u8]) -> Option<usize> {
    let [0x0b, 0x77, third, fourth, fifth, sixth, ..] = *bytes else { return None };
    match sixth >> 3 {
        0..=10 => {
            let rate = *AC3_RATES.get(usize::from(fifth >> 1 & 0x1f))?;
            let odd = u32::from(fifth & 1);
            let words = match fifth >> 6 {
                0 => rate * 2,
                1 => rate * 1000 * 96 / 44_100 + odd,
                2 => rate * 3,
                _ => return None,
            };
            usize::try_from(words * 2).ok()
        }
        11..=16 => Some((usize::from(third & 7) << 8 | usize::from(fourth)) * 2 + 2),
        _ => None,
    }
}
