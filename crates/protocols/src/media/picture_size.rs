//! The dimensions of a picture, as a decoder finds them in its file.

use super::InlineBytes;

/// Segments of a JPEG file before its dimensions at most: cameras write a dozen, and a profile of colours or
/// a thumbnail may take a few dozen more.
const JPEG_SEGMENTS_MAX: usize = 1024;
/// Blocks of a GIF file before its first frame at most, pieces of comments among them.
const GIF_BLOCKS_MAX: usize = 4096;

/// The dimensions of a picture in pixels, neither of them zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PictureSize {
    pub(crate) width: u64,
    pub(crate) height: u64,
}

impl PictureSize {
    /// `None` for a file that is no PNG, JPEG, GIF or WebP, or whose header cannot be read. Other formats
    /// hold several pictures of several sizes.
    pub(crate) fn read(file: InlineBytes<'_>) -> Option<Self> {
        let size = match file.read::<4>(0)? {
            [0x89, b'P', b'N', b'G'] => png(file),
            [0xFF, 0xD8, 0xFF, _] => jpeg(file),
            [b'G', b'I', b'F', b'8'] => gif(file),
            [b'R', b'I', b'F', b'F'] => webp(file),
            _ => None,
        };
        size.filter(|size| size.width > 0 && size.height > 0)
    }

    pub(crate) fn long(self) -> u64 {
        self.width.max(self.height)
    }

    pub(crate) fn short(self) -> u64 {
        self.width.min(self.height)
    }
}

/// PNG specification, section 11.2.1: the header is the first chunk.
fn png(file: InlineBytes<'_>) -> Option<PictureSize> {
    (file.read(4)? == *b"\r\n\x1a\n" && file.read(12)? == *b"IHDR").then_some(())?;
    let side = |at: usize| file.read(at).map(|bytes| u64::from(u32::from_be_bytes(bytes)));
    Some(PictureSize { width: side(16)?, height: side(20)? })
}

/// ITU-T T.81, appendix B: the dimensions are in the first segment that begins a frame. Thumbnails are inside
/// of other segments, which are passed over without being decoded.
fn jpeg(file: InlineBytes<'_>) -> Option<PictureSize> {
    let short = |at: usize| file.read(at).map(u16::from_be_bytes);
    let mut at = 2;
    for _ in 0..JPEG_SEGMENTS_MAX {
        let [0xFF, marker] = file.read(at)? else { return None };
        match marker {
            // A marker may begin with several of these.
            0xFF => at += 1,
            0x01 | 0xD0..=0xD7 => at += 2,
            // Tables of codes and the like are among the numbers of frames.
            0xC0..=0xCF if !matches!(marker, 0xC4 | 0xC8 | 0xCC) => {
                let (height, width) = (short(at + 5)?, short(at + 7)?);
                return Some(PictureSize { width: width.into(), height: height.into() });
            }
            // Data of a picture, or its end, before any dimensions.
            0xD8..=0xDA => return None,
            _ => at += 2 + usize::from(short(at + 2)?.max(2)),
        }
    }
    None
}

/// GIF89a specification: decoders give the size of the screen, or that of a first frame beyond it.
fn gif(file: InlineBytes<'_>) -> Option<PictureSize> {
    let short = |at: usize| file.read(at).map(|bytes| u64::from(u16::from_le_bytes(bytes)));
    let screen = PictureSize { width: short(6)?, height: short(8)? };
    let flags = file.byte(10)?;
    let colours = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let mut at = 13 + colours(flags);
    let mut in_extension = false;
    for _ in 0..GIF_BLOCKS_MAX {
        match file.byte(at)? {
            // An extension is made of pieces, each behind its length, and ends with an empty one.
            bytes if in_extension => {
                in_extension = bytes > 0;
                at += 1 + usize::from(bytes);
            }
            b'!' => {
                in_extension = true;
                at += 2;
            }
            b',' => {
                let width = screen.width.max(short(at + 1)? + short(at + 5)?);
                let height = screen.height.max(short(at + 3)? + short(at + 7)?);
                return Some(PictureSize { width, height });
            }
            _ => return None,
        }
    }
    None
}

/// Size of a WebP file: the type of the first chunk determines where it is (RFC 9649).
fn webp(file: InlineBytes<'_>) -> Option<PictureSize> {
    (file.read(8)? == *b"WEBP").then_some(())?;
    match &file.read::<4>(12)? {
        b"VP8X" => {
            let side = |at: usize| {
                let [low, middle, high] = file.read(at)?;
                Some(u64::from(u32::from_le_bytes([low, middle, high, 0])) + 1)
            };
            Some(PictureSize { width: side(24)?, height: side(27)? })
        }
        b"VP8L" => {
            (file.byte(20)? == 0x2F).then_some(())?;
            let bits = u32::from_le_bytes(file.read(21)?);
            let side = |bits: u32| u64::from(bits & 0x3FFF) + 1;
            Some(PictureSize { width: side(bits), height: side(bits >> 14) })
        }
        b"VP8 " => {
            (file.read(23)? == [0x9D, 0x01, 0x2A]).then_some(())?;
            let side = |at: usize| {
                file.read(at).map(|bytes| u64::from(u16::from_le_bytes(bytes) & 0x3FFF))
            };
            Some(PictureSize { width: side(26)?, height: side(28)? })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
