//! URLs of images, videos and audio that a customer names and an upstream downloads, as far as their
//! text can tell. Spec section 7, the rows `UrlInvalid` and `Unsupported…Format`.

use url::Url;

use crate::public_url::{self, NotPublic};
use tollgate_types::error::GatewayError;

/// Medium to which a URL must lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Image,
    Video,
    Audio,
}

/// Permitted targets of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UrlPolicy {
    /// To the public internet, by `https`.
    Public,
    /// To the public internet, by `http` or `https`.
    Web,
    /// A public `http` or `https` URL, or a `data:` URL.
    WebOrData,
    /// Any `http` or `https` URL, also of private addresses, or a `data:` URL.
    Any,
}

impl UrlPolicy {
    fn schemes(self) -> &'static str {
        if self == Self::Public { "https" } else { "http or https" }
    }
}

/// Facts that the text of a URL shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UrlMedium {
    /// The URL leads to this medium.
    Medium(Medium),
    /// The URL leads to something that is no medium.
    Other,
    /// The URL does not show its type.
    Unknown,
}

/// Extensions of files, as far as they leave no doubt.
const IMAGES: [&str; 11] =
    ["jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "heic", "heif", "avif"];
const VIDEOS: [&str; 9] = ["mp4", "mov", "webm", "mkv", "avi", "m4v", "mpg", "mpeg", "flv"];
const AUDIOS: [&str; 7] = ["mp3", "wav", "m4a", "aac", "flac", "ogg", "opus"];
const OTHERS: [&str; 14] = [
    "txt", "md", "pdf", "html", "htm", "json", "xml", "csv", "js", "css", "doc", "docx", "zip",
    "exe",
];

impl Medium {
    /// Error code for a wrong format of this medium.
    fn code(self) -> &'static str {
        match self {
            Self::Image => "InvalidParameter.UnsupportedImageFormat",
            Self::Video => "InvalidParameter.UnsupportedVideoFormat",
            Self::Audio => "InvalidParameter.UnsupportedAudioFormat",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Image => "an image",
            Self::Video => "a video",
            Self::Audio => "audio",
        }
    }
}

/// The code of what is no URL that an upstream could download.
pub(super) const URL_INVALID: &str = "InvalidParameter.UrlInvalid";

/// Checks the URL in the field `param`, which must lead to one of `media`; returns what it leads to.
///
/// # Errors
/// An invalid request, with the code of spec section 7 for what is wrong.
pub(super) fn check(
    param: &str,
    text: &str,
    media: &[Medium],
    reach: UrlPolicy,
) -> Result<UrlMedium, GatewayError> {
    let invalid = |why: String| {
        let message = format!("`{param}` {why}");
        GatewayError::invalid(param.to_owned(), message).code(URL_INVALID)
    };
    let seen = match text.split_once(':') {
        Some((scheme, data)) if scheme.eq_ignore_ascii_case("data") => {
            if matches!(reach, UrlPolicy::Public | UrlPolicy::Web) {
                return Err(invalid(format!("must be a public {} URL", reach.schemes())));
            }
            seen_in_data(data).ok_or_else(|| invalid("is no base64 `data:` URL".to_owned()))?
        }
        _ => seen_in_path(&parse(text, reach).map_err(invalid)?),
    };
    let expected = match seen {
        UrlMedium::Unknown => None,
        UrlMedium::Medium(medium) if media.contains(&medium) => None,
        UrlMedium::Medium(_) | UrlMedium::Other => media.first(),
    };
    match expected {
        None => Ok(seen),
        Some(expected) => {
            let word = expected.word();
            let message = format!("`{param}` must lead to {word}; this is another kind of file");
            Err(GatewayError::invalid(param.to_owned(), message).code(expected.code()))
        }
    }
}

/// Checks a URL that an upstream calls: by `https`, and where that leads is the upstream's to judge.
///
/// # Errors
/// An invalid request, with the code of spec section 7 for a URL.
pub(super) fn check_https(param: &'static str, text: &str) -> Result<(), GatewayError> {
    match parse(text, UrlPolicy::Any) {
        Ok(url) if url.scheme() == "https" => Ok(()),
        _ => {
            let message = format!("`{param}` must be an https URL");
            Err(GatewayError::invalid(param, message).code(URL_INVALID))
        }
    }
}

/// Reads a URL, and refuses the characters that RFC 3986 has no place for and that parsers repair in
/// ways of their own.
fn parse(text: &str, reach: UrlPolicy) -> Result<Url, String> {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || "\"<>\\^`{|}".contains(c);
    // Before parsing: the parser would take white space out, and the upstream might not.
    if text.contains(is_bad) {
        return Err("has a character that no URL has".to_owned());
    }
    // The upstream may stand in the operator's own network, where such addresses are meant.
    if reach == UrlPolicy::Any {
        let url = Url::parse(text).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        return url.ok_or_else(|| "must be an http or https URL".to_owned());
    }
    let read = if reach == UrlPolicy::Public { public_url::parse } else { public_url::parse_web };
    let schemes = reach.schemes();
    read(text).map_err(|error| match error {
        NotPublic::Scheme => format!("must be a public {schemes} URL"),
        error => format!("must be a public {schemes} URL: {error}"),
    })
}

/// Facts that a data URL shows, read behind its `data:`: `image/png;base64,AAAA`.
fn seen_in_data(data: &str) -> Option<UrlMedium> {
    let (head, body) = data.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?.to_ascii_lowercase();
    // Nothing in it is no medium, whatever its type says.
    (!body.is_empty()).then_some(())?;
    Some(match media_type.split('/').next() {
        Some("image") => UrlMedium::Medium(Medium::Image),
        Some("video") => UrlMedium::Medium(Medium::Video),
        Some("audio") => UrlMedium::Medium(Medium::Audio),
        _ => UrlMedium::Other,
    })
}

fn seen_in_path(url: &Url) -> UrlMedium {
    let name = url.path().rsplit('/').next().unwrap_or_default();
    let Some((_, extension)) = name.rsplit_once('.') else { return UrlMedium::Unknown };
    let extension = extension.to_ascii_lowercase();
    let is_in = |extensions: &[&str]| extensions.contains(&extension.as_str());
    match () {
        () if is_in(&IMAGES) => UrlMedium::Medium(Medium::Image),
        () if is_in(&VIDEOS) => UrlMedium::Medium(Medium::Video),
        () if is_in(&AUDIOS) => UrlMedium::Medium(Medium::Audio),
        () if is_in(&OTHERS) => UrlMedium::Other,
        () => UrlMedium::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str, medium: Medium, reach: UrlPolicy) -> Option<&'static str> {
        let checked = check("content[0].image_url.url", text, &[medium], reach);
        let error = checked.err()?;
        assert_eq!(error.param.as_deref(), Some("content[0].image_url.url"), "{error}");
        Some(error.code.expect("a code"))
    }

    #[test]
    fn what_cannot_be_downloaded_is_no_url() {
        for text in [
            "",
            "image.png",
            "//example.com/a.png",
            "ftp://example.com/a.png",
            "file:///etc/passwd",
            "asset://asset-2026-someone-elses",
            "https://exa mple.com/a.png",
            " https://example.com/a.png",
            "https://example.com/a.png\n",
            "https://example.com/a<b>.png",
            "https://example.com\\a.png",
            "https://example.com/{a}.png",
            "https://",
            "data:image/png;base64,",
            "data:image/png,plain",
            "data:",
        ] {
            for reach in [UrlPolicy::Public, UrlPolicy::Web, UrlPolicy::WebOrData, UrlPolicy::Any] {
                assert_eq!(code(text, Medium::Image, reach), Some(URL_INVALID), "{text:?}");
            }
        }
        let inside = "http://10.0.0.1/a.png";
        assert_eq!(code(inside, Medium::Image, UrlPolicy::Any), None, "the upstream's to judge");
        assert_eq!(code(inside, Medium::Image, UrlPolicy::WebOrData), Some(URL_INVALID));
        let plain = "http://example.com/a.png";
        assert_eq!(code(plain, Medium::Image, UrlPolicy::Public), Some(URL_INVALID));
        assert_eq!(code(plain, Medium::Image, UrlPolicy::Web), None);
        let data = "data:image/png;base64,AAAA";
        assert_eq!(code(data, Medium::Image, UrlPolicy::Public), Some(URL_INVALID));
        assert_eq!(code(data, Medium::Image, UrlPolicy::Web), Some(URL_INVALID));
        assert_eq!(code(data, Medium::Image, UrlPolicy::WebOrData), None);
    }

    #[test]
    fn what_is_clearly_another_format_is_refused() {
        let image = Some("InvalidParameter.UnsupportedImageFormat");
        let video = Some("InvalidParameter.UnsupportedVideoFormat");
        let audio = Some("InvalidParameter.UnsupportedAudioFormat");
        for (text, medium, expected) in [
            ("https://example.com/a.PNG?x=.txt#y.pdf", Medium::Image, None),
            ("https://example.com/a", Medium::Image, None),
            ("https://example.com/a.b/c", Medium::Image, None),
            ("https://example.com/a.something", Medium::Image, None),
            ("https://example.com/a.Txt", Medium::Image, image),
            ("https://example.com/a.mp4", Medium::Image, image),
            ("data:text/html;base64,AAAA", Medium::Image, image),
            ("DATA:Image/PNG;base64,AAAA", Medium::Image, None),
            ("data:;base64,AAAA", Medium::Image, image),
            ("https://example.com/a.mov", Medium::Video, None),
            ("https://example.com/a.pdf", Medium::Video, video),
            ("https://example.com/a.png", Medium::Video, video),
            ("https://example.com/a.mp3", Medium::Audio, None),
            ("https://example.com/a.html", Medium::Audio, audio),
            ("data:video/mp4;base64,AAAA", Medium::Audio, audio),
        ] {
            assert_eq!(code(text, medium, UrlPolicy::Any), expected, "{text}");
        }
        let either = [Medium::Image, Medium::Video];
        let seen = |text| check("p", text, &either, UrlPolicy::Public).ok();
        assert_eq!(seen("https://example.com/a.webm"), Some(UrlMedium::Medium(Medium::Video)));
        assert_eq!(seen("https://example.com/a.jpg"), Some(UrlMedium::Medium(Medium::Image)));
        assert_eq!(seen("https://example.com/a"), Some(UrlMedium::Unknown));
        assert_eq!(seen("https://example.com/a.mp3"), None);
    }
}
