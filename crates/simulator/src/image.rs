//! Images as simulated upstreams make them, and as much of PNG as is needed to compare sizes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::behaviour::Behaviour;

/// Start of every PNG: the signature, and the length and type of the first chunk (W3C, "Portable Network
/// Graphics", 5.2 and 11.2.1). Width and height follow.
const PNG_START: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR";
/// A picture of one blue pixel, its data stored without compression.
#[rustfmt::skip]
pub(super) const PNG: [u8; 72] = [
    0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0x00, 0x00, 0x00, 0x0D,
    0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01,
    0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xDE, 0x00, 0x00, 0x00,
    0x0F, 0x49, 0x44, 0x41, 0x54, 0x78, 0x01, 0x01, 0x04, 0x00, 0xFB, 0xFF,
    0x00, 0x33, 0x66, 0x99, 0x02, 0x02, 0x01, 0x33, 0x81, 0x31, 0x01, 0x71,
    0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4E, 0x44, 0xAE, 0x42, 0x60, 0x82,
];

/// An image in base64: the picture, or as many characters as were told, which are no picture.
pub(super) fn in_base64(behaviour: &Behaviour) -> String {
    match usize::try_from(behaviour.image_bytes) {
        Ok(bytes @ 1..) => "A".repeat(bytes),
        _ => STANDARD.encode(PNG),
    }
}

/// Width and height of a PNG; `None` for anything else.
pub(super) fn png_dimensions(file: &[u8]) -> Option<(u32, u32)> {
    let (width, rest) = file.strip_prefix(PNG_START)?.split_first_chunk()?;
    let (height, _) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*width), u32::from_be_bytes(*height)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_is_a_png() {
        assert_eq!(png_dimensions(&PNG), Some((1, 1)));
        assert_eq!(png_dimensions(&PNG[..20]), None, "half of a size is none");
        assert_eq!(png_dimensions(b"\xFF\xD8\xFF\xE0 a JPEG, for example"), None);
        // Each chunk is length, type, data and the CRC of type and data.
        let (mut rest, mut kinds) = (&PNG[8..], Vec::new());
        while !rest.is_empty() {
            let length = u32::from_be_bytes(rest[..4].try_into().expect("4 bytes"));
            let end = 8 + usize::try_from(length).expect("a length");
            let sum = u32::from_be_bytes(rest[end..end + 4].try_into().expect("4 bytes"));
            assert_eq!(crc32fast::hash(&rest[4..end]), sum, "the sum after {kinds:?}");
            kinds.push(String::from_utf8_lossy(&rest[4..8]).into_owned());
            rest = &rest[end + 4..];
        }
        assert_eq!(kinds, ["IHDR", "IDAT", "IEND"]);
        // One row of a filter and three colours, stored: zlib's head, a last block, its length, and
        // at the end the Adler-32 of the row (RFC 1950, RFC 1951).
        let (row, sum) = PNG[48..56].split_at(4);
        assert_eq!(PNG[41..48], [0x78, 0x01, 1, 4, 0, !4, !0]);
        let step = |(a, b): (u32, u32), byte: &u8| (a + u32::from(*byte), b + a + u32::from(*byte));
        let (a, b) = row.iter().fold((1, 0), step);
        assert_eq!(sum, (b << 16 | a).to_be_bytes());
    }
}
