//! Estimated tokens of a whole prompt, for customers who ask how many it has: what its texts come to, and
//! each picture, document and recording by what its provider publishes of that.
//!
//! Nothing is charged by it, so all of the text is measured, and the same prompt always comes to the same.

use super::audio_length;
use super::estimate::TextSize;
use super::json::{Object, Value};
use super::json_cursor::Cursor;
use super::media::{InlineBytes, PdfBound, PictureFamily, PictureSize};

/// Maximum number of measured bytes, more than any model reads. The rest is extrapolated.
const MEASURED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The bits of a second of video, about, as phones and browsers record it: a container does not say how
/// long it is without lying.
const VIDEO_BYTES_PER_SECOND: u64 = 250_000;
/// The bytes of a page of a PDF whose pages cannot be counted, since they are compressed.
const PAGE_BYTES: u64 = 50_000;

/// Counting of media by the makers of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaCount {
    /// OpenAI's guides: pages of a PDF are read as text and as a picture.
    Openai,
    /// Anthropic's guide "PDF support": a page of a PDF is a picture and 1,500 to 3,000 tokens of text.
    Anthropic,
    /// Google's guide "Understand and count tokens": 258 for a page, 32 for a second of sound, 263 and 32 for one
    /// of video.
    Google,
}

impl MediaCount {
    /// The formula for pictures of models whose configuration has none.
    fn pictures(self) -> PictureFamily {
        match self {
            Self::Openai => PictureFamily::OpenaiTiles,
            Self::Anthropic => PictureFamily::Anthropic,
            Self::Google => PictureFamily::GoogleTiles,
        }
    }

    fn page(self, pictures: PictureFamily) -> u64 {
        let picture = || pictures.tokens_typical(PictureSize { width: 1024, height: 1325 });
        match self {
            Self::Openai => 750 + picture(),
            Self::Anthropic => 2_250 + picture(),
            Self::Google => 258,
        }
    }

    fn second_of_sound(self) -> u64 {
        match self {
            Self::Openai | Self::Anthropic => 10,
            Self::Google => 32,
        }
    }

    /// The tokens of a file that is no picture, by its first bytes; `None` for formats that no model reads.
    fn file(self, file: &[u8], pictures: PictureFamily) -> Option<u64> {
        if file.starts_with(b"%PDF") {
            return Some(self.page(pictures).saturating_mul(pages(file)));
        }
        let is_video = file.get(4..8) == Some(b"ftyp") && file.get(8..11) != Some(b"M4A")
            || file.starts_with(&[0x1a, 0x45, 0xdf, 0xa3]);
        if is_video {
            let seconds = (file.len() as u64).div_ceil(VIDEO_BYTES_PER_SECOND);
            return Some(seconds.saturating_mul(263 + 32));
        }
        let (_, length) = audio_length::longest(file).ok()?;
        Some(self.second_of_sound().saturating_mul(length.seconds()))
    }
}

/// The pages of a PDF, by the objects that are pages where they cannot be counted.
fn pages(file: &[u8]) -> u64 {
    if let Some(bound) = PdfBound::read(file) {
        return bound.pages;
    }
    let is_page = |at: usize| {
        let rest = file.get(at + b"/Type".len()..).unwrap_or_default().trim_ascii_start();
        rest.starts_with(b"/Page") && rest.get(5) != Some(&b's')
    };
    let found = memchr::memmem::find_iter(file, b"/Type").filter(|at| is_page(*at)).count();
    if found > 0 { found as u64 } else { (file.len() as u64).div_ceil(PAGE_BYTES) }
}

/// The tokens of a prompt, whichever way its JSON is spelled.
pub(crate) fn prompt_tokens(
    body: &Object<'_>,
    count: MediaCount,
    pictures: Option<PictureFamily>,
) -> u64 {
    let text = body.decoded_text(true);
    let bytes = text.bytes();
    let mut measured = vec![0; bytes.min(MEASURED_BYTES_MAX)];
    let copied = text.copy(0, &mut measured);
    let tokens = TextSize::measure(measured.get(..copied).unwrap_or_default()).tokens();
    let scaled = u128::from(tokens) * bytes as u128 / copied.max(1) as u128;
    let text_tokens = u64::try_from(scaled).unwrap_or(u64::MAX);
    let pictures = pictures.unwrap_or(count.pictures());
    let media = body.media_texts();
    let mut seen_pictures = 0;
    let media_tokens = media.iter().fold(0_u64, |sum, data| {
        let tokens = match PictureSize::read(InlineBytes::new(data.as_bytes())) {
            Some(size) => {
                seen_pictures += 1;
                pictures.tokens_typical(size)
            }
            // What no model reads as a file is read as it is written.
            None => count
                .file(&InlineBytes::new(data.as_bytes()).decode(), pictures)
                .unwrap_or_else(|| TextSize::measure(data.as_bytes()).tokens()),
        };
        sum.saturating_add(tokens)
    });
    let unseen = named_pictures(body.text()).saturating_sub(seen_pictures);
    let unseen_picture = pictures.tokens_typical(PictureSize { width: 1024, height: 1024 });
    text_tokens.saturating_add(media_tokens).saturating_add(unseen.saturating_mul(unseen_picture))
}

/// The parts of a prompt that say that they are pictures, inline or by an address.
fn named_pictures(text: &[u8]) -> u64 {
    const TYPES: [&str; 3] = ["image", "image_url", "input_image"];
    let is_picture = |at: usize| {
        let rest = text.get(at + b"\"type\"".len()..).unwrap_or_default().trim_ascii_start();
        let value = rest.strip_prefix(b":").and_then(|rest| Cursor::new(rest).raw());
        let kind = value.and_then(|value| Value::new(value).as_str());
        kind.is_some_and(|kind| TYPES.contains(&&*kind))
    };
    memchr::memmem::find_iter(text, b"\"type\"").filter(|at| is_picture(*at)).count() as u64
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::*;

    fn tokens(body: &str, count: MediaCount) -> u64 {
        prompt_tokens(&Object::parse(body.as_bytes()).expect("JSON"), count, None)
    }

    /// A PNG of this size with `bytes` after its header.
    fn png(width: u32, height: u32, bytes: usize) -> String {
        let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        file.extend(width.to_be_bytes());
        file.extend(height.to_be_bytes());
        file.extend(std::iter::repeat_n(7, bytes));
        BASE64.encode(file)
    }

    #[test]
    fn a_picture_counts_by_its_size_and_not_by_its_bytes() {
        let anthropic = |data: &str| {
            format!(
                r#"{{"messages":[{{"role":"user","content":[{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{data}"}}}}]}}]}}"#
            )
        };
        let none = tokens(&anthropic(""), MediaCount::Anthropic);
        let none = none - 1_399;
        for (width, height, bytes, [openai, claude, gemini]) in [
            (1000, 500, 1_500_000, [425, 667, 516]),
            (1000, 500, 200, [425, 667, 516]),
            (200, 200, 2_000, [255, 64, 258]),
            (4000, 3000, 2_000, [765, 1_600, 258 * 12]),
        ] {
            let body = anthropic(&png(width, height, bytes));
            for (count, expected) in [
                (MediaCount::Openai, openai),
                (MediaCount::Anthropic, claude),
                (MediaCount::Google, gemini),
            ] {
                let counted = tokens(&body, count) - none;
                assert_eq!(counted, expected, "{width}×{height}, {bytes} bytes, {count:?}");
            }
        }
        let png = png(1000, 500, 2_000);
        for (body, what) in [
            (
                format!(
                    r#"{{"i":{{"type":"input_image","image_url":"data:image/png;base64,{png}"}}}}"#
                ),
                "responses",
            ),
            (
                format!(r#"{{"i":{{"inlineData":{{"mimeType":"image/png","data":"{png}"}}}}}}"#),
                "Gemini",
            ),
            (
                format!(
                    r#"{{"i":{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{}"}}}}}}"#,
                    png.replace('/', "\\/")
                ),
                "chat, with slashes escaped",
            ),
        ] {
            let counted = tokens(&body, MediaCount::Openai);
            assert!((425..475).contains(&counted), "{what}: {counted}");
        }
        let linked =
            r#"{"i":{"type":"image_url","image_url":{"url":"https://example.com/cat.png"}}}"#;
        assert!(tokens(linked, MediaCount::Openai) > 765, "a picture that is not seen");
    }

    #[test]
    fn documents_count_by_pages_and_sound_by_seconds() {
        let part = |data: &[u8]| format!(r#"{{"p":{{"data":"{}"}}}}"#, BASE64.encode(data));
        let mut file = b"%PDF-1.7 /Type /Pages ".to_vec();
        file.extend(b"1 0 obj << /Type /Page >> /Type/Page\n".repeat(3));
        file.extend([b'x'; 1_000]);
        let counted = tokens(&part(&file), MediaCount::Anthropic);
        let pages = 6 * MediaCount::Anthropic.page(PictureFamily::Anthropic);
        assert!((pages..pages + 30).contains(&counted), "{counted}");
        let compressed = [b"%PDF-1.7 ".to_vec(), vec![b'x'; 200_000]].concat();
        assert!(tokens(&part(&compressed), MediaCount::Google) >= 5 * 258);
        // Three seconds of 8,000 samples of a byte each.
        let mut wav = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        wav.extend(8_000_u32.to_le_bytes());
        wav.extend(8_000_u32.to_le_bytes());
        wav.extend(b"\x01\0\x08\0data");
        wav.extend(24_000_u32.to_le_bytes());
        wav.extend([0x80; 24_000]);
        let counted = tokens(&part(&wav), MediaCount::Google);
        assert!((96..150).contains(&counted), "{counted}");
    }

    #[test]
    fn long_words_count_and_the_same_prompt_is_the_same_count() {
        let text = |word: &str| format!(r#"{{"messages":[{{"role":"user","content":"{word}"}}]}}"#);
        let none = tokens(&text(""), MediaCount::Openai);
        for word in ["lorem".repeat(400), "QUJDREVGR0hJSktMTU5P".repeat(100), "a".repeat(2_000)] {
            let counted = tokens(&text(&word), MediaCount::Openai) - none;
            assert!(counted > 200, "{counted}: {}", &word[..20]);
        }
        let data = "QUJDREVGR0hJSktMTU5P".repeat(100);
        let as_data = format!(r#"{{"source":{{"type":"text","data":"{data}"}}}}"#);
        assert!(tokens(&as_data, MediaCount::Openai) > 1_000, "no file that a model reads");
    }
}
