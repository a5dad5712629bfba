//! A video in plain words, as the versions of families V and H have it.

use serde_json::{Map, Value, json};

use super::PlainVideo;
use crate::dashscope_video::{
    ASPECT_RATIO_DEFAULT, ApiVersion, ModelClass, RESOLUTION_DEFAULT, SECONDS_DEFAULT, VideoSource,
    size_of,
};
use crate::limits::VideoLimits;
use tollgate_money::price::Resolution;

/// Request body, in which every billed value appears twice.
pub(super) fn video(plain: &PlainVideo<'_>, limits: &VideoLimits) -> Value {
    let group = ModelClass::from_model(plain.model);
    let has = |resolution: &Resolution| {
        limits.resolutions.is_empty() || limits.resolutions.contains(resolution)
    };
    let default = Some(RESOLUTION_DEFAULT).filter(has).or(limits.resolutions.first().copied());
    // A word that is none is refused as what was asked for.
    let requested = plain.resolution.map(str::to_owned);
    let resolution = requested
        .or_else(|| default.map(|default| default.as_str().to_owned()))
        .unwrap_or_default();
    let seconds = plain.seconds.unwrap_or_else(|| {
        SECONDS_DEFAULT.clamp(limits.seconds_min, limits.seconds_max.max(limits.seconds_min))
    });
    let mut parameters = Map::new();
    parameters.insert("duration".to_owned(), json!(seconds));
    let ratio = plain.aspect_ratio;
    let is_by_size = group
        .is_some_and(|group| group.era == ApiVersion::Sizes && group.kind != VideoSource::Image);
    let size = Resolution::of(&resolution)
        .filter(|_| is_by_size)
        .and_then(|resolution| size_of(resolution, ratio.unwrap_or(ASPECT_RATIO_DEFAULT)));
    match size {
        Some(size) => {
            parameters.insert("size".to_owned(), json!(size));
        }
        None => {
            parameters.insert("resolution".to_owned(), json!(resolution.to_uppercase()));
            if let Some(ratio) =
                ratio.filter(|_| group.is_some_and(|one| one.era == ApiVersion::Media))
            {
                parameters.insert("ratio".to_owned(), json!(ratio));
            }
        }
    }
    let mut body = json!({
        "model": plain.model,
        "duration": seconds,
        "resolution": resolution,
        "input": input(plain, group),
        "parameters": parameters,
    });
    if let Some(ratio) = ratio {
        body["aspect_ratio"] = json!(ratio);
    }
    body
}

fn input(plain: &PlainVideo<'_>, group: Option<ModelClass>) -> Value {
    let urls = plain.image_urls;
    let mut input = json!({"prompt": plain.prompt});
    if urls.is_empty() {
        return input;
    }
    match group.map(|group| (group.era, group.kind)) {
        Some((ApiVersion::Sizes, VideoSource::References)) => input["reference_urls"] = json!(urls),
        Some((ApiVersion::Sizes, _)) => input["img_url"] = json!(urls[0]),
        Some((ApiVersion::Media, kind)) => input["media"] = media(urls, kind == VideoSource::Image),
        None => input["media"] = media(urls, plain.model.contains("i2v")),
    }
    input
}

fn media(urls: &[String], begins: bool) -> Value {
    let kind = if begins { "first_frame" } else { "reference_image" };
    urls.iter().map(|url| json!({"type": kind, "url": url})).collect()
}
