//! Ogg: the packets of all streams in it, chained or side by side, by what each of them says, and not by the
//! positions on the pages. Pages must follow each other without a gap, with right check sums: a decoder
//! that finds a page damaged looks for others inside of it.
//!
//! Source: RFC 3533, section 6; RFC 7845.

use std::collections::BTreeMap;

use super::reader::ByteReader;
use super::vorbis::Identification;
use super::{AudioFault, Samples, opus};

/// Streams in one file: real ones have one.
const STREAMS_MAX: usize = 256;

/// A stream, from its first page on.
struct Stream {
    codec: StreamCodec,
    /// The packets at its beginning that are headers, as far as they are yet to come.
    headers_left: u8,
    /// Its last page ended within a packet.
    is_inside_packet: bool,
}

#[derive(Clone, Copy)]
enum StreamCodec {
    Opus,
    Vorbis(Identification),
}

pub(super) fn count(file: &[u8], samples: &mut Samples) -> Result<(), AudioFault> {
    let mut streams = BTreeMap::new();
    let mut rest = file;
    while !rest.is_empty() {
        let page = OggPage::read(rest)?;
        rest = rest.get(page.bytes..).unwrap_or_default();
        let packets = page.packets();
        let first = packets.first().copied().unwrap_or_default();
        if page.begins_stream {
            streams.insert(page.serial, Stream::begin(first)?);
            if streams.len() > STREAMS_MAX {
                return Err(AudioFault::Unsupported("an Ogg file with hundreds of streams"));
            }
        }
        let unknown = AudioFault::Malformed("an Ogg page belongs to no stream");
        let stream = streams.get_mut(&page.serial).ok_or(unknown)?;
        // What goes on was counted where it began. If it did not begin, it counts here.
        let goes_on = usize::from(page.continues && stream.is_inside_packet);
        for packet in packets.iter().skip(goes_on) {
            stream.count(packet, samples);
        }
        if let Some(is_inside) = page.ends_inside_packet() {
            stream.is_inside_packet = is_inside;
        }
    }
    Ok(())
}

impl Stream {
    fn begin(packet: &[u8]) -> Result<Self, AudioFault> {
        let (codec, headers_left) = if packet.starts_with(b"OpusHead") {
            (StreamCodec::Opus, 2)
        } else if let Some(identification) = Identification::read(packet) {
            (StreamCodec::Vorbis(identification), 3)
        } else {
            return Err(AudioFault::Unsupported("an Ogg file must hold Opus or Vorbis"));
        };
        Ok(Self { codec, headers_left, is_inside_packet: false })
    }

    fn count(&mut self, packet: &[u8], samples: &mut Samples) {
        if self.headers_left > 0 {
            self.headers_left -= 1;
            return;
        }
        match self.codec {
            StreamCodec::Opus => samples.add(opus::RATE, opus::samples(packet)),
            StreamCodec::Vorbis(Identification { rate, packet_samples_max }) => {
                samples.add(rate, packet_samples_max);
            }
        }
    }
}

/// A page, which is a piece of one stream.
struct OggPage<'a> {
    begins_stream: bool,
    /// It begins within a packet.
    continues: bool,
    serial: u32,
    /// The sizes of its segments: a packet ends with one below 255.
    lacing: &'a [u8],
    body: &'a [u8],
    /// Size of the page, including its header.
    bytes: usize,
}

impl<'a> OggPage<'a> {
    /// Reads the page at the head of `bytes`. The last of a file can be cut off.
    fn read(bytes: &'a [u8]) -> Result<Self, AudioFault> {
        const SUM: usize = 22;
        let gap = AudioFault::Malformed("the pages of the Ogg file do not follow each other");
        let mut reader = ByteReader::new(bytes);
        if reader.take(5) != Some(b"OggS\0") {
            return Err(gap);
        }
        let cut = AudioFault::Malformed("the last page of the Ogg file has no head");
        let flags = reader.u8().ok_or(cut)?;
        let serial = reader.take(8).and_then(|_| reader.u32_le()).ok_or(cut)?;
        let sum = reader.take(4).and_then(|_| reader.u32_le()).ok_or(cut)?;
        let segments = reader.u8().ok_or(cut)?;
        let lacing = reader.take(segments.into()).ok_or(cut)?;
        let size = lacing.iter().map(|size| usize::from(*size)).sum();
        let head_bytes = bytes.len() - reader.rest().len();
        let body = reader.take(size).unwrap_or(reader.rest());
        let whole = bytes.get(..head_bytes + size);
        if whole.is_some_and(|page| check_sum(page, SUM..SUM + 4) != sum) {
            return Err(AudioFault::Malformed("a page of the Ogg file has a wrong check sum"));
        }
        Ok(Self {
            begins_stream: flags & 2 != 0,
            continues: flags & 1 != 0,
            serial,
            lacing,
            body,
            bytes: head_bytes + size,
        })
    }

    /// The packets in it, or what is in it of them.
    fn packets(&self) -> Vec<&'a [u8]> {
        let mut packets = Vec::new();
        let (mut begin, mut end) = (0, 0);
        for (place, size) in self.lacing.iter().enumerate() {
            end += usize::from(*size);
            if *size < 255 || place + 1 == self.lacing.len() {
                let body = self.body;
                packets.push(body.get(begin..end).or(body.get(begin..)).unwrap_or_default());
                begin = end;
            }
        }
        packets
    }

    /// True if the last packet continues in the next page; `None` for a page without packets.
    fn ends_inside_packet(&self) -> Option<bool> {
        self.lacing.last().map(|size| *size == 255)
    }
}

/// CRC-32 of a page, as if the sum in it were zero.
fn check_sum(page: &[u8], sum_at: std::ops::Range<usize>) -> u32 {
    let bytes =
        page.iter().enumerate().map(|(at, byte)| if sum_at.contains(&at) { 0 } else { *byte });
    bytes.fold(0, |sum, byte| {
        let [top, ..] = u32::to_be_bytes(sum);
        sum << 8 ^ TABLE.get(usize::from(top ^ byte)).copied().unwrap_or_default()
    })
}

/// Table of the checksum's polynomial 0x04c11db7, by byte.
static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0_u32;
    while byte < 256 {
        let mut sum = byte << 24;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 0x8000_0000 == 0 { sum << 1 } else { sum << 1 ^ 0x04c1_1db7 };
            bit += 1;
        }
        table[byte as usize] = sum;
        byte += 1;
    }
    table
};
