//! Bytes of pictures and documents, as validators look at them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Base64 characters of a file that identify its type.
const HEAD_CHARS: usize = 24;

/// Media type of a base64 image by its first bytes; `None` for anything else.
pub(super) fn picture_type(data: &str) -> Option<&'static str> {
    let head = data.get(..data.len().min(HEAD_CHARS))?;
    let head = head.get(..head.len() / 4 * 4)?;
    let bytes = STANDARD.decode(head).ok()?;
    match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', ..] => Some("image/webp"),
        _ => None,
    }
}

/// True for padded base64.
pub(super) fn is_base64(data: &str) -> bool {
    !data.is_empty() && STANDARD.decode(data).is_ok()
}

/// The media type and the base64 of a `data:` URL.
pub(super) fn data_url(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    Some((head.strip_suffix(";base64")?, data))
}

/// The media types of pictures that OpenAI and Anthropic take.
pub(super) const PICTURES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
