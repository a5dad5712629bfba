//! Packets of Vorbis have one of two sizes. Which one is told by headers that describe whole codebooks, so
//! each packet counts as one of the larger. Source: the Vorbis I specification, sections 4.2.2 and 4.3.8.

use std::num::NonZero;

use super::reader::ByteReader;

/// The identification header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identification {
    pub(super) rate: NonZero<u32>,
    /// Maximum samples of a packet: half of a long block, as blocks overlap.
    pub(super) packet_samples_max: u64,
}

impl Identification {
    /// Parses the identification header; `None` for anything else.
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(packet.strip_prefix(b"\x01vorbis")?);
        reader.take(5)?;
        let rate = NonZero::new(reader.u32_le()?)?;
        reader.take(12)?;
        let exponent = reader.u8()? >> 4;
        (6..=13).contains(&exponent).then(|| Self { rate, packet_samples_max: 1 << (exponent - 1) })
    }
}
