//! Packets of Opus say with their first byte how long they are. Source: RFC 6716, section 3.1.

use std::num::NonZero;

/// Samples are counted at this rate, whatever was recorded.
pub(super) const RATE: NonZero<u32> = NonZero::new(48_000).expect("not zero");
/// Maximum samples of a packet: 120 ms.
const PACKET_SAMPLES_MAX: u64 = 5760;

/// Samples of a packet at [`RATE`], at most 120 ms. An unreadable packet counts as the longest, since
/// decoders can conceal losses.
pub(super) fn samples(packet: &[u8]) -> u64 {
    let Some((head, rest)) = packet.split_first() else { return PACKET_SAMPLES_MAX };
    let config = head >> 3;
    let frame = match config {
        0..=11 => [480, 960, 1920, 2880].get(usize::from(config & 3)),
        12..=15 => [480, 960].get(usize::from(config & 1)),
        _ => [120, 240, 480, 960].get(usize::from(config & 3)),
    };
    let frames = match head & 3 {
        0 => Some(1),
        1 | 2 => Some(2),
        _ => rest.first().map(|count| u64::from(count & 0x3f)).filter(|count| *count > 0),
    };
    let samples = frame.zip(frames).map_or(u64::MAX, |(frame, frames)| frame * frames);
    samples.min(PACKET_SAMPLES_MAX)
}
