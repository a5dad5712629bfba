//! `parameters`: what DashScope makes, which must be what is billed.

use super::input::{ApiVersion, ModelClass, VideoSource};
use crate::json::Object;
use crate::video::{self, INVALID, MISSING, NOT_IN_ENUM, refuse};
use tollgate_money::price::{ImageSize, Resolution};
use tollgate_types::error::GatewayError;

/// Billing parameters of a request.
#[derive(Debug)]
pub(super) struct BillingParameters {
    pub(super) seconds: u32,
    pub(super) resolution: Resolution,
    /// The aspect ratio, if the request names one.
    pub(super) aspect_ratio: Option<&'static str>,
}

const ASPECT_RATIO_MISMATCH: &str = "InvalidParameter.AspectRatioMismatch";

/// Fields that decide the output; spellings that lenient parsers take for them are refused as well.
const FIELDS: [&str; 5] = [SIZE, RESOLUTION, "duration", "ratio", "audio"];
const SIZE: &str = "size";
const RESOLUTION: &str = "resolution";

/// Fields that would multiply the billed seconds or their price: refused, unless an operator lets them
/// through. Everything else passes (spec section 2.4).
const MULTIPLIERS: [&str; 16] = [
    "n",
    "count",
    "num",
    "batch_size",
    "video_count",
    "num_videos",
    "fps",
    "frames",
    "num_frames",
    "video_fps",
    "mode",
    "quality",
    "use_sr",
    "tier",
    "service_tier",
    "priority",
];

/// Words of versions from 2.7 on, and of image-to-video before.
const RESOLUTIONS: [(&str, Resolution); 3] =
    [("480P", Resolution::P480), ("720P", Resolution::P720), ("1080P", Resolution::P1080)];

/// The sizes of versions 2.5 and 2.6 (Alibaba Cloud Model Studio, "Wan - text-to-video API
/// reference"), by what they are billed as.
const SIZES: [(Resolution, &[(u16, u16)]); 3] = [
    (Resolution::P480, &[(832, 480), (480, 832), (624, 624)]),
    (Resolution::P720, &[(1280, 720), (720, 1280), (960, 960), (1088, 832), (832, 1088)]),
    (Resolution::P1080, &[(1920, 1080), (1080, 1920), (1440, 1440), (1632, 1248), (1248, 1632)]),
];

/// Checks `parameters` against the billed values; returns whether the video has sound.
///
/// What is left out there, the upstream decides, and not as it is billed: so all of it must be there.
pub(super) fn check(
    group: Option<ModelClass>,
    parameters: &Object<'_>,
    billed: &BillingParameters,
    pass: &[String],
) -> Result<Option<bool>, GatewayError> {
    crate::fields::refuse_case_variants(parameters, &FIELDS)?;
    check_multipliers(parameters, pass)?;
    check_duration(parameters, billed)?;
    let has_resolution = check_resolution(parameters, billed)?;
    let has_size = check_size(parameters, billed)?;
    let missing = |field: &'static str, param: &'static str| {
        let message = format!(
            "`{param}` must repeat `resolution`: without `{field}` there, another is made than is \
             billed"
        );
        Err(refuse(MISSING, param, message))
    };
    match group.map(|group| (group.era, group.kind)) {
        Some((ApiVersion::Media, _)) if has_size => {
            let message = "`parameters.size` is for versions 2.5 and 2.6; this model takes \
                           `resolution`";
            return Err(refuse(INVALID, "parameters.size", message));
        }
        Some((ApiVersion::Media, _)) | None if !has_resolution && !has_size => {
            return missing(RESOLUTION, "parameters.resolution");
        }
        Some((ApiVersion::Sizes, VideoSource::Image)) if !has_resolution && !has_size => {
            return missing(RESOLUTION, "parameters.resolution");
        }
        Some((ApiVersion::Sizes, VideoSource::Text | VideoSource::References)) if !has_size => {
            return missing(SIZE, "parameters.size");
        }
        _ => {}
    }
    check_ratio(parameters, billed)?;
    match parameters.get_non_null("audio").map(|audio| audio.as_bool()) {
        None => Ok(None),
        Some(Some(audio)) => Ok(Some(audio)),
        Some(None) => {
            Err(refuse(INVALID, "parameters.audio", "`parameters.audio` must be a boolean"))
        }
    }
}

fn check_multipliers(parameters: &Object<'_>, pass: &[String]) -> Result<(), GatewayError> {
    let multiplies =
        |key: &str| !key.is_ascii() || MULTIPLIERS.iter().any(|it| it.eq_ignore_ascii_case(key));
    let mut found = parameters.keys().filter(|key| multiplies(key));
    found.try_for_each(|key| crate::fields::check_listed("parameters", key, &[], pass))
}

fn check_duration(parameters: &Object<'_>, billed: &BillingParameters) -> Result<(), GatewayError> {
    const PARAM: &str = "parameters.duration";
    let seconds = billed.seconds;
    match parameters.get_non_null("duration").map(|duration| duration.as_u64()) {
        Some(Some(duration)) if duration == u64::from(seconds) => Ok(()),
        None => Err(refuse(MISSING, PARAM, format!("`{PARAM}` must repeat `duration`: {seconds}"))),
        Some(_) => {
            let message = format!("`{PARAM}` must be what `duration` says: {seconds}");
            Err(refuse(INVALID, PARAM, message))
        }
    }
}

/// `720P`: as the field at the top says it, in upper case.
fn check_resolution(
    parameters: &Object<'_>,
    billed: &BillingParameters,
) -> Result<bool, GatewayError> {
    const PARAM: &str = "parameters.resolution";
    let words = RESOLUTIONS.map(|(word, _)| word);
    let Some(word) = video::word_of(parameters, RESOLUTION, PARAM, &words)? else {
        return Ok(false);
    };
    if RESOLUTIONS.contains(&(word, billed.resolution)) {
        return Ok(true);
    }
    let message = format!("`{PARAM}` is {word}, but `resolution` is {}", billed.resolution);
    Err(refuse(INVALID, PARAM, message))
}

/// `1280*720`: of the resolution that the field at the top says, and lying or standing as
/// `aspect_ratio` does.
fn check_size(parameters: &Object<'_>, billed: &BillingParameters) -> Result<bool, GatewayError> {
    const PARAM: &str = "parameters.size";
    let Some(value) = parameters.get_non_null(SIZE) else { return Ok(false) };
    let text = value.as_str().unwrap_or_default();
    let size = ImageSize::parse(&text).filter(|_| text.contains('*'));
    let size = size.map(|size| (size.width, size.height));
    let class = size
        .and_then(|size| SIZES.iter().find(|(_, sizes)| sizes.contains(&size)))
        .map(|(resolution, _)| *resolution);
    let (Some((width, height)), Some(class)) = (size, class) else {
        let own = SIZES.iter().filter(|(resolution, _)| *resolution == billed.resolution);
        let own = own.flat_map(|(_, sizes)| sizes.iter());
        let own: Vec<String> = own.map(|(width, height)| format!("{width}*{height}")).collect();
        let message =
            format!("`{PARAM}` must be one of {} for {}", own.join(", "), billed.resolution);
        return Err(refuse(NOT_IN_ENUM, PARAM, message));
    };
    if class != billed.resolution {
        let message =
            format!("`{PARAM}` is a size of {class}, but `resolution` is {}", billed.resolution);
        return Err(refuse(INVALID, PARAM, message));
    }
    if let Some(ratio) = billed.aspect_ratio
        && Some(width.cmp(&height)) != orientation(ratio)
    {
        let message = format!("`{PARAM}` does not lie or stand as `aspect_ratio` {ratio} does");
        return Err(refuse(ASPECT_RATIO_MISMATCH, PARAM, message));
    }
    Ok(true)
}

/// The aspect ratio that `parameters` themselves say, in their `ratio` or with a `size`.
pub(super) fn ratio(parameters: &Object<'_>, ratios: &[&'static str]) -> Option<&'static str> {
    let text = |field| parameters.get_non_null(field).and_then(|value| value.as_str());
    if let Some(ratio) = text("ratio") {
        return ratios.iter().copied().find(|candidate| *candidate == ratio);
    }
    let size = ImageSize::parse(&text(SIZE)?)?;
    // Sides are multiples of 16 or so: the nearest ratio is meant.
    let off = |ratio: &&&str| {
        let (wide, high) = ratio.split_once(':').unwrap_or_default();
        let side = |text: &str| text.parse::<u64>().unwrap_or_default();
        let (one, other) =
            (u64::from(size.width) * side(high), u64::from(size.height) * side(wide));
        one.abs_diff(other) * 1000 / one.max(other).max(1)
    };
    ratios.iter().min_by_key(off).copied()
}

/// The size of a resolution that is nearest to a ratio.
pub(crate) fn size_of(resolution: Resolution, ratio: &str) -> Option<String> {
    let (wide, high) = ratio.split_once(':')?;
    let side = |text: &str| text.parse::<u64>().ok().filter(|side| (1..100).contains(side));
    let (wide, high) = (side(wide)?, side(high)?);
    let (_, sizes) = SIZES.iter().find(|(name, _)| *name == resolution)?;
    let off = |&&(width, height): &&(u16, u16)| {
        let (width, height) = (u64::from(width), u64::from(height));
        // How far the two shapes are apart, over the larger of them.
        let (one, other) = (width * high, height * wide);
        one.abs_diff(other) * 1000 / one.max(other)
    };
    let (width, height) = sizes.iter().min_by_key(off)?;
    Some(format!("{width}*{height}"))
}

/// Compares width with height.
fn orientation(ratio: &str) -> Option<std::cmp::Ordering> {
    let (width, height) = ratio.split_once(':')?;
    let side = |text: &str| text.parse::<u32>().ok();
    Some(side(width)?.cmp(&side(height)?))
}

/// `ratio`, of versions from 2.7 on.
fn check_ratio(parameters: &Object<'_>, billed: &BillingParameters) -> Result<(), GatewayError> {
    const PARAM: &str = "parameters.ratio";
    let Some(value) = parameters.get_non_null("ratio") else { return Ok(()) };
    let Some(ratio) = value.as_str() else {
        return Err(refuse(INVALID, PARAM, format!("`{PARAM}` must be a string")));
    };
    match billed.aspect_ratio {
        Some(aspect_ratio) if aspect_ratio != ratio => {
            let message = format!("`{PARAM}` must be what `aspect_ratio` says: {aspect_ratio}");
            Err(refuse(ASPECT_RATIO_MISMATCH, PARAM, message))
        }
        _ => Ok(()),
    }
}
