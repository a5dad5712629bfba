//! Media in results: in themselves as far as they may be, else by where they are to be had.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rmcp::model::{ContentBlock, Resource};
use serde_json::{Value, json};

/// The longest URL that a result repeats. Signed ones are about 1 KiB.
const URL_BYTES_MAX: usize = 16 * 1024;

/// Media of one result.
pub(super) struct ResultMedia {
    /// Bytes that the result may still contain itself.
    left: usize,
    pub(super) content: Vec<ContentBlock>,
    /// Entries of the structured content, one for each file.
    pub(super) entries: Vec<Value>,
}

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MediaKind {
    Image,
    Audio,
    Video,
}

impl ResultMedia {
    /// A collection with a limit in bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { left: bytes_max, content: Vec::new(), entries: Vec::new() }
    }

    /// A file in base64.
    pub(super) fn add_base64(&mut self, kind: MediaKind, data: &str, media_type: &str) {
        // Of the length alone, without decoding: padding makes it at most two bytes too much.
        let bytes = data.len() / 4 * 3;
        let is_in = bytes <= self.left;
        if is_in {
            self.left -= bytes;
            self.content.push(match kind {
                MediaKind::Audio => ContentBlock::audio(data, media_type),
                // The protocol has no block for video.
                MediaKind::Image | MediaKind::Video => ContentBlock::image(data, media_type),
            });
        } else {
            let text = format!(
                "A file of {bytes} bytes ({media_type}) is not included: results have a limited \
                 size here. Ask for a smaller one, or over HTTP."
            );
            self.content.push(ContentBlock::text(text));
        }
        self.entries.push(json!({"media_type": media_type, "bytes": bytes, "included": is_in}));
    }

    /// Adds a file by its bytes.
    pub(super) fn add_bytes(&mut self, kind: MediaKind, bytes: &[u8], media_type: &str) {
        if bytes.len() <= self.left {
            self.add_base64(kind, &BASE64.encode(bytes), media_type);
        } else {
            // Its length alone counts.
            let length = bytes.len();
            let text = format!("A file of {length} bytes ({media_type}) is not included.");
            self.content.push(ContentBlock::text(text));
            self.entries
                .push(json!({"media_type": media_type, "bytes": length, "included": false}));
        }
    }

    /// Adds a file by the provider's URL.
    pub(super) fn add_url(&mut self, kind: MediaKind, url: &str) {
        let (name, media_type) = match kind {
            MediaKind::Image => ("image", "image/png"),
            MediaKind::Audio => ("speech", "audio/mpeg"),
            MediaKind::Video => ("video", "video/mp4"),
        };
        // An upstream could answer with a URL of any scheme, which a client of the agent might open.
        let is_link = url.len() <= URL_BYTES_MAX
            && (url.starts_with("https://") || url.starts_with("http://"));
        if !is_link {
            return;
        }
        let name = format!("{name}-{}", self.entries.len() + 1);
        let link = Resource::new(url, name).with_mime_type(media_type);
        self.content.push(ContentBlock::resource_link(link));
        self.entries.push(json!({"media_type": media_type, "url": url}));
    }
}

/// The type of an image by how its base64 begins: `png` where nothing is known.
pub(super) fn image_type(base64: &str) -> &'static str {
    match base64.as_bytes() {
        [b'/', b'9', b'j', ..] => "image/jpeg",
        [b'U', b'k', b'l', b'G', ..] => "image/webp",
        _ => "image/png",
    }
}

/// Reads base64, with or without the `data:` URL around it, within a number of bytes.
pub(super) fn decode(text: &str, bytes_max: usize) -> Option<Vec<u8>> {
    let base64 = match text.strip_prefix("data:") {
        Some(url) => url.split_once(";base64,")?.1,
        None => text,
    };
    // Before decoding, so that a long text takes no second copy in memory.
    if base64.len() / 4 * 3 > bytes_max.saturating_add(3) {
        return None;
    }
    BASE64.decode(base64).ok().filter(|bytes| !bytes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_told_of() {
        let mut media = ResultMedia::new(8);
        media.add_bytes(MediaKind::Image, b"123456", "image/png");
        media.add_bytes(MediaKind::Image, b"123456", "image/png");
        media.add_bytes(MediaKind::Audio, b"12", "audio/wav");
        let included: Vec<bool> =
            media.entries.iter().map(|one| one["included"].as_bool().expect("told")).collect();
        assert_eq!(included, [true, false, false], "base64 is counted in steps of three bytes");
        media.add_url(MediaKind::Video, "https://example.com/a.mp4");
        media.add_url(MediaKind::Video, "javascript:alert(1)");
        media.add_url(
            MediaKind::Video,
            &format!("https://example.com/{}", "a".repeat(URL_BYTES_MAX)),
        );
        assert_eq!(media.entries.len(), 4, "one link: {:?}", media.entries);
    }

    #[test]
    fn base64_may_stand_in_a_data_url() {
        assert_eq!(decode("aGk=", 10), Some(b"hi".to_vec()));
        assert_eq!(decode("data:image/png;base64,aGk=", 10), Some(b"hi".to_vec()));
        for wrong in ["", "data:image/png,aGk=", "not base64", "aGk"] {
            assert_eq!(decode(wrong, 10), None, "{wrong:?}");
        }
        assert_eq!(decode(&"AAAA".repeat(10), 10), None, "too long");
    }
}
