//! The bytes of a segment: a header, then frames. One group commit is one frame.
//!
//! All integers are little-endian. Header and content of a frame have a checksum each, so that a
//! length that was hit by a flipped bit is not taken for an unfinished frame.
//!
//! ```text
//! segment  magic 8 | version u32 | crc32 u32 | first_seq u64 | chain before 32
//! frame    magic u32 | content bytes u32 | first_seq u64 | records u32 | content crc32 u32
//!          | chain 32 | header crc32 u32 | content | 0xff
//! ```

use sha2::{Digest, Sha256};

use crate::Seq;
use crate::format::Format;

/// Running SHA-256 over the whole journal: each frame contains the hash of the one before.
pub type Chain = [u8; 32];

/// Length of a segment's header, in bytes.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 56;
/// Length of a frame's header, in bytes.
pub(crate) const FRAME_HEADER_BYTES: usize = 60;

const SEGMENT_MAGIC: &[u8; 8] = b"TGLEDGER";
const FORMAT_VERSION: u32 = 1;
/// Marker of a frame. It has no zero byte: see [`is_torn`].
const FRAME_MAGIC: [u8; 4] = *b"TGfr";
/// Closes a frame. It is not zero: see [`is_torn`].
const FRAME_END: u8 = 0xff;
/// Size that a disk writes atomically.
const SECTOR_BYTES: usize = 512;

/// The header of a segment's file.
pub(crate) fn encode_segment_header(first_seq: Seq, chain: &Chain) -> Vec<u8> {
    let mut body = Vec::with_capacity(SEGMENT_HEADER_BYTES);
    body.extend_from_slice(&first_seq.to_le_bytes());
    body.extend_from_slice(chain);
    let mut header = Vec::with_capacity(SEGMENT_HEADER_BYTES);
    header.extend_from_slice(SEGMENT_MAGIC);
    header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    header.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
    header.extend_from_slice(&body);
    header
}

/// Reads a segment's header: its first seq and the chain before it.
pub(crate) fn decode_segment_header(bytes: &[u8]) -> Result<(Seq, Chain), &'static str> {
    let mut fields = HeaderFields(bytes);
    let short = "the segment's header is incomplete";
    if fields.take::<8>().ok_or(short)? != SEGMENT_MAGIC {
        return Err("this is not a journal segment");
    }
    if u32::from_le_bytes(*fields.take().ok_or(short)?) != FORMAT_VERSION {
        return Err("the segment was written by another version of the format");
    }
    let crc = u32::from_le_bytes(*fields.take().ok_or(short)?);
    let body = fields.0.get(..40).ok_or(short)?;
    if crc32fast::hash(body) != crc {
        return Err("the segment header's checksum does not match");
    }
    let first_seq = u64::from_le_bytes(*fields.take().ok_or(short)?);
    Ok((first_seq, *fields.take().ok_or(short)?))
}

/// Writes the frame of `group`, whose first record is `first_seq`, into `frame`, whose capacity is
/// reused. Gives the chain after it.
///
/// # Errors
/// When a record cannot be encoded, or all of them together exceed 4 GiB.
pub(crate) fn encode<F: Format>(
    frame: &mut Vec<u8>,
    group: &[F::Entry],
    first_seq: Seq,
    chain: &Chain,
) -> std::io::Result<Chain> {
    frame.clear();
    // Room for the header, which needs the content's checksum: one buffer and one write for both.
    frame.resize(FRAME_HEADER_BYTES, 0);
    for entry in group {
        F::encode(entry, frame)?;
    }
    let count = u32::try_from(group.len()).map_err(std::io::Error::other)?;
    let content = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    let content_bytes = u32::try_from(content.len()).map_err(std::io::Error::other)?;
    let chain = next_chain(chain, first_seq, count, content);
    let mut header = Vec::with_capacity(FRAME_HEADER_BYTES);
    header.extend_from_slice(&FRAME_MAGIC);
    header.extend_from_slice(&content_bytes.to_le_bytes());
    header.extend_from_slice(&first_seq.to_le_bytes());
    header.extend_from_slice(&count.to_le_bytes());
    header.extend_from_slice(&crc32fast::hash(content).to_le_bytes());
    header.extend_from_slice(&chain);
    header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
    if let Some(place) = frame.get_mut(..header.len()) {
        place.copy_from_slice(&header);
    }
    // A last byte that is not zero shows that the last sector has arrived: see `is_torn`.
    frame.push(FRAME_END);
    Ok(chain)
}

/// The whole length of the frame whose header this is; `None` for a header that is damaged.
pub(crate) fn whole_bytes(header: &[u8]) -> Option<usize> {
    Header::read(header).map(|header| header.frame_bytes())
}

/// The chain after the frame whose header this is; `None` for a header that is damaged.
pub(crate) fn chain_after(header: &[u8]) -> Option<Chain> {
    Header::read(header).map(|header| header.chain)
}

/// A frame that was read: the records of one group commit.
#[derive(Debug)]
pub struct Frame<R> {
    /// The number of its first record.
    pub first_seq: Seq,
    /// Its records, in order.
    pub records: Vec<R>,
    /// The hash chain after it.
    pub chain: Chain,
    /// Length in the file, in bytes.
    pub bytes: usize,
}

/// Reads the frame at the beginning of `bytes`, which must continue `chain` with `first_seq`.
pub(crate) fn decode<F: Format>(
    bytes: &[u8],
    first_seq: Seq,
    chain: &Chain,
) -> Result<Frame<F::Record>, String> {
    let (header, content) = checked(bytes)?;
    if header.first_seq != first_seq {
        return Err(format!("record {first_seq} is missing; {} stands here", header.first_seq));
    }
    if next_chain(chain, first_seq, header.count, content) != header.chain {
        return Err("the frame does not continue the hash chain".to_owned());
    }
    header.frame::<F>(content)
}

/// Decodes the frame at the beginning of `bytes` without checking its position; returns whether it continues
/// `chain`.
pub(crate) fn decode_anywhere<F: Format>(
    bytes: &[u8],
    chain: &Chain,
) -> Result<(Frame<F::Record>, bool), String> {
    let (header, content) = checked(bytes)?;
    let continues = next_chain(chain, header.first_seq, header.count, content) == header.chain;
    Ok((header.frame::<F>(content)?, continues))
}

/// Offset of the next frame header, after the first byte.
pub(crate) fn next_header(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.get(1..)?;
    let mut places = memchr::memmem::find_iter(rest, &FRAME_MAGIC).map(|at| at + 1);
    places.find(|at| bytes.get(*at..).and_then(Header::read).is_some())
}

/// A frame's header and content, if its checksums match.
fn checked(bytes: &[u8]) -> Result<(Header, &[u8]), String> {
    let header = Header::read(bytes).ok_or("the frame's header is incomplete or damaged")?;
    let content = bytes
        .get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + header.content_bytes)
        .ok_or("the frame is incomplete")?;
    if crc32fast::hash(content) != header.content_crc {
        return Err("the frame's checksum does not match its content".to_owned());
    }
    // The content may be whole while the sector with its last byte is not.
    if bytes.get(FRAME_HEADER_BYTES + header.content_bytes) != Some(&FRAME_END) {
        return Err("the frame's last byte is missing or wrong".to_owned());
    }
    Ok((header, content))
}

/// The records of a frame's content.
fn records<F: Format>(content: &[u8], count: u32) -> Result<Vec<F::Record>, String> {
    let mut records = Vec::new();
    let mut rest = content;
    for _ in 0..count {
        let (record, after) = F::decode(rest)?;
        records.push(record);
        rest = after;
    }
    if !rest.is_empty() {
        return Err("the frame holds more than its records".to_owned());
    }
    Ok(records)
}

/// The hash chain after the frame that ends where `bytes` end; `None` if none does.
pub(crate) fn chain_at_end(bytes: &[u8]) -> Option<Chain> {
    memchr::memmem::rfind_iter(bytes, &FRAME_MAGIC).find_map(|at| {
        let header = Header::read(bytes.get(at..)?)?;
        (at + header.frame_bytes() == bytes.len()).then_some(header.chain)
    })
}

/// True if the unreadable bytes at the end of the last segment can be an unfinished write of a
/// crash. Nobody was told that such a write was durable.
///
/// That is so when the file ends before the frame does, or when the file has its full length but a
/// sector of it never arrived and reads as zeros. No whole part of a sector within a frame is ever
/// zeros by itself: a frame begins and ends with a byte that is not, and no record holds hundreds of
/// zeros (see [`Format`]). Anything else, a flipped bit above all, is damage. `offset` is the frame's place in its file.
pub(crate) fn is_torn(bytes: &[u8], offset: u64) -> bool {
    if bytes.len() < FRAME_HEADER_BYTES {
        return true;
    }
    if let Some(header) = Header::read(bytes) {
        match bytes.len().cmp(&header.frame_bytes()) {
            std::cmp::Ordering::Less => return true,
            // Another frame follows, so this one was finished once.
            std::cmp::Ordering::Greater => return false,
            std::cmp::Ordering::Equal => {}
        }
    // A frame behind the unreadable one was begun after that had been flushed.
    } else if (1..bytes.len()).any(|at| bytes.get(at..).and_then(Header::read).is_some()) {
        return false;
    }
    let into_sector = usize::try_from(offset % SECTOR_BYTES as u64).unwrap_or(0);
    let (first, others) = bytes.split_at(bytes.len().min(SECTOR_BYTES - into_sector));
    let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == 0);
    is_zero(first) || others.chunks(SECTOR_BYTES).any(is_zero)
}

struct Header {
    content_bytes: usize,
    first_seq: Seq,
    count: u32,
    content_crc: u32,
    chain: Chain,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = HeaderFields(bytes);
        if fields.take::<4>()? != &FRAME_MAGIC {
            return None;
        }
        let content_bytes = u32::from_le_bytes(*fields.take()?);
        let header = Self {
            content_bytes: usize::try_from(content_bytes).ok()?,
            first_seq: u64::from_le_bytes(*fields.take()?),
            count: u32::from_le_bytes(*fields.take()?),
            content_crc: u32::from_le_bytes(*fields.take()?),
            chain: *fields.take()?,
        };
        let crc = u32::from_le_bytes(*fields.take()?);
        (crc32fast::hash(bytes.get(..FRAME_HEADER_BYTES - 4)?) == crc).then_some(header)
    }

    fn frame<F: Format>(&self, content: &[u8]) -> Result<Frame<F::Record>, String> {
        let records = records::<F>(content, self.count)?;
        let (first_seq, chain, bytes) = (self.first_seq, self.chain, self.frame_bytes());
        Ok(Frame { first_seq, records, chain, bytes })
    }

    fn frame_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.content_bytes + 1
    }
}

/// Reads fields of fixed length one after the other.
struct HeaderFields<'a>(&'a [u8]);

impl<'a> HeaderFields<'a> {
    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(field)
    }
}

fn next_chain(chain: &Chain, first_seq: Seq, count: u32, content: &[u8]) -> Chain {
    let mut hasher = Sha256::new();
    hasher.update(chain);
    // Number and count are hashed as well: frames with equal content could be exchanged otherwise.
    hasher.update(first_seq.to_le_bytes());
    hasher.update(count.to_le_bytes());
    hasher.update(content);
    hasher.finalize().into()
}
