//! The fields of `models.yaml`.

use std::time::Duration;

use schemars::JsonSchema;

use super::{Entries, ModelHolds, Rates};
use crate::names::{
    AudioFormatName, ImageFormatName, InferenceGeoName, OperationName, PictureFamilyName,
    QualityName, ResolutionName, ResponseFormatName, ServiceTierName, SpeedName,
};
use crate::rate::{PerMillion, PerThousand, PerUnit, Times};
use crate::scalar::{DayWindow, ImageSize, Period, Size};
use tollgate_money::each_unit;
use tollgate_money::money::Rate;
use tollgate_money::price::Unit;

/// The models of a Tollgate gateway: where they are served and what they cost.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Models {
    /// The models, by the id that customers use, in the order in which they are listed.
    pub(crate) models: Entries<Model>,
}

/// A model, as customers ask for it by its id.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Model {
    /// Operations that the model serves.
    pub(crate) operations: Vec<OperationName>,
    /// Upstreams that serve the model.
    pub(crate) targets: Vec<Target>,
    /// Models that serve a request when none of its targets can, in this order. Their own lists do not
    /// count. What is held is the dearest of them all, and what is charged is the price of the one that
    /// served. Default: none.
    #[serde(default)]
    #[schemars(length(max = 8))]
    pub(crate) fallbacks: Vec<String>,
    /// Prices, in US dollars.
    #[serde(default)]
    pub(crate) prices: Prices,
    /// Prices that depend on the request. The first whose conditions all hold replaces what it names.
    #[serde(default)]
    pub(crate) prices_when: Vec<PricesWhen>,
    /// Limits of one request.
    #[serde(default)]
    pub(crate) limits: ModelLimits,
    /// Rate limits of all customers together. Default: no limit.
    #[serde(default)]
    pub(crate) rate_limits: Rates,
    /// Holds of requests that do not fit their accounts. Default: `holds` of `routes.yaml`.
    #[serde(default)]
    pub(crate) holds: ModelHolds,
    /// `owned_by` in model lists. Default: the first target's upstream.
    #[serde(default)]
    pub(crate) owned_by: Option<String>,
    /// Reading of an answer for its usage after the customer has disconnected. It is read on where its cost
    /// is known at its end only: with reasoning, media, or without a stream.
    #[serde(default)]
    pub(crate) on_disconnect: OnDisconnect,
    /// Says that the model costs nothing. Default: `false`, and then a missing price is an error.
    #[serde(default)]
    pub(crate) free: bool,
    /// `false` promises that the model shows all of its thinking: an answer that is cut is then charged by
    /// the text that was sent. Default: `true`.
    #[serde(default)]
    pub(crate) reasoning: Option<bool>,
    /// Charge for a complete answer without a reported usage, from a model that may think without showing it.
    /// Default: `estimate`.
    #[serde(default)]
    pub(crate) missing_usage: Option<MissingUsage>,
    /// Searches in the web that an upstream may run for one request where the customer sets no limit: such
    /// a request gets this one. `0` leaves it as it is, and holds ten contexts for it. Default: `5`.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub(crate) searches_max: Option<u32>,
    /// Top-level fields of requests that are let through although they are not known to cost nothing
    /// of their own.
    #[serde(default)]
    pub(crate) pass_fields: Vec<String>,
    /// Headers of requests that are sent on beside those that always are; `anthropic-beta: NAME` for
    /// one of Anthropic's betas.
    #[serde(default)]
    pub(crate) pass_headers: Vec<String>,
    /// Types of tools that are let through, and taken to be run by the upstream. A `*` at the end
    /// stands for any ending.
    #[serde(default)]
    pub(crate) pass_tools: Vec<String>,
    /// Types of messages, items and content that are let through. A `*` at the end stands for any
    /// ending.
    #[serde(default)]
    pub(crate) pass_content: Vec<String>,
    /// Translation of chat, messages and responses where none of the model's upstreams has the customer's
    /// dialect. Default: `lenient`.
    #[serde(default)]
    pub(crate) translation: Translation,
    /// Options of translated requests, which differ from model to model.
    #[serde(default)]
    pub(crate) translated: TranslationOptions,
}

/// Translation of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Translation {
    /// Hints that the upstream's protocol has no words for are dropped, and named in
    /// `x-tollgate-left-out`. Anything else that it has no words for is refused.
    #[default]
    Lenient,
    /// Requests with anything that the upstream's protocol has no words for are refused.
    Strict,
    /// The model is used in its upstreams' own protocols only.
    Off,
}

/// Options of translated requests.
#[derive(Clone, Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "Translated")]
pub(crate) struct TranslationOptions {
    /// Thinking parameter of one of Anthropic's models, over the protocols `anthropic` and `bedrock`.
    /// Default: `effort`.
    pub(crate) thinking: Thinking,
    /// `true` sends `temperature`, `top_p` and `top_k`; they are hints. Default: `true`.
    pub(crate) sampling: bool,
    /// Vocabulary of chat completions that the upstream understands. Default: `common`.
    pub(crate) chat: ChatWords,
    /// Ids of tool calls that the upstream accepts, in chat completions. Default: `any`.
    pub(crate) call_ids: CallIdWords,
    /// Requests with tools that the model accepts over chat completions. Others go to the Responses API of
    /// the same upstream, if `operations` has `responses`. Default: `always`.
    pub(crate) chat_tools: ChatToolsWords,
    /// By which field of chat completions of the common kind the model is told to think, or not to. The
    /// field is let through, as those in `pass_fields` are. Default: `none`.
    pub(crate) thinking_field: ThinkingFieldWords,
    /// The words for how much to think that the model knows, over OpenAI's protocols: others become the
    /// next below, or else the least. Default: all but `max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) efforts: Option<Vec<EffortWords>>,
    /// `true` marks prompts for the cache of an upstream of the protocols `anthropic` and `bedrock` where the
    /// customer's dialect has no marks, which costs its price for cache writes. With `false`, requests with a
    /// `prompt_cache_key` are marked. Default: `false`.
    pub(crate) caches: bool,
}

impl Default for TranslationOptions {
    fn default() -> Self {
        Self {
            thinking: Thinking::default(),
            sampling: true,
            chat: ChatWords::default(),
            call_ids: CallIdWords::default(),
            chat_tools: ChatToolsWords::default(),
            thinking_field: ThinkingFieldWords::default(),
            efforts: None,
            caches: false,
        }
    }
}

/// Thinking parameter of a model of Anthropic's protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Thinking {
    /// By `output_config.effort`, as models since Opus 4.6 have it.
    #[default]
    Effort,
    /// By `thinking.budget_tokens`, as models before them have it.
    Budget,
    /// Not at all: over the protocol `bedrock`, all models but Anthropic's.
    None,
}

/// Vocabulary of chat completions that an upstream understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChatWords {
    /// Fields that every copy of OpenAI's API understands, such as `max_tokens` and `system`.
    #[default]
    Common,
    /// Fields of OpenAI itself, such as `max_completion_tokens` and `developer`.
    Openai,
}

/// Ids of tool calls that an upstream accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallIdWords {
    /// Any: a conversation that began at another model goes on with its ids.
    #[default]
    Any,
    /// Nine letters and digits, as Mistral does: others are replaced, the same by the same.
    Nine,
}

/// Requests with tools that a model accepts over chat completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChatToolsWords {
    /// In every request, at any reasoning effort.
    #[default]
    Always,
    /// In requests without `reasoning_effort`, or with `none`, as GPT-5.4 does.
    WithoutEffort,
    /// In requests with `reasoning_effort: none`, as GPT-5.6 and GPT-6 Sol do.
    EffortNone,
    /// In none, as GPT-6 Astra, which does not know `none`.
    Never,
}

/// By which field a model is told to think, or not to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ThinkingFieldWords {
    /// By no field: the model is not told.
    #[default]
    None,
    /// `thinking: {type: enabled}` or `disabled`, as DeepSeek, Zhipu, Moonshot and MiniMax have it.
    Thinking,
    /// `enable_thinking` and `thinking_budget`, as Alibaba and SiliconFlow have it.
    EnableThinking,
    /// `reasoning_effort` alone, as Groq and Ollama have it.
    ReasoningEffort,
    /// `chat_template_kwargs`, as vLLM and SGLang have it.
    ChatTemplateKwargs,
}

/// Thinking effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EffortWords {
    /// The model does not think at all.
    None,
    /// The least beside nothing.
    Minimal,
    /// Less than is usual.
    Low,
    /// The usual amount of thinking.
    Medium,
    /// More than is usual.
    High,
    /// More than `high`, and less than `max`.
    XHigh,
    /// All that the model can.
    Max,
}

impl EffortWords {
    /// The word as requests have it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
            Self::Max => "max",
        }
    }
}

/// Charge for a complete answer without a usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MissingUsage {
    /// The usage seen in the answer. The rest, up to the most that it can have cost, is recorded as your
    /// loss.
    Estimate,
    /// The most that it can have cost.
    Bound,
}

/// Limits for reading an answer after the customer has disconnected. One that takes more is cancelled, and
/// the most that it can cost is charged.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OnDisconnect {
    /// From when the customer left; `timeouts.total` of the upstream counts as well. Default: `1h`.
    pub(crate) time: Period,
    /// The bytes that are read and thrown away. Default: `64MiB`.
    pub(crate) bytes: Size,
}

impl Default for OnDisconnect {
    fn default() -> Self {
        Self { time: Period(Duration::from_secs(3600)), bytes: Size(64 << 20) }
    }
}

/// One place where a model is served.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    /// The name of an upstream in routes.yaml.
    pub(crate) upstream: String,
    /// The upstream's name for the model. Default: the model's id.
    #[serde(default)]
    pub(crate) model: Option<String>,
    /// Lower is tried first. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub(crate) priority: u32,
    /// The share among targets of the same priority. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) weight: u32,
    /// Cost for the operator, in US dollars. Customers never see it. Default: unknown.
    #[serde(default)]
    pub(crate) cost: Option<Cost>,
}

/// Source of a target's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CostOf {
    /// From the model's own prices, all of them multiplied by `times`.
    List,
    /// From the upstream, which says with each answer what it cost, as OpenRouter and xAI do.
    Reported,
}

fn one() -> u32 {
    1
}

macro_rules! prices {
    ($(
        $(#[$doc:meta])* $unit:ident: $name:ident,
        $(#[$rate_doc:meta])* $rate:ident,
        $(#[$price_doc:meta])* $price:ident: $typed:ident,
        $info:tt;
    )+) => {
        /// Prices of a model, in US dollars. At most nine decimals for a million, fifteen for one.
        #[derive(Clone, Debug, Default, serde::Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct Prices {
            $($(#[$price_doc])* pub(crate) $price: Option<$typed>),+
        }

        impl Prices {
            /// The price of one unit, if it was typed.
            pub(crate) fn rate(&self, unit: Unit) -> Option<Rate> {
                match unit {
                    $(Unit::$unit => self.$price.map(|price| price.0)),+
                }
            }

            /// These prices, with those of `base` where nothing was typed.
            pub(crate) fn over(&self, base: &Self) -> Self {
                Self { $($price: self.$price.or(base.$price)),+ }
            }
        }
    };
}

each_unit!(prices);

macro_rules! cost {
    ($(
        $(#[$doc:meta])* $unit:ident: $name:ident,
        $(#[$rate_doc:meta])* $rate:ident,
        $(#[$price_doc:meta])* $price:ident: $typed:ident,
        $info:tt;
    )+) => {
        /// Cost of a target for the operator, in US dollars: prices of its own, or their source.
        #[derive(Debug, Default, serde::Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct Cost {
            /// Source of the cost, instead of prices.
            pub(crate) of: Option<CostOf>,
            /// Factor for the model's prices, with `of: list`. Default: 1.
            pub(crate) times: Option<Times>,
            /// Other prices for calls under some conditions.
            pub(crate) prices_when: Vec<PricesWhen>,
            $($(#[$price_doc])* pub(crate) $price: Option<$typed>),+
        }

        impl Cost {
            /// The prices that were typed.
            pub(crate) fn prices(&self) -> Prices {
                Prices { $($price: self.$price),+ }
            }
        }
    };
}

each_unit!(cost);

/// Prices for requests that fit some conditions. Of several entries the first counts whose conditions
/// all hold, so the special ones come before the general ones.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PricesWhen {
    /// Conditions, all of which must hold.
    pub(crate) when: WhenSection,
    /// The prices that differ.
    pub(crate) prices: Prices,
}

/// Conditions on a request, all of which must hold. Some are known when a request comes; those on its
/// input and on the tier, speed, place and thinking are decided by what its answer reports, and the
/// dearest that it can still come to is held until then.
#[derive(Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "When")]
pub(crate) struct WhenSection {
    /// More input tokens than this, cached ones among them. The prices are those of the whole request.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) input_tokens_above: Option<u64>,
    /// The tier in which the request is served, as its answer says; as it was asked for where the answer
    /// says nothing. A request can ask for a tier that has prices here, and for no other.
    pub(crate) service_tier: Option<ServiceTierName>,
    /// Speed of the answer: Anthropic's `speed`.
    pub(crate) speed: Option<SpeedName>,
    /// Region of inference: Anthropic's `inference_geo`.
    pub(crate) inference_geo: Option<InferenceGeoName>,
    /// `true` for requests in which the model thinks before it answers.
    pub(crate) thinking: Option<bool>,
    /// The time of the day in UTC at which the request comes, such as `16:30-00:30`.
    pub(crate) time_utc: Option<DayWindow>,
    /// The resolution of a video, such as `720p`.
    pub(crate) resolution: Option<ResolutionName>,
    /// The size of an image, width by height, such as `1024x1024`.
    pub(crate) size: Option<ImageSize>,
    /// The quality of an image.
    pub(crate) quality: Option<QualityName>,
    /// `true` for videos with sound.
    pub(crate) audio: Option<bool>,
    /// `true` for drafts of videos.
    pub(crate) draft: Option<bool>,
    /// `true` for requests with a video among the inputs.
    pub(crate) video_input: Option<bool>,
}

/// Limits of one request to a model.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelLimits {
    /// The context window: the tokens of input that the model takes. Needed for chat.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) context_tokens_max: Option<u64>,
    /// The formula by which the model counts the tokens of pictures. Default: `anthropic_high` where
    /// all of its upstreams speak Anthropic's protocol, `google` where they speak Google's, and elsewhere
    /// none: a request with a picture then holds the whole context.
    pub(crate) pictures: Option<PictureFamilyName>,
    /// The tokens that the model can put out in one answer, reasoning included; for image models, the
    /// tokens of one image. Needed for chat, and for images that are billed by tokens.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) output_tokens_max: Option<u64>,
    /// The vector sizes that an embedding model can give. Default: any is passed on.
    #[schemars(inner(range(min = 1, max = 65_536)))]
    pub(crate) dimensions: Vec<u32>,
    /// The inputs that an embedding model takes in one call: longer arrays are split. Default: they
    /// are not.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) batch_inputs_max: Option<u32>,
    /// `true` if an embedding model accepts token ids instead of text. Default: `true`.
    pub(crate) token_ids: Option<bool>,
    /// The documents that one request can have ranked. Default: 1000.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) documents_max: Option<u32>,
    /// The images that one request can make. Default: 10.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) images_max: Option<u32>,
    /// The images that one request must refer to. Default: 0, and 1 for edits.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) reference_images_min: Option<u32>,
    /// The images that one request can refer to. Default: 16.
    #[schemars(range(min = 0, max = 100))]
    pub(crate) reference_images_max: Option<u32>,
    /// The sizes of image that can be asked for, width by height. Default: any that `side_max` and its
    /// neighbours allow.
    pub(crate) sizes: Vec<ImageSize>,
    /// The longest side of an image of a size that is not listed, in pixels.
    #[schemars(range(min = 1, max = 65_535))]
    pub(crate) side_max: Option<u16>,
    /// Number that the sides of such an image must be multiples of, in pixels.
    #[schemars(range(min = 1, max = 1024))]
    pub(crate) side_multiple: Option<u16>,
    /// Greatest ratio of such an image's long side to its short side.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) aspect_ratio_max: Option<u16>,
    /// The qualities of image that can be asked for. Default: any.
    pub(crate) qualities: Option<Vec<QualityName>>,
    /// The formats of image file that can be asked for. Default: any.
    pub(crate) output_formats: Option<Vec<ImageFormatName>>,
    /// Formats of image answers. A single one is not sent to upstreams. Default: any.
    pub(crate) response_formats: Option<Vec<ResponseFormatName>>,
    /// `true` if edits can be limited by a mask. Default: `true`.
    pub(crate) mask: Option<bool>,
    /// `true` if images can be streamed. Default: `false`.
    pub(crate) stream: Option<bool>,
    /// The resolutions of video that can be asked for.
    pub(crate) resolutions: Vec<ResolutionName>,
    /// The shortest video, in seconds.
    #[schemars(range(min = 1, max = 3600))]
    pub(crate) seconds_min: Option<u32>,
    /// The longest video, or the longest audio to write down, in seconds.
    #[schemars(range(min = 1, max = 86_400))]
    pub(crate) seconds_max: Option<u32>,
    /// `true` if a video's `duration` and `seed` can be -1, which lets its upstream choose them. Default:
    /// `false`.
    pub(crate) minus_one: Option<bool>,
    /// The characters that one request can have spoken. Default: 4096.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) characters_max: Option<u32>,
    /// The formats of audio that can be asked for, of upstreams that make `wav` alone. With one format
    /// alone, what is asked for does not matter. Default: any.
    pub(crate) audio_formats: Option<Vec<AudioFormatName>>,
    /// `true` if the model accepts instructions on how to speak. Default: `true`.
    pub(crate) instructions: Option<bool>,
    /// The seconds that the upstream bills of shorter audio. Default: 0.
    #[schemars(range(max = 3600))]
    pub(crate) billed_seconds_min: Option<u32>,
    /// The input tokens that a model of transcriptions makes of a second of audio. Default: 10, which is
    /// what OpenAI's models do.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) audio_tokens_per_second: Option<u32>,
}
