//! The fields of `models.yaml`.

use schemars::JsonSchema;

use super::{Entries, Rates};
use crate::config::rate::{PerMillion, PerUnit};
use crate::config::scalar::{
    AudioFormatName, ImageFormatName, ImageSize, OperationName, QualityName, ResolutionName,
    ResponseFormatName,
};

/// The models of a Tollgate gateway: where they are served and what they cost.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Models {
    /// The models, by the id that customers use, in the order in which they are listed.
    pub(in crate::config) models: Entries<Model>,
}

/// A model.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Model {
    /// What it can be asked to do.
    pub(in crate::config) operations: Vec<OperationName>,
    /// Where it is served.
    pub(in crate::config) targets: Vec<Target>,
    /// What it costs, in US dollars.
    #[serde(default)]
    pub(in crate::config) prices: Prices,
    /// Prices that depend on the request. The first whose conditions all hold replaces what it names.
    #[serde(default)]
    pub(in crate::config) prices_when: Vec<PricesWhen>,
    /// What one request can use at most.
    #[serde(default)]
    pub(in crate::config) limits: ModelLimits,
    /// How much the model may be used by all customers together. Default: no limit.
    #[serde(default)]
    pub(in crate::config) rate_limits: Rates,
    /// `owned_by` in model lists. Default: the first target's upstream.
    #[serde(default)]
    pub(in crate::config) owned_by: Option<String>,
    /// Says that the model costs nothing. Default: `false`, and then a missing price is an error.
    #[serde(default)]
    pub(in crate::config) free: bool,
}

/// One place where a model is served.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Target {
    /// The name of an upstream in routes.yaml.
    pub(in crate::config) upstream: String,
    /// The upstream's name for the model. Default: the model's id.
    #[serde(default)]
    pub(in crate::config) model: Option<String>,
    /// Lower is tried first. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub(in crate::config) priority: u32,
    /// The share among targets of the same priority. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub(in crate::config) weight: u32,
}

fn one() -> u32 {
    1
}

/// What a model costs, in US dollars. At most nine decimals for a million, fifteen for one.
#[derive(Clone, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Prices {
    /// A million input tokens.
    pub(in crate::config) input_per_1m_tokens: Option<PerMillion>,
    /// A million input tokens read from a prompt cache. Default: the input price.
    pub(in crate::config) cached_input_per_1m_tokens: Option<PerMillion>,
    /// A million input tokens written to a prompt cache. Default: the input price.
    pub(in crate::config) cache_write_per_1m_tokens: Option<PerMillion>,
    /// A million input tokens written to a prompt cache for an hour. Default: the price of a cache
    /// write.
    pub(in crate::config) cache_write_1h_per_1m_tokens: Option<PerMillion>,
    /// A million output tokens, reasoning included.
    pub(in crate::config) output_per_1m_tokens: Option<PerMillion>,
    /// One image.
    pub(in crate::config) per_image: Option<PerUnit>,
    /// One second of video.
    pub(in crate::config) per_second: Option<PerUnit>,
    /// A million characters of speech.
    pub(in crate::config) per_1m_characters: Option<PerMillion>,
}

/// Prices for requests that fit some conditions.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct PricesWhen {
    /// Conditions, all of which must hold.
    pub(in crate::config) when: When,
    /// The prices that differ.
    pub(in crate::config) prices: Prices,
}

/// Conditions on a request, all of which must hold.
#[derive(Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct When {
    /// The resolution of a video, such as `720p`.
    #[serde(default)]
    pub(in crate::config) resolution: Option<ResolutionName>,
    /// The size of an image, width by height, such as `1024x1024`.
    #[serde(default)]
    pub(in crate::config) size: Option<ImageSize>,
    /// The quality of an image.
    #[serde(default)]
    pub(in crate::config) quality: Option<QualityName>,
    /// Whether a video is made with sound.
    #[serde(default)]
    pub(in crate::config) audio: Option<bool>,
    /// Whether a video is a draft.
    #[serde(default)]
    pub(in crate::config) draft: Option<bool>,
    /// Whether a video is among the inputs.
    #[serde(default)]
    pub(in crate::config) video_input: Option<bool>,
}

/// What one request to a model can use at most, and ask for.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct ModelLimits {
    /// The context window: the tokens of input that the model takes. Needed for chat.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(in crate::config) context_tokens_max: Option<u64>,
    /// The tokens that the model can put out in one answer, reasoning included; for image models, the
    /// tokens of one image. Needed for chat, and for images that are billed by tokens.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(in crate::config) output_tokens_max: Option<u64>,
    /// The vector sizes that an embedding model can give. Default: any is passed on.
    #[schemars(inner(range(min = 1, max = 65_536)))]
    pub(in crate::config) dimensions: Vec<u32>,
    /// The inputs that an embedding model takes in one call: longer arrays are split. Default: they
    /// are not.
    #[schemars(range(min = 1, max = 10_000))]
    pub(in crate::config) batch_inputs_max: Option<u32>,
    /// Whether an embedding model takes token ids in the place of text. Default: `true`.
    pub(in crate::config) token_ids: Option<bool>,
    /// The images that one request can make. Default: 10.
    #[schemars(range(min = 1, max = 100))]
    pub(in crate::config) images_max: Option<u32>,
    /// The images that one request must refer to. Default: 0, and 1 for edits.
    #[schemars(range(min = 1, max = 100))]
    pub(in crate::config) reference_images_min: Option<u32>,
    /// The images that one request can refer to. Default: 16.
    #[schemars(range(min = 0, max = 100))]
    pub(in crate::config) reference_images_max: Option<u32>,
    /// The sizes of image that can be asked for, width by height. Default: any that `side_max` and its
    /// neighbours allow.
    pub(in crate::config) sizes: Vec<ImageSize>,
    /// The longest side of an image of a size that is not listed, in pixels.
    #[schemars(range(min = 1, max = 65_535))]
    pub(in crate::config) side_max: Option<u16>,
    /// What the sides of such an image are multiples of, in pixels.
    #[schemars(range(min = 1, max = 1024))]
    pub(in crate::config) side_multiple: Option<u16>,
    /// How many times as long as the short side the long side of such an image can be.
    #[schemars(range(min = 1, max = 100))]
    pub(in crate::config) aspect_ratio_max: Option<u16>,
    /// The qualities of image that can be asked for. Default: any.
    pub(in crate::config) qualities: Option<Vec<QualityName>>,
    /// The formats of image file that can be asked for. Default: any.
    pub(in crate::config) output_formats: Option<Vec<ImageFormatName>>,
    /// How images can be answered. With one way alone, upstreams are not told. Default: any.
    pub(in crate::config) response_formats: Option<Vec<ResponseFormatName>>,
    /// Whether edits can be limited by a mask. Default: `true`.
    pub(in crate::config) mask: Option<bool>,
    /// Whether images can be streamed. Default: `false`.
    pub(in crate::config) stream: Option<bool>,
    /// The resolutions of video that can be asked for.
    pub(in crate::config) resolutions: Vec<ResolutionName>,
    /// The shortest video, in seconds.
    #[schemars(range(min = 1, max = 3600))]
    pub(in crate::config) seconds_min: Option<u32>,
    /// The longest video, in seconds.
    #[schemars(range(min = 1, max = 3600))]
    pub(in crate::config) seconds_max: Option<u32>,
    /// The characters that one request can have spoken. Default: 4096.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in crate::config) characters_max: Option<u32>,
    /// The formats of audio that can be asked for, of upstreams that make `wav` alone. With one format
    /// alone, what is asked for does not matter. Default: any.
    pub(in crate::config) audio_formats: Option<Vec<AudioFormatName>>,
    /// Whether the model can be told how to speak. Default: `true`.
    pub(in crate::config) instructions: Option<bool>,
}
