use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::*;

fn size(file: &[u8]) -> Option<(u64, u64)> {
    let text = STANDARD.encode(file);
    let size = PictureSize::read(InlineBytes::new(text.as_bytes()))?;
    Some((size.width, size.height))
}

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    file.extend(width.to_be_bytes());
    file.extend(height.to_be_bytes());
    file
}

/// A JPEG whose frame stands behind segments of these lengths.
fn jpeg(width: u16, height: u16, frame: u8, before: &[u16]) -> Vec<u8> {
    let mut file = b"\xFF\xD8".to_vec();
    for length in before {
        file.extend([0xFF, 0xE1]);
        file.extend(length.to_be_bytes());
        // Every second one looks like a frame of a thumbnail.
        file.extend([0xFF, 0xC0].repeat(usize::from(*length) / 2 - 1));
    }
    file.extend([0xFF, 0xFF, frame, 0, 17, 8]);
    file.extend(height.to_be_bytes());
    file.extend(width.to_be_bytes());
    file
}

fn gif(width: u16, height: u16, frame: [u16; 4]) -> Vec<u8> {
    let mut file = b"GIF89a".to_vec();
    file.extend(width.to_le_bytes());
    file.extend(height.to_le_bytes());
    // A table of four colours, an extension, and a frame.
    file.extend([0x81, 0, 0]);
    file.extend([9; 12]);
    file.extend([b'!', 0xF9, 4, b',', b',', b',', b',', 0, b',']);
    file.extend(frame.iter().flat_map(|number| number.to_le_bytes()));
    file
}

#[test]
fn dimensions_are_read_from_each_format() {
    let webp = |chunk: &[u8]| [b"RIFF\0\0\0\0WEBP", chunk].concat();
    for (file, expected) in [
        (png(1024, 768), (1024, 768)),
        (jpeg(4032, 3024, 0xC0, &[]), (4032, 3024)),
        (jpeg(10, 20, 0xC2, &[40, 65_534, 65_534, 1000]), (10, 20)),
        (gif(640, 480, [0; 4]), (640, 480)),
        (gif(1, 1, [100, 200, 300, 400]), (400, 600)),
        (webp(b"VP8X\0\0\0\0\0\0\0\0\xFF\x03\0\x57\x02\0"), (1024, 600)),
        (webp(b"VP8L\0\0\0\0\x2F\xFF\xC0\x95\0"), (256, 600)),
        (webp(b"VP8 \0\0\0\0\0\0\0\x9D\x01\x2A\0\x44\x58\x02"), (1024, 600)),
    ] {
        assert_eq!(size(&file), Some(expected), "{file:02X?}");
    }
}

#[test]
fn a_header_that_cannot_be_read_has_no_dimensions() {
    let mut apple = png(10, 10);
    apple[12..16].copy_from_slice(b"CgBI");
    let cut = jpeg(10, 10, 0xC0, &[1000]);
    for file in [
        b"".to_vec(),
        b"BM\0\0\0\0".to_vec(),
        b"%PDF-1.7".to_vec(),
        apple,
        png(0, 10),
        png(10, 10)[..20].to_vec(),
        cut[..500].to_vec(),
        b"\xFF\xD8\xFF\xDA\0\x0C".to_vec(),
        b"\xFF\xD8\xFF\xE0\0\x04\0\0\0\0\0\0".to_vec(),
        b"\xFF\xD8".iter().copied().chain([0xFF; 100_000]).collect(),
        b"RIFF\0\0\0\0WAVEfmt ".to_vec(),
    ] {
        assert_eq!(size(&file), None, "{:02X?}", &file[..file.len().min(40)]);
    }
}

proptest! {
    /// Whatever a file holds, nothing is read beyond it and the reading ends.
    #[test]
    fn no_file_is_read_beyond_its_end(
        kind in 0..4_usize,
        rest in prop::collection::vec(any::<u8>(), 0..256),
    ) {
        let start: &[u8] = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], b"\xFF\xD8\xFF", b"GIF89a", b"RIFF\0\0\0\0WEBPVP8"][kind];
        let file = [start, &rest].concat();
        if let Some((width, height)) = size(&file) {
            prop_assert!(width > 0 && height > 0);
        }
    }
}
