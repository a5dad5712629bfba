//! `input`: what its model's group takes.

use crate::json::{Object, Value};
use crate::limits::ModelLimits;
use crate::media_url::{self, Medium, UrlMedium, UrlPolicy};
use crate::video::{CONTENT_EMPTY, INVALID, MISSING, NOT_IN_ENUM, URL_INVALID, refuse};
use tollgate_types::error::GatewayError;

/// Properties of a model, derived from its public name (spec section 2.4): `vf2.6-i2v-flash`,
/// `happyhorse-1.0-r2v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelClass {
    pub(crate) kind: VideoSource,
    pub(crate) era: ApiVersion,
}

/// Input from which a video is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VideoSource {
    /// From a text alone: `t2v`.
    Text,
    /// Image to video: `i2v`.
    Image,
    /// References to video: `r2v`.
    References,
}

/// Request format of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiVersion {
    /// 2.5 and 2.6: one field for each kind of medium, and the size of the video.
    Sizes,
    /// 2.7 and later: one list of media, and the resolution of the video.
    Media,
}

impl ModelClass {
    /// The group of a model with a name of this form; others are only checked for what all allow.
    pub(crate) fn from_model(model: &str) -> Option<Self> {
        let family_h = model.strip_prefix(FAMILY_H);
        let family_v = || model.strip_prefix("vf").or_else(|| model.strip_prefix("wan"));
        let rest = family_h.or_else(family_v)?;
        let (version, rest) = rest.split_once('-')?;
        let (major, minor) = version.split_once('.')?;
        let version: (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
        let kind = match rest.split('-').next()? {
            "t2v" => VideoSource::Text,
            "i2v" => VideoSource::Image,
            "r2v" => VideoSource::References,
            _ => return None,
        };
        let era = match version {
            // Family H counts its versions from 1.0, and has had lists of media in all of them.
            _ if family_h.is_some() => ApiVersion::Media,
            (2, 5 | 6) => ApiVersion::Sizes,
            // Versions to come are taken to keep the newest form.
            _ if version >= (2, 7) => ApiVersion::Media,
            _ => return None,
        };
        Some(Self { kind, era })
    }
}

/// Prefix of the names of family H's models.
const FAMILY_H: &str = "happyhorse-";
/// Fields without an effect on the price.
const TEXT_FIELDS: [&str; 2] = [PROMPT, "negative_prompt"];
const PROMPT: &str = "prompt";
/// Fields of an item of `media` beside its type and URL.
const MEDIA_ITEM_FIELDS: [&str; 3] = ["type", "url", "reference_voice"];
/// Everything in which any version looks for a medium.
const MEDIA_FIELDS: [&str; 8] = [
    MEDIA,
    IMG_URL,
    AUDIO_URL,
    REFERENCE_URLS,
    "reference_video_urls",
    "first_frame_url",
    "last_frame_url",
    "video_url",
];
const MEDIA: &str = "media";
const DRIVING_AUDIO: &str = "driving_audio";
const IMG_URL: &str = "img_url";
const AUDIO_URL: &str = "audio_url";
const REFERENCE_URLS: &str = "reference_urls";
/// References of a model of version 2.6: its own limit.
const REFERENCE_URLS_MAX: u32 = 5;

/// Types of media, and what their URLs lead to.
const MEDIA_TYPES: [(&str, Medium); 6] = [
    ("reference_video", Medium::Video),
    ("reference_image", Medium::Image),
    ("first_frame", Medium::Image),
    (DRIVING_AUDIO, Medium::Audio),
    ("last_frame", Medium::Image),
    ("first_clip", Medium::Video),
];

/// Media that a request refers to, as far as they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReferencedMedia {
    /// True if there is a video among them; `None` where the URL does not show it.
    pub(super) has_video: Option<bool>,
    /// Sound may be among it.
    pub(super) has_audio: bool,
}

/// Checks `input` and returns its references. An unknown member could refer to anything.
pub(super) fn check(
    group: Option<ModelClass>,
    input: &Object<'_>,
    limits: &ModelLimits,
) -> Result<ReferencedMedia, GatewayError> {
    let fields: Vec<&str> = MEDIA_FIELDS.iter().copied().chain(TEXT_FIELDS).collect();
    crate::fields::refuse_case_variants(input, &fields)?;
    check_prompt(group, input)?;
    let has_video = check_media(group, input, limits)?;
    check_minimum(group, input, limits)?;
    let has_only_listed_fields = input.keys().all(|key| fields.contains(&key));
    let media = input.get_non_null(MEDIA).and_then(|media| media.elements());
    // An item that cannot be read may be a sound: sound decides the price of some models.
    let is_audio = |item: Value<'_>| {
        let kind = item.as_object().ok().and_then(|item| item.get("type")?.as_str());
        kind.is_none_or(|kind| kind == DRIVING_AUDIO)
    };
    let has_audio = input.get_non_null(AUDIO_URL).is_some()
        || !has_only_listed_fields
        || media.into_iter().flatten().any(is_audio);
    Ok(ReferencedMedia {
        // A field that only the operator lets through may refer to a video: "none" is no longer
        // certain then.
        has_video: has_video.filter(|has_video| *has_video || has_only_listed_fields),
        has_audio,
    })
}

/// Checks the referenced media; true if a video is among them.
fn check_media(
    group: Option<ModelClass>,
    input: &Object<'_>,
    limits: &ModelLimits,
) -> Result<Option<bool>, GatewayError> {
    let Some(group) = group else { return check_any(input, limits) };
    let own: &[&str] = match (group.kind, group.era) {
        (VideoSource::Text, ApiVersion::Sizes) => &[AUDIO_URL],
        (VideoSource::Text, ApiVersion::Media) => &[],
        (VideoSource::Image, ApiVersion::Sizes) => &[IMG_URL, AUDIO_URL],
        (VideoSource::References, ApiVersion::Sizes) => &[REFERENCE_URLS],
        (VideoSource::Image | VideoSource::References, ApiVersion::Media) => &[MEDIA],
    };
    for field in MEDIA_FIELDS.iter().filter(|field| !own.contains(field)) {
        if input.get_non_null(field).is_some() {
            let message = format!("`input.{field}` is not for this model");
            return Err(refuse(INVALID, format!("input.{field}"), message));
        }
    }
    if let Some(url) = input.get_non_null(AUDIO_URL) {
        check_url("input.audio_url", &url, &[Medium::Audio], UrlPolicy::Web)?;
    }
    match (group.kind, group.era) {
        (VideoSource::Text, _) => Ok(Some(false)),
        (VideoSource::Image, ApiVersion::Sizes) => {
            let url = required(input, IMG_URL, "input.img_url")?;
            check_url("input.img_url", &url, &[Medium::Image], UrlPolicy::WebOrData)?;
            Ok(Some(false))
        }
        (VideoSource::References, ApiVersion::Sizes) => {
            let urls = required(input, REFERENCE_URLS, "input.reference_urls")?;
            check_reference_urls(&urls, limits.images.references_max)
        }
        (kind @ (VideoSource::Image | VideoSource::References), ApiVersion::Media) => {
            let media = required(input, MEDIA, "input.media")?;
            let media = Media::read(&media, limits)?;
            media.check(kind)?;
            Ok(Some(media.has_video))
        }
    }
}

/// A model of which nothing is known: whatever it refers to must be well-formed.
fn check_any(input: &Object<'_>, limits: &ModelLimits) -> Result<Option<bool>, GatewayError> {
    if let Some(url) = input.get_non_null(IMG_URL) {
        check_url("input.img_url", &url, &[Medium::Image], UrlPolicy::WebOrData)?;
    }
    let mut has_video = Some(false);
    if let Some(media) = input.get_non_null(MEDIA) {
        has_video = Some(Media::read(&media, limits)?.has_video);
    }
    if let Some(urls) = input.get_non_null(REFERENCE_URLS)
        && has_video == Some(false)
    {
        has_video = check_reference_urls(&urls, limits.images.references_max)?;
    }
    for field in ["reference_video_urls", "video_url"] {
        if input.get_non_null(field).is_some() {
            has_video = Some(true);
        }
    }
    Ok(has_video)
}

/// Checks the minimum of images that `models.yaml` requires, for names that imply none.
fn check_minimum(
    group: Option<ModelClass>,
    input: &Object<'_>,
    limits: &ModelLimits,
) -> Result<(), GatewayError> {
    let min = u64::from(limits.images.references_min);
    if min == 0 || group.is_some_and(|group| group.kind == VideoSource::Text) {
        return Ok(());
    }
    let listed = |field: &str| {
        let list = input.get_non_null(field);
        list.and_then(|list| list.elements()).map_or(0, |all| all.count() as u64)
    };
    let one = |field: &str| u64::from(input.get_non_null(field).is_some());
    let lists = [MEDIA, REFERENCE_URLS, "reference_video_urls"].into_iter().map(listed);
    let single = [IMG_URL, "first_frame_url", "video_url"].into_iter().map(one);
    if lists.chain(single).sum::<u64>() >= min {
        return Ok(());
    }
    let message = match min {
        1 => "this model makes videos from an image or a video in `input`".to_owned(),
        _ => format!("this model makes videos from {min} images or videos in `input` at least"),
    };
    Err(refuse(MISSING, "input", message))
}

/// Requires a prompt if there is no other input.
fn check_prompt(group: Option<ModelClass>, input: &Object<'_>) -> Result<(), GatewayError> {
    let is_needed = group.is_some_and(|group| group.kind != VideoSource::Image);
    let Some(prompt) = input.get_non_null("prompt") else {
        return if is_needed {
            Err(refuse(MISSING, "input.prompt", "`input.prompt` must be a non-empty string"))
        } else {
            Ok(())
        };
    };
    match prompt.as_str() {
        None => Err(refuse(INVALID, "input.prompt", "`input.prompt` must be a string")),
        Some(prompt) if is_needed && prompt.trim().is_empty() => {
            Err(refuse(CONTENT_EMPTY, "input.prompt", "`input.prompt` must not be empty"))
        }
        Some(_) => Ok(()),
    }
}

fn required<'a>(object: &Object<'a>, field: &str, param: &str) -> Result<Value<'a>, GatewayError> {
    object.get_non_null(field).ok_or_else(|| {
        let message = format!("`{param}` is required for this model");
        refuse(MISSING, param.to_owned(), message)
    })
}

fn check_url(
    param: &str,
    value: &Value<'_>,
    media: &[Medium],
    reach: UrlPolicy,
) -> Result<UrlMedium, GatewayError> {
    let Some(url) = value.as_str() else {
        let message = format!("`{param}` must be a URL in a string");
        return Err(refuse(URL_INVALID, param.to_owned(), message));
    };
    media_url::check(param, &url, media, reach)
}

/// `reference_urls`: images and videos, one as good as the other.
fn check_reference_urls(
    urls: &Value<'_>,
    references_max: u32,
) -> Result<Option<bool>, GatewayError> {
    const PARAM: &str = "input.reference_urls";
    let max = references_max.min(REFERENCE_URLS_MAX);
    let wrong = || {
        let message = format!("`{PARAM}` must be an array of 1 to {max} URLs");
        refuse(INVALID, PARAM, message)
    };
    // One more than allowed is enough to refuse, however long the array is.
    let urls = urls.elements().ok_or_else(wrong)?.take(max as usize + 1);
    let urls: Vec<Value<'_>> = urls.collect();
    if urls.is_empty() {
        return Err(refuse(MISSING, PARAM, format!("`{PARAM}` needs an image or a video")));
    }
    if urls.len() as u64 > u64::from(max) {
        return Err(wrong());
    }
    let mut has_video = Some(false);
    for (index, url) in urls.iter().enumerate() {
        let param = format!("{PARAM}[{index}]");
        match check_url(&param, url, &[Medium::Image, Medium::Video], UrlPolicy::Web)? {
            UrlMedium::Medium(Medium::Image) => {}
            UrlMedium::Medium(_) => has_video = Some(true),
            // A URL without an ending may be a video: unless one is certain, nobody knows.
            UrlMedium::Unknown | UrlMedium::Other => has_video = has_video.filter(|has| *has),
        }
    }
    Ok(has_video)
}

/// Contents of the list of media.
#[derive(Default)]
struct Media {
    has_start: bool,
    references: u32,
    has_video: bool,
}

impl Media {
    fn read(media: &Value<'_>, limits: &ModelLimits) -> Result<Self, GatewayError> {
        const PARAM: &str = "input.media";
        let references_max = limits.images.references_max;
        let wrong = |message: &'static str| refuse(INVALID, PARAM, message);
        let items = media
            .elements()
            .ok_or_else(|| wrong("`input.media` must be an array of `{type, url}`"))?;
        let mut read = Self::default();
        for (index, item) in items.enumerate() {
            let param = format!("{PARAM}[{index}]");
            let item = item.as_object().map_err(|error| {
                let message = crate::fields::no_object(&param, &item, &error);
                refuse(INVALID, param.clone(), message)
            })?;
            crate::fields::refuse_case_variants(&item, &MEDIA_ITEM_FIELDS)?;
            let word = required(&item, "type", &format!("{param}.type"))?.as_str();
            let Some((word, medium)) =
                MEDIA_TYPES.iter().find(|(media_type, _)| word.as_deref() == Some(media_type))
            else {
                let types: Vec<&str> = MEDIA_TYPES.iter().map(|(word, _)| *word).collect();
                let message = format!("`{param}.type` must be one of {}", types.join(", "));
                return Err(refuse(NOT_IN_ENUM, format!("{param}.type"), message));
            };
            let at = format!("{param}.url");
            let url = required(&item, "url", &at)?;
            check_url(&at, &url, &[*medium], UrlPolicy::Web)?;
            let pass = &limits.pass.fields;
            crate::fields::refuse_unknown_members(&item, &param, &MEDIA_ITEM_FIELDS, pass)?;
            read.has_video |= *medium == Medium::Video;
            read.references += u32::from(word.starts_with("reference_"));
            read.has_start |= matches!(*word, "first_frame" | "first_clip");
        }
        if read.references > references_max {
            let message = format!(
                "`{PARAM}` has {} references; this model takes {references_max} at most",
                read.references
            );
            return Err(refuse(INVALID, PARAM, message));
        }
        Ok(read)
    }

    /// Checks that the media with which the model begins are present.
    fn check(&self, kind: VideoSource) -> Result<(), GatewayError> {
        let missing = |message: &'static str| Err(refuse(MISSING, "input.media", message));
        match kind {
            VideoSource::Image if self.references > 0 => {
                let message = "this model makes videos from a first frame or clip, not from \
                               references";
                Err(refuse(INVALID, "input.media", message))
            }
            VideoSource::Image if !self.has_start => {
                missing("`input.media` needs a `first_frame` or a `first_clip` for this model")
            }
            VideoSource::References if self.references == 0 => {
                missing("`input.media` needs a `reference_image` or `reference_video`")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_names() {
        let group = |kind, era| Some(ModelClass { kind, era });
        for (model, expected) in [
            ("vf2.6-t2v", group(VideoSource::Text, ApiVersion::Sizes)),
            ("vf2.7-t2v", group(VideoSource::Text, ApiVersion::Media)),
            ("vf2.7-t2v-2026-04-25", group(VideoSource::Text, ApiVersion::Media)),
            ("vf2.5-t2v-preview", group(VideoSource::Text, ApiVersion::Sizes)),
            ("vf2.6-i2v-flash", group(VideoSource::Image, ApiVersion::Sizes)),
            ("vf2.6-r2v", group(VideoSource::References, ApiVersion::Sizes)),
            ("vf2.7-r2v", group(VideoSource::References, ApiVersion::Media)),
            ("vf2.10-i2v", group(VideoSource::Image, ApiVersion::Media)),
            ("vf3.0-r2v", group(VideoSource::References, ApiVersion::Media)),
            ("wan2.6-i2v", group(VideoSource::Image, ApiVersion::Sizes)),
            ("vf2.2-t2v", None),
            ("vf2.7-s2v", None),
            ("vf2-t2v", None),
            ("happyhorse-1.0-r2v", group(VideoSource::References, ApiVersion::Media)),
            ("happyhorse-1.1-i2v", group(VideoSource::Image, ApiVersion::Media)),
            ("happyhorse-1.0-t2v", group(VideoSource::Text, ApiVersion::Media)),
            ("happyhorse-1.0-video-edit", None),
            ("my-video", None),
            ("", None),
        ] {
            assert_eq!(ModelClass::from_model(model), expected, "{model}");
        }
    }
}
