//! Pictures and documents by what they are, whatever they are labelled as.
//!
//! Anthropic compares labels with the bytes: "The image was specified using the image/png media type, but
//! the image appears to be a image/jpeg image" (litellm 24900), and clients label screenshots at a guess.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::dialect::{MalformedAnswer, Untranslatable};
use crate::field_path::FieldPath;
use crate::part::{MediaPart, Source};

/// Letters of base64 in which a type is told: 24 bytes.
const HEAD_CHARS: usize = 32;

/// The name of a document where a dialect needs one and the customer has given none.
pub(crate) const FILE_NAME: &str = "document.pdf";

/// Content of a media part that is sent inline.
pub(crate) enum MediaContent<'m> {
    /// A picture of this media type, in base64.
    Image(Cow<'m, str>, &'m str),
    /// A PDF file, in base64.
    Pdf(&'m str),
    /// A text, decoded from base64 where it came so.
    Text(Cow<'m, str>),
    /// Data of another media type, in base64.
    Other(Cow<'m, str>, &'m str),
    /// Media at this URL, which the gateway does not fetch.
    Url(&'m str),
}

impl<'m> MediaContent<'m> {
    /// The content of a part: its bytes, or else its label.
    pub(crate) fn from_part(media: &'m MediaPart<'_>) -> Self {
        let (label, data) = match &media.source {
            Source::Url(url) => return Self::Url(url),
            Source::Plain(text) => return Self::Text(Cow::Borrowed(text)),
            Source::Inline { media_type, data } => (&**media_type, &**data),
        };
        let media_type = media_type(label, data);
        match &*media_type {
            "application/pdf" => Self::Pdf(data),
            word if word.starts_with("image/") => Self::Image(media_type, data),
            word if is_textual(word) => match text_of(data) {
                Some(text) => Self::Text(text.into()),
                None => Self::Other(media_type, data),
            },
            _ => Self::Other(media_type, data),
        }
    }
}

/// The media type of inline media by their first bytes, or else by their label.
pub(crate) fn media_type<'l>(label: &'l str, data: &str) -> Cow<'l, str> {
    sniffed(data).map_or_else(|| named(label), Cow::Borrowed)
}

/// The media type that the first bytes tell.
fn sniffed(data: &str) -> Option<&'static str> {
    let head = data.get(..HEAD_CHARS.min(data.len() / 4 * 4))?;
    let bytes = STANDARD.decode(head).ok()?;
    match &*bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ => None,
    }
}

/// The media type that a label stands for.
fn named(label: &str) -> Cow<'_, str> {
    let word = label.split(';').next().unwrap_or_default().trim();
    match word {
        "image/jpg" | "image/pjpeg" => "image/jpeg".into(),
        "image/x-png" => "image/png".into(),
        "application/x-pdf" => "application/pdf".into(),
        word if word.bytes().any(|byte| byte.is_ascii_uppercase()) => {
            named(&word.to_ascii_lowercase()).into_owned().into()
        }
        word => word.into(),
    }
}

/// True if files of this media type are texts.
fn is_textual(media_type: &str) -> bool {
    let Some(word) = media_type.strip_prefix("application/") else {
        return media_type.starts_with("text/");
    };
    let words = [
        "json",
        "ld+json",
        "x-ndjson",
        "xml",
        "yaml",
        "x-yaml",
        "toml",
        "javascript",
        "typescript",
        "x-javascript",
        "x-typescript",
        "x-python",
        "x-sh",
        "sql",
    ];
    words.contains(&word) || word.ends_with("+json") || word.ends_with("+xml")
}

/// The text of a file, if it is one.
pub(crate) fn text_of(data: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(data).ok()?).ok()
}

/// Media type and base64 data of a `data:` URL; `None` for what is no such URL.
pub(crate) fn data_url(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    Some((media_type.split(';').next().unwrap_or(media_type), data))
}

/// The `data:` URL of bytes in base64.
pub(crate) fn to_data_url(media_type: &str, data: &str) -> String {
    format!("data:{media_type};base64,{data}")
}

/// The source of media from a `data:` or web URL.
pub(crate) fn source_of_url<'a>(
    at: &FieldPath<'_>,
    url: Cow<'a, str>,
) -> Result<Source<'a>, Untranslatable> {
    if !url.starts_with("data:") {
        return Ok(Source::Url(url));
    }
    let inline = match &url {
        Cow::Borrowed(url) => {
            data_url(url).map(|(media_type, data)| (media_type.into(), data.into()))
        }
        Cow::Owned(url) => data_url(url)
            .map(|(media_type, data)| (media_type.to_owned().into(), data.to_owned().into())),
    };
    match inline {
        Some((media_type, data)) => Ok(Source::Inline { media_type, data }),
        None => Err(at.malformed("a URL, or a data URL in base64")),
    }
}

/// Refuses inline pictures that OpenAI does not take: it takes PNG, JPEG, WebP and GIF.
pub(crate) fn check_openai_picture(media_type: &str) -> Result<(), Untranslatable> {
    match media_type {
        "image/png" | "image/jpeg" | "image/webp" | "image/gif" => Ok(()),
        other => {
            Err(Untranslatable::uncarried(format!("messages.content: an image of type {other}")))
        }
    }
}

/// Error for an answer that holds a picture: the picture was requested, and must not be charged without being
/// delivered.
pub(crate) fn undeliverable_picture() -> MalformedAnswer {
    MalformedAnswer("a picture, for which the customer's dialect has no words".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(label: &'static str, bytes: &[u8]) -> String {
        let data = STANDARD.encode(bytes).into();
        let source = Source::Inline { media_type: label.into(), data };
        let media = MediaPart { source, name: None, detail: None, cache: None };
        match MediaContent::from_part(&media) {
            MediaContent::Image(kind, _) | MediaContent::Other(kind, _) => kind.into_owned(),
            MediaContent::Pdf(_) => "pdf".to_owned(),
            MediaContent::Text(text) => format!("text {text}"),
            MediaContent::Url(_) => "url".to_owned(),
        }
    }

    #[test]
    fn bytes_tell_more_than_labels() {
        let png = b"\x89PNG\r\n\x1a\n0000IHDR";
        for (label, bytes, expected) in [
            ("image/jpeg", &png[..], "image/png"),
            ("application/octet-stream", png, "image/png"),
            ("image/png", b"\xFF\xD8\xFF\xE0JFIF", "image/jpeg"),
            ("image/png", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
            ("image/gif", b"GIF89a......", "image/gif"),
            ("text/plain", b"%PDF-1.7\n", "pdf"),
            ("image/JPG; charset=x", b"??????", "image/jpeg"),
            ("image/bmp", b"BM......", "image/bmp"),
            ("application/json", b"{\"a\": 1}", "text {\"a\": 1}"),
            ("text/markdown", b"# Hi", "text # Hi"),
            ("text/plain", b"\xC3\x28", "text/plain"),
            ("application/zip", b"PK\x03\x04", "application/zip"),
        ] {
            assert_eq!(shown(label, bytes), expected, "{label}");
        }
    }
}
