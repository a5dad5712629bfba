//! Parsing and validation of Ark's video requests.

use serde_json::{Map, Value};

use super::FRAMES_PER_SECOND;

/// All fields of a body. Any other is refused.
const FIELDS: [&str; 17] = [
    "model",
    "content",
    "callback_url",
    "return_last_frame",
    "service_tier",
    "execution_expires_after",
    "generate_audio",
    "draft",
    "camera_fixed",
    "watermark",
    "seed",
    "resolution",
    "ratio",
    "duration",
    "frames",
    "safety_identifier",
    "priority",
];
/// The kinds of content.
const CONTENTS: [&str; 5] = ["text", "image_url", "video_url", "audio_url", "draft_task"];
/// Duration of a video without a requested one or with `-1`, in seconds.
const SECONDS: u32 = 5;
/// Allowed durations, in seconds; models narrow them further.
const SECONDS_ALLOWED: std::ops::RangeInclusive<u32> = 2..=15;
/// Default lifetime of a task in seconds, and the allowed range.
const EXPIRES_SECONDS: u32 = 172_800;
const EXPIRES_ALLOWED: std::ops::RangeInclusive<u32> = 3600..=259_200;
/// Allowed numbers of frames, of the form 25 + 4n.
const FRAMES_ALLOWED: std::ops::RangeInclusive<u32> = 29..=289;
/// Resolution used when the request names none.
const RESOLUTION: &str = "720p";
/// The resolution of drafts.
const DRAFT_RESOLUTION: &str = "480p";
/// The ratio for which none was asked, and of which every input is that has none.
const RATIO: &str = "16:9";
/// A ratio, and its width and height in 480p, 720p and 1080p.
type RatioSizes = (&'static str, [(u32, u32); 3]);
/// The sizes of Seedance 1.5 and 2.0.
const SIZES: [RatioSizes; 6] = [
    ("16:9", [(864, 496), (1280, 720), (1920, 1080)]),
    ("4:3", [(752, 560), (1112, 834), (1664, 1248)]),
    ("1:1", [(640, 640), (960, 960), (1440, 1440)]),
    ("3:4", [(560, 752), (834, 1112), (1248, 1664)]),
    ("9:16", [(496, 864), (720, 1280), (1080, 1920)]),
    ("21:9", [(992, 432), (1470, 630), (2206, 946)]),
];
/// The resolutions, in the order of the sizes.
const RESOLUTIONS: [&str; 3] = ["480p", "720p", "1080p"];

/// Reason for a refusal.
#[derive(Debug)]
pub(super) struct Invalid {
    pub(super) param: String,
    pub(super) message: String,
}

impl Invalid {
    pub(super) fn new(param: &str, must: &str) -> Self {
        let message =
            format!("The parameter `{param}` specified in the request is not valid: it {must}.");
        Self { param: param.to_owned(), message }
    }

    pub(super) fn unknown(param: &str) -> Self {
        Self::new(param, "is not known")
    }
}

/// A request that passed validation.
#[derive(Debug)]
pub(super) struct TaskRequest {
    pub(super) model: String,
    pub(super) callback_url: Option<String>,
    pub(super) return_last_frame: bool,
    pub(super) service_tier: String,
    pub(super) execution_expires_after: u32,
    pub(super) draft: bool,
    /// The seed of the video; `None` for any.
    pub(super) seed: Option<u64>,
    pub(super) frames: Option<u32>,
    /// `None` where the model decides.
    duration: Option<u32>,
    resolution: Option<String>,
    ratio: Option<String>,
}

impl TaskRequest {
    pub(super) fn read(body: &[u8]) -> Result<Self, Invalid> {
        let body: Map<String, Value> = serde_json::from_slice(body)
            .map_err(|error| Invalid::new("body", &format!("must be a JSON object: {error}")))?;
        if let Some(unknown) = body.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            return Err(Invalid::unknown(unknown));
        }
        let fields = ArkFields(&body);
        fields.content()?;
        for name in ["generate_audio", "camera_fixed", "watermark"] {
            fields.flag(name)?;
        }
        for name in ["safety_identifier", "priority"] {
            fields.text(name)?;
        }
        let model = fields.text("model")?.ok_or_else(|| Invalid::new("model", "is missing"))?;
        Ok(Self {
            model,
            callback_url: fields.text("callback_url")?,
            return_last_frame: fields.flag("return_last_frame")?,
            service_tier: fields.text("service_tier")?.unwrap_or_else(|| "default".to_owned()),
            execution_expires_after: fields
                .number("execution_expires_after", false, |it| EXPIRES_ALLOWED.contains(&it))?
                .unwrap_or(EXPIRES_SECONDS),
            draft: fields.flag("draft")?,
            seed: fields.number("seed", true, |_| true)?.map(u64::from),
            frames: fields
                .number("frames", false, |it| FRAMES_ALLOWED.contains(&it) && it % 4 == 25 % 4)?,
            duration: fields.number("duration", true, |it| SECONDS_ALLOWED.contains(&it))?,
            resolution: fields.one_of("resolution", |name| RESOLUTIONS.contains(&name))?,
            ratio: fields.one_of("ratio", |name| {
                name == "adaptive" || SIZES.iter().any(|(ratio, _)| *ratio == name)
            })?,
        })
    }

    pub(super) fn seconds(&self) -> u32 {
        self.duration.unwrap_or(SECONDS)
    }

    /// Number of frames of the video.
    pub(super) fn frames(&self) -> u32 {
        self.frames.unwrap_or(self.seconds() * FRAMES_PER_SECOND)
    }

    pub(super) fn resolution(&self) -> &str {
        if self.draft { DRAFT_RESOLUTION } else { self.resolution.as_deref().unwrap_or(RESOLUTION) }
    }

    pub(super) fn ratio(&self) -> &str {
        self.ratio.as_deref().filter(|ratio| *ratio != "adaptive").unwrap_or(RATIO)
    }

    /// Width and height of the video.
    pub(super) fn size(&self) -> (u32, u32) {
        let row = SIZES.iter().find(|(ratio, _)| *ratio == self.ratio());
        let column = RESOLUTIONS.iter().position(|name| *name == self.resolution());
        let size = row.zip(column).and_then(|((_, sizes), column)| sizes.get(column));
        size.copied().unwrap_or_default()
    }
}

/// The fields of a body, `null` being as good as none.
struct ArkFields<'a>(&'a Map<String, Value>);

impl ArkFields<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Result<Option<String>, Invalid> {
        self.one_of(name, |text| !text.is_empty())
    }

    fn one_of(&self, name: &str, is_one: impl Fn(&str) -> bool) -> Result<Option<String>, Invalid> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let text = value.as_str().filter(|text| is_one(text));
        let text = text.ok_or_else(|| Invalid::new(name, "is not one of the allowed values"))?;
        Ok(Some(text.to_owned()))
    }

    fn flag(&self, name: &str) -> Result<bool, Invalid> {
        let Some(value) = self.get(name) else { return Ok(false) };
        value.as_bool().ok_or_else(|| Invalid::new(name, "must be true or false"))
    }

    /// A number in its range; where it may be −1, that is as good as none.
    fn number(
        &self,
        name: &str,
        may_be_any: bool,
        is_in_range: impl Fn(u32) -> bool,
    ) -> Result<Option<u32>, Invalid> {
        let Some(value) = self.get(name) else { return Ok(None) };
        if may_be_any && value.as_i64() == Some(-1) {
            return Ok(None);
        }
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| is_in_range(*number));
        number.map(Some).ok_or_else(|| Invalid::new(name, "is out of range"))
    }

    /// Each block has, under the name of its type, what it holds.
    fn content(&self) -> Result<(), Invalid> {
        let blocks = self.get("content").and_then(Value::as_array);
        let blocks = blocks.filter(|blocks| !blocks.is_empty());
        let blocks = blocks.ok_or_else(|| Invalid::new("content", "is missing or empty"))?;
        for block in blocks {
            let kind = block["type"].as_str().unwrap_or_default();
            if !CONTENTS.contains(&kind) {
                return Err(Invalid::new("content.type", "is not one of the allowed values"));
            }
            if block[kind].is_null() {
                return Err(Invalid::new(&format!("content.{kind}"), "is missing"));
            }
        }
        Ok(())
    }
}
