//! WebM, and Matroska with the same codecs: the frames in all blocks of audio tracks, by what each packet says
//! itself. What the file says of its duration, and the times of clusters and blocks, are not read.
//!
//! Source: RFC 8794 (EBML) and RFC 9559 (Matroska), sections 5.1.3 and 10.

use std::collections::BTreeMap;

use super::reader::ByteReader;
use super::vorbis::Identification;
use super::{AudioFault, Samples, opus};

const SEGMENT: u32 = 0x1853_8067;
const CLUSTER: u32 = 0x1f43_b675;
const TRACKS: u32 = 0x1654_ae6b;
const BLOCK_GROUP: u32 = 0xa0;
const BLOCK: u32 = 0xa1;
const SIMPLE_BLOCK: u32 = 0xa3;
const ENCRYPTED_BLOCK: u32 = 0xaf;
const TRACK_ENTRY: u32 = 0xae;
const TRACK_NUMBER: u32 = 0xd7;
const TRACK_TYPE: u32 = 0x83;
const CODEC_ID: u32 = 0x86;
const CODEC_PRIVATE: u32 = 0x63a2;
const CONTENT_ENCODINGS: u32 = 0x6d80;
/// Other elements of a file, a segment, a cluster and a block group. Decoders that meet an unlisted element
/// search the bytes behind it for clusters.
const OTHERS: [u32; 23] = [
    0x1a45_dfa3, // EBML
    0xec,        // Void
    0xbf,        // CRC-32
    0x114d_9b74, // SeekHead
    0x1549_a966, // Info
    0x1c53_bb6b, // Cues
    0x1941_a469, // Attachments
    0x1043_a770, // Chapters
    0x1254_c367, // Tags
    0xe7,        // Timestamp
    0x5854,      // SilentTracks
    0xa7,        // Position
    0xab,        // PrevSize
    0xa2,        // BlockVirtual
    0x75a1,      // BlockAdditions
    0x9b,        // BlockDuration
    0xfa,        // ReferencePriority
    0xfb,        // ReferenceBlock
    0xfd,        // ReferenceVirtual
    0xa4,        // CodecState
    0x75a2,      // DiscardPadding
    0x8e,        // Slices
    0xc8,        // ReferenceFrame
];

/// Tracks in one file: real ones have one or two.
const TRACKS_MAX: usize = 128;
/// Maximum nesting of elements: a block is in a group, in a cluster, in a segment.
const DEPTH_MAX: usize = 8;
/// The type of audio tracks.
const AUDIO: u64 = 2;

/// Sums over the blocks of a track.
#[derive(Default)]
struct BlockSums {
    frames: u64,
    /// Samples of the frames, if they are packets of Opus.
    opus_samples: u64,
}

/// Contents of a file, in any order.
#[derive(Default)]
struct WebmContent<'a> {
    tracks: Vec<&'a [u8]>,
    blocks: BTreeMap<u64, BlockSums>,
}

pub(super) fn count(file: &[u8], samples: &mut Samples) -> Result<(), AudioFault> {
    let mut found = WebmContent::default();
    found.walk(file)?;
    let mut numbers = Vec::new();
    for entry in &found.tracks {
        let Some(track) = Track::read(entry)? else { continue };
        if numbers.contains(&track.number) {
            return Err(AudioFault::Malformed("two tracks of the WebM file have one number"));
        }
        numbers.push(track.number);
        let Some(blocks) = found.blocks.get(&track.number) else { continue };
        match track.vorbis {
            None => samples.add(opus::RATE, blocks.opus_samples),
            Some(Identification { rate, packet_samples_max }) => {
                samples.add(rate, blocks.frames.saturating_mul(packet_samples_max));
            }
        }
    }
    if numbers.is_empty() {
        Err(AudioFault::Malformed("the WebM file has no audio"))
    } else {
        Ok(())
    }
}

impl<'a> WebmContent<'a> {
    /// Visits every element that can contain frames or tracks, at any depth.
    fn walk(&mut self, file: &'a [u8]) -> Result<(), AudioFault> {
        let mut elements = EbmlElements::new(file);
        // Where the elements end that the next one is in.
        let mut around = Vec::new();
        while let Some(element) = elements.next()? {
            while around.last().is_some_and(|end| *end <= element.begin) {
                around.pop();
            }
            // Whoever finds elements that overlap looks for others within them.
            if around.last().is_some_and(|end| element.end.is_some_and(|its| its > *end)) {
                return Err(AudioFault::Malformed("elements of the WebM file overlap"));
            }
            if matches!(element.id, SEGMENT | CLUSTER | TRACKS | BLOCK_GROUP) {
                around.extend(element.end);
                if around.len() > DEPTH_MAX {
                    return Err(AudioFault::Malformed("elements of the WebM file are too deep"));
                }
                // What is in it comes next.
                continue;
            }
            self.add(&element, file.len())?;
            elements.skip(element.content.len());
        }
        Ok(())
    }

    fn add(&mut self, element: &Element<'a>, file_bytes: usize) -> Result<(), AudioFault> {
        let Some(end) = element.end else {
            return Err(AudioFault::Malformed("an element of the WebM file has no length"));
        };
        let is_block = matches!(element.id, BLOCK | SIMPLE_BLOCK);
        if end > file_bytes && !is_block {
            return Err(AudioFault::Malformed("an element of the WebM file is not all there"));
        }
        match element.id {
            BLOCK | SIMPLE_BLOCK => self.add_block(element.content),
            TRACK_ENTRY if self.tracks.len() >= TRACKS_MAX => {
                Err(AudioFault::Unsupported("a WebM file with so many tracks"))
            }
            TRACK_ENTRY => {
                self.tracks.push(element.content);
                Ok(())
            }
            ENCRYPTED_BLOCK => Err(AudioFault::Unsupported("a WebM file that is encrypted")),
            id if OTHERS.contains(&id) => Ok(()),
            _ => Err(AudioFault::Malformed("an element of the WebM file is unknown")),
        }
    }

    fn add_block(&mut self, block: &[u8]) -> Result<(), AudioFault> {
        let malformed = || AudioFault::Malformed("a block of the WebM file cannot be read");
        let mut reader = ByteReader::new(block);
        let (number, _) = variable(&mut reader).ok_or_else(malformed)?;
        let flags = reader.take(2).and_then(|_| reader.u8()).ok_or_else(malformed)?;
        let is_listed = self.blocks.contains_key(&number);
        if !is_listed && self.blocks.len() >= TRACKS_MAX {
            return Err(AudioFault::Unsupported("a WebM file with so many tracks"));
        }
        let sizes = laced(&mut reader, flags >> 1 & 3).ok_or_else(malformed)?;
        let blocks = self.blocks.entry(number).or_default();
        let last = reader.rest().len().saturating_sub(sizes.iter().sum());
        for size in sizes.into_iter().chain([last]) {
            // The last block of a file can be cut off.
            let frame = reader.take(size).unwrap_or(reader.rest());
            blocks.frames += 1;
            blocks.opus_samples = blocks.opus_samples.saturating_add(opus::samples(frame));
        }
        Ok(())
    }
}

/// The sizes of the frames of a block but for the last (RFC 9559, section 10.3).
fn laced(reader: &mut ByteReader<'_>, lacing: u8) -> Option<Vec<usize>> {
    if lacing == 0 {
        return Some(Vec::new());
    }
    let sizes = usize::from(reader.u8()?);
    match lacing {
        1 => (0..sizes).map(|_| xiph_size(reader)).collect(),
        2 => Some(vec![reader.rest().len() / (sizes + 1); sizes]),
        _ => {
            let mut size = None;
            let mut next = |_| {
                let (number, digits) = variable(reader)?;
                let next = match size {
                    None => number,
                    // The difference to the one before, with its middle at zero.
                    Some(before) => {
                        let middle = (1_u64 << (7 * digits - 1)) - 1;
                        u64::checked_add(before, number)?.checked_sub(middle)?
                    }
                };
                size = Some(next);
                usize::try_from(next).ok()
            };
            (0..sizes).map(&mut next).collect()
        }
    }
}

/// A size that is the sum of bytes up to the first below 255.
pub(super) fn xiph_size(reader: &mut ByteReader<'_>) -> Option<usize> {
    let mut size = 0;
    loop {
        let byte = reader.u8()?;
        size += usize::from(byte);
        if byte < 255 {
            return Some(size);
        }
    }
}

/// A track of which there is something to hear.
struct Track {
    number: u64,
    /// The first header of a track of Vorbis; `None` for Opus.
    vorbis: Option<Identification>,
}

impl Track {
    /// Reads the entry of a track; `None` for one that is no audio.
    fn read(entry: &[u8]) -> Result<Option<Self>, AudioFault> {
        let (mut number, mut kind, mut codec, mut private) = (0, 0, &b""[..], &b""[..]);
        let mut elements = EbmlElements::new(entry);
        let mut seen = Vec::new();
        let mut is_encoded = false;
        while let Some(Element { id, content, .. }) = elements.next()? {
            let integer = || content.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
            match id {
                TRACK_NUMBER => number = integer(),
                TRACK_TYPE => kind = integer(),
                CODEC_ID => codec = content,
                CODEC_PRIVATE => private = content,
                _ => {}
            }
            is_encoded |= id == CONTENT_ENCODINGS;
            let counts = matches!(id, TRACK_NUMBER | TRACK_TYPE | CODEC_ID | CODEC_PRIVATE);
            if counts && seen.contains(&id) {
                return Err(AudioFault::Malformed("a track of the WebM file says a thing twice"));
            }
            seen.extend(counts.then_some(id));
            elements.skip(content.len());
        }
        if kind != AUDIO && !codec.starts_with(b"A_") {
            return Ok(None);
        }
        if is_encoded {
            return Err(AudioFault::Unsupported("a WebM file whose frames are packed"));
        }
        let vorbis = match codec {
            b"A_OPUS" => None,
            b"A_VORBIS" => {
                let fault = AudioFault::Malformed("the WebM file's head of Vorbis cannot be read");
                Some(vorbis(private).ok_or(fault)?)
            }
            _ => return Err(AudioFault::Unsupported("a WebM file must hold Opus or Vorbis")),
        };
        Ok(Some(Self { number, vorbis }))
    }
}

/// The first of the three headers of Vorbis in a track's private data.
fn vorbis(private: &[u8]) -> Option<Identification> {
    let mut reader = ByteReader::new(private);
    reader.u8().filter(|more| *more == 2)?;
    let first = xiph_size(&mut reader)?;
    xiph_size(&mut reader)?;
    Identification::read(reader.take(first)?)
}

/// An EBML element with its position in the file.
struct Element<'a> {
    id: u32,
    /// Start offset in the file.
    begin: usize,
    /// End offset in an undamaged file; `None` where an element begins that cannot be inside.
    end: Option<usize>,
    /// The part of its content that the file has.
    content: &'a [u8],
}

/// The elements of a file, one behind the other. What is in one comes next, unless it is skipped.
struct EbmlElements<'a> {
    bytes: usize,
    reader: ByteReader<'a>,
}

impl<'a> EbmlElements<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.len(), reader: ByteReader::new(bytes) }
    }

    fn next(&mut self) -> Result<Option<Element<'a>>, AudioFault> {
        let reader = &mut self.reader;
        let begin = self.bytes - reader.rest().len();
        let Some(first) = reader.rest().first() else { return Ok(None) };
        let malformed = AudioFault::Malformed("an element of the WebM file cannot be read");
        let digits = usize::try_from(first.leading_zeros()).unwrap_or(8) + 1;
        let id = reader.take(digits).filter(|_| digits <= 4).ok_or(malformed)?;
        let id = id.iter().fold(0, |id, byte| id << 8 | u32::from(*byte));
        let (size, digits) = variable(reader).ok_or(malformed)?;
        let is_endless = size == (1 << (7 * digits)) - 1;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let content = reader.rest().get(..size).unwrap_or(reader.rest());
        let end = (self.bytes - reader.rest().len()).saturating_add(size);
        Ok(Some(Element { id, begin, end: (!is_endless).then_some(end), content }))
    }

    fn skip(&mut self, bytes: usize) {
        self.reader.take(bytes);
    }
}

/// A number of variable length, and of how many bytes it is (RFC 8794, section 4).
fn variable(reader: &mut ByteReader<'_>) -> Option<(u64, u32)> {
    let first = reader.u8()?;
    let zeros = first.leading_zeros();
    let mut value = u64::from(first) & (0x7f_u64 >> zeros);
    for _ in 0..zeros {
        value = value << 8 | u64::from(reader.u8()?);
    }
    (zeros < 8).then_some((value, zeros + 1))
}
