//! Media of a prompt, in the words of each dialect, and the tokens that they come to.

use std::borrow::Cow;

use super::PolicyReader;
use super::allowlist::MediaShape;
use super::item::Item;
use super::names::resolved;
use crate::audio_length;
use crate::json::Value;
use crate::json_cursor::{Cursor, WrittenValue};
use crate::media::{InlineBytes, PdfBound, PictureDetail, PictureFamily, PictureSize};

/// The longest beginning of a `data:` URL, up to its data.
const DATA_URL_START_MAX: usize = 256;

/// Letters of base64 of sound that is measured: an hour of it, or a quarter of an hour of plain samples.
const SOUND_LETTERS_MAX: usize = 32 * 1024 * 1024;

/// Bounds of a parsed medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MediumBound {
    /// Maximum tokens of the medium.
    tokens: u64,
    /// Bytes of the body that are its data, and so no text.
    bytes: u64,
    /// True for anything but text.
    is_media: bool,
}

impl PolicyReader<'_> {
    /// Adds a medium to the prompt, which has no bound where the medium has none.
    #[cold]
    #[inline(never)]
    pub(super) fn medium(&mut self, shape: MediaShape, written: WrittenValue<'_>, item: &Item<'_>) {
        self.note_medium(written);
        let bound = (|| {
            if shape == MediaShape::Source && is_document(item) && is_plain_text(written, item) {
                return Some(MediumBound { tokens: 0, bytes: 0, is_media: false });
            }
            let family = self.pictures?;
            let detail = match item.detail {
                Some(written) => detail_of(written)?,
                None if shape == MediaShape::Blob => self.global_detail()?,
                None => PictureDetail::Auto,
            };
            match shape {
                MediaShape::Url => url(&text(written.text())?, detail, family),
                MediaShape::Source => source(written, detail, family, item),
                MediaShape::Blob => blob(written, detail, family),
                MediaShape::File => file(written, detail, family),
                MediaShape::Sound => input_audio(written, family),
                MediaShape::ConverseImage => converse_image(written, detail, family),
            }
        })();
        let Some(bound) = bound else {
            self.has_media = true;
            self.is_bounded = false;
            return;
        };
        self.has_media |= bound.is_media;
        self.added_tokens = self.added_tokens.saturating_add(bound.tokens);
        self.media_bytes = self.media_bytes.saturating_add(bound.bytes);
    }

    /// The detail that a request to Google has for all of its media.
    fn global_detail(&self) -> Option<PictureDetail> {
        let config = ["generationConfig", "generation_config"];
        let mut configs = config.iter().filter_map(|key| self.body.get_non_null(key));
        let Some(config) = configs.next() else { return Some(PictureDetail::Auto) };
        let config = config.as_object().ok()?;
        let mut levels = ["mediaResolution", "media_resolution"]
            .into_iter()
            .filter_map(|key| config.get_non_null(key));
        match (levels.next(), levels.next(), configs.next()) {
            (None, None, None) => Some(PictureDetail::Auto),
            (Some(level), None, None) => level.as_str().map(|word| PictureDetail::from_word(&word)),
            _ => None,
        }
    }
}

/// True for an object with `enabled: false` and nothing else.
pub(super) fn is_switched_off(written: &[u8]) -> bool {
    let mut is_off = false;
    let is_read = Cursor::new(written).object(|key, value| {
        is_off = key == b"enabled" && value.raw()? == b"false";
        is_off.then_some(())
    });
    is_read.is_some() && is_off
}

/// The members of an object with these names; `None` where it is no object, has others that are not `null`,
/// or one of them twice.
fn members<'a, const N: usize>(
    written: WrittenValue<'a>,
    names: [&str; N],
) -> Option<[Option<&'a [u8]>; N]> {
    let mut found = [None; N];
    written.text().starts_with(b"{").then_some(())?;
    written.cursor().object(|key, value| {
        let value = value.non_null()?;
        let name = resolved(key)?;
        match (names.iter().position(|field_name| *field_name == name), value) {
            (Some(index), value) => {
                let place = found.get_mut(index)?;
                place.is_none().then_some(())?;
                *place = value;
            }
            (None, None) => {}
            (None, Some(_)) => return None,
        }
        Some(())
    })?;
    Some(found)
}

/// Detail from OpenAI's word or Google's object.
fn detail_of(written: &[u8]) -> Option<PictureDetail> {
    let level = match written.first() {
        Some(b'{') => {
            // Beside a level there can be a number of tokens, which would count.
            let [level] = members(written.into(), ["level"])?;
            level?
        }
        _ => written,
    };
    Value::new(level).as_str().map(|word| PictureDetail::from_word(&word))
}

/// The text of a string. Most have no escapes, and none of those is copied.
fn text(written: &[u8]) -> Option<Cow<'_, [u8]>> {
    let inner = written.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if memchr::memchr(b'\\', inner).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    let text = Value::new(written).as_str()?.into_owned();
    Some(Cow::Owned(text.into_bytes()))
}

/// A picture at an address, or in it.
fn url(address: &[u8], detail: PictureDetail, family: PictureFamily) -> Option<MediumBound> {
    match data_of(address) {
        Some(data) => picture(data, detail, family),
        // Nobody has seen it.
        None => {
            let tokens = family.tokens_max(None, detail)?;
            Some(MediumBound { tokens, bytes: 0, is_media: true })
        }
    }
}

/// The base64 of a `data:` URL, whatever its media type and its parameters are.
fn data_of(address: &[u8]) -> Option<&[u8]> {
    let address = address.trim_ascii_start();
    let head = address.get(..address.len().min(DATA_URL_START_MAX))?;
    let comma = memchr::memchr(b',', head)?;
    let head = head.get(..comma)?.to_ascii_lowercase();
    (head.starts_with(b"data:") && head.ends_with(b";base64")).then_some(())?;
    address.get(comma + 1..)
}

/// The bound of an inline picture.
fn picture(data: &[u8], detail: PictureDetail, family: PictureFamily) -> Option<MediumBound> {
    let file = InlineBytes::new(data);
    // What is no picture at all may be read as what it is.
    let is_document = file.read(0) == Some(*b"%PDF");
    let size = PictureSize::read(file);
    let tokens = family.tokens_max(size, detail).filter(|_| !is_document)?;
    Some(MediumBound { tokens, bytes: data.len() as u64, is_media: true })
}

fn is_document(item: &Item<'_>) -> bool {
    Value::new(item.kind).as_str().as_deref() == Some("document")
}

/// True for Anthropic's source of plain text, which its bytes limit.
fn is_plain_text(written: WrittenValue<'_>, item: &Item<'_>) -> bool {
    let is_word = |value: Option<&[u8]>, word: &str| {
        value.is_some_and(|value| Value::new(value).as_str().as_deref() == Some(word))
    };
    let found = members(written, ["type", "media_type", "data"]);
    found.is_some_and(|[kind, media_type, data]| {
        is_word(kind, "text")
            && is_word(media_type, "text/plain")
            && data.is_some()
            && !item.is_cited
    })
}

/// Bounds of a picture in Anthropic's format.
fn source(
    written: WrittenValue<'_>,
    detail: PictureDetail,
    family: PictureFamily,
    item: &Item<'_>,
) -> Option<MediumBound> {
    let [kind, _, data, address] = members(written, ["type", "media_type", "data", "url"])?;
    let kind = Value::new(kind?).as_str()?;
    let is_picture = Value::new(item.kind).as_str().as_deref() == Some("image");
    match (&*kind, data, address) {
        ("base64", Some(data), None) if is_picture => picture(&text(data)?, detail, family),
        ("base64", Some(data), None) if !item.is_cited && is_document(item) => {
            document(&text(data)?, detail, family)
        }
        ("url", None, Some(_)) if is_picture => {
            let tokens = family.tokens_max(None, detail)?;
            Some(MediumBound { tokens, bytes: 0, is_media: true })
        }
        _ => None,
    }
}

/// Bounds of Google's `inlineData`.
fn blob(
    written: WrittenValue<'_>,
    detail: PictureDetail,
    family: PictureFamily,
) -> Option<MediumBound> {
    let [camel, snake, data] = members(written, ["mimeType", "mime_type", "data"])?;
    let media_type = match (camel, snake) {
        (Some(one), None) | (None, Some(one)) => Value::new(one).as_str()?.to_ascii_lowercase(),
        _ => return None,
    };
    if media_type.starts_with("image/") {
        return picture(&text(data?)?, detail, family);
    }
    if media_type == "application/pdf" {
        return document(&text(data?)?, detail, family);
    }
    if media_type.starts_with("audio/") {
        return sound(&text(data?)?, family);
    }
    None
}

/// A file of OpenAI's, or the object around it.
fn file(
    written: WrittenValue<'_>,
    detail: PictureDetail,
    family: PictureFamily,
) -> Option<MediumBound> {
    let data = match written.text().first() {
        Some(b'{') => {
            let [_, data] = members(written, ["filename", "file_data"])?;
            data?
        }
        _ => written.text(),
    };
    document(data_of(&text(data)?)?, detail, family)
}

/// Sound of OpenAI's. What some take as a `data:` URL, others read as base64.
fn input_audio(written: WrittenValue<'_>, family: PictureFamily) -> Option<MediumBound> {
    let [data, _] = members(written, ["data", "format"])?;
    let data = text(data?)?;
    sound(data_of(&data).unwrap_or(&data), family)
}

/// The bound of inline sound.
fn sound(data: &[u8], family: PictureFamily) -> Option<MediumBound> {
    let each = family.second_of_sound_max()?;
    let file = InlineBytes::new(data);
    let file = (file.letters() <= SOUND_LETTERS_MAX).then(|| file.decode())?;
    let (_, length) = audio_length::longest(&file).ok()?;
    // A provider may round up to its own steps.
    let tokens = each.saturating_mul(length.seconds().saturating_add(1));
    Some(MediumBound { tokens, bytes: data.len() as u64, is_media: true })
}

/// The bound of an inline PDF.
fn document(data: &[u8], detail: PictureDetail, family: PictureFamily) -> Option<MediumBound> {
    let file = InlineBytes::new(data);
    let is_short = file.letters() <= PdfBound::FILE_BYTES_MAX / 3 * 4;
    let pdf = is_short.then(|| PdfBound::read(&file.decode())).flatten()?;
    let tokens = family.document_tokens_max(pdf, detail)?;
    Some(MediumBound { tokens, bytes: data.len() as u64, is_media: true })
}

/// A picture that the gateway has written for Amazon.
fn converse_image(
    written: WrittenValue<'_>,
    detail: PictureDetail,
    family: PictureFamily,
) -> Option<MediumBound> {
    let [_, source] = members(written, ["format", "source"])?;
    let [data] = members(source?.into(), ["bytes"])?;
    picture(&text(data?)?, detail, family)
}

#[cfg(test)]
mod tests;
