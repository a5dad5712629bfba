//! The fields of `models.yaml`.

use std::time::Duration;

use schemars::JsonSchema;

use super::{ModelHoldsSection, OrderedMap, RatesSection};
use crate::names::{
    AudioFormatName, ImageFormatName, InferenceGeoName, OperationName, PictureFamilyName,
    QualityName, ResolutionName, ResponseFormatName, ServiceTierName, SpeedName,
};
use crate::rate::{PerMillion, PerThousand, PerUnit, Times};
use crate::scalar::{ByteSize, DayWindowText, DurationText, ImageSizeText};
use tollgate_money::each_unit;
use tollgate_money::money::Rate;
use tollgate_money::price::Unit;

/// The models of a Tollgate gateway: where they are served and what they cost.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Models {
    /// The models, by the id that customers use, in the order in which they are listed.
    pub(crate) models: OrderedMap<ModelEntry>,
}

/// A model that customers request by its id.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Model")]
pub(crate) struct ModelEntry {
    /// Operations that the model serves.
    pub(crate) operations: Vec<OperationName>,
    /// Upstreams that serve the model.
    pub(crate) targets: Vec<TargetEntry>,
    /// Models, in order, that serve a request if none of the model's targets can. Their own fallbacks are
    /// ignored. The highest price of all is held, and the price of the serving model is charged. Default:
    /// none.
    #[serde(default)]
    #[schemars(length(max = 8))]
    pub(crate) fallbacks: Vec<String>,
    /// Prices, in US dollars.
    #[serde(default)]
    pub(crate) prices: PricesSection,
    /// Prices that depend on the request. The first entry whose conditions all hold replaces the prices that
    /// it names.
    #[serde(default)]
    pub(crate) prices_when: Vec<PricesWhenEntry>,
    /// Limits of one request.
    #[serde(default)]
    pub(crate) limits: ModelLimitsSection,
    /// Rate limits of all customers together. Default: no limit.
    #[serde(default)]
    pub(crate) rate_limits: RatesSection,
    /// Holds of requests that exceed the account's balance. Default: `holds` of `routes.yaml`.
    #[serde(default)]
    pub(crate) holds: ModelHoldsSection,
    /// `owned_by` in model lists. Default: the first target's upstream.
    #[serde(default)]
    pub(crate) owned_by: Option<String>,
    /// Reading of an answer for its usage after the client disconnected. Applies where the cost is known only
    /// at the end: with reasoning, with media, or without streaming.
    #[serde(default)]
    pub(crate) on_disconnect: OnDisconnectSection,
    /// True if the model is free. Default: `false`; a missing price is then an error.
    #[serde(default)]
    pub(crate) free: bool,
    /// True if the model may think without showing it. With `false`, an interrupted answer is charged by the
    /// text that was delivered. Default: `true`.
    #[serde(default)]
    pub(crate) reasoning: Option<bool>,
    /// Charge for a complete answer without a reported usage, from a model that may think without showing it.
    /// Default: `estimate`.
    #[serde(default)]
    pub(crate) missing_usage: Option<MissingUsageRule>,
    /// Maximum number of web searches per request, added to requests in which the customer sets no limit. `0`
    /// adds none and holds the price of ten contexts. Default: `5`.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub(crate) searches_max: Option<u32>,
    /// Additional top-level fields of requests that are forwarded although the gateway does not know whether
    /// they cost extra.
    #[serde(default)]
    pub(crate) pass_fields: Vec<String>,
    /// Additional headers of requests that are forwarded; `anthropic-beta: NAME` allows one of Anthropic's
    /// betas.
    #[serde(default)]
    pub(crate) pass_headers: Vec<String>,
    /// Additional types of tools that are forwarded and assumed to be run by the upstream. A trailing `*`
    /// matches any ending.
    #[serde(default)]
    pub(crate) pass_tools: Vec<String>,
    /// Additional types of messages, items and content that are forwarded. A trailing `*` matches any ending.
    #[serde(default)]
    pub(crate) pass_content: Vec<String>,
    /// Translation of chat, messages and responses if none of the model's upstreams supports the customer's
    /// API. Default: `lenient`.
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
    /// Optional fields that the upstream's protocol does not support are dropped and listed in
    /// `x-tollgate-left-out`. Other unsupported fields are refused.
    #[default]
    Lenient,
    /// Requests with any field that the upstream's protocol does not support are refused.
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
    pub(crate) thinking: ThinkingParameter,
    /// `true` sends `temperature`, `top_p` and `top_k`; they are hints. Default: `true`.
    pub(crate) sampling: bool,
    /// Vocabulary of chat completions that the upstream understands. Default: `common`.
    pub(crate) chat: ChatWords,
    /// Ids of tool calls that the upstream accepts, in chat completions. Default: `any`.
    pub(crate) call_ids: CallIdWords,
    /// Requests with tools that the model accepts over chat completions. Others go to the Responses API of
    /// the same upstream, if `operations` has `responses`. Default: `always`.
    pub(crate) chat_tools: ChatToolsWords,
    /// The field of chat completions that enables or disables the model's thinking. Customers may send the
    /// field, as with `pass_fields`. Default: `none`.
    pub(crate) thinking_field: ThinkingFieldWords,
    /// Reasoning efforts that the model accepts over OpenAI's protocols. Others are replaced by the next
    /// lower one, or else the lowest. Default: all except `max`.
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
            thinking: ThinkingParameter::default(),
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
#[serde(rename_all = "snake_case", rename = "Thinking")]
pub(crate) enum ThinkingParameter {
    /// `output_config.effort`, as in models since Opus 4.6.
    #[default]
    Effort,
    /// `thinking.budget_tokens`, as in earlier models.
    Budget,
    /// No thinking parameter: models on `bedrock` other than Anthropic's.
    None,
}

/// Vocabulary of chat completions that an upstream understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChatWords {
    /// Fields that every OpenAI-compatible API understands, such as `max_tokens` and `system`.
    #[default]
    Common,
    /// OpenAI's own fields, such as `max_completion_tokens` and `developer`.
    Openai,
}

/// Ids of tool calls that an upstream accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallIdWords {
    /// Any id: a conversation that began with another model keeps its ids.
    #[default]
    Any,
    /// Nine letters and digits, as Mistral requires. Other ids are replaced consistently.
    Nine,
}

/// Requests with tools that a model accepts over chat completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChatToolsWords {
    /// All requests, at any reasoning effort.
    #[default]
    Always,
    /// Requests without `reasoning_effort`, or with `none`, as in GPT-5.4.
    WithoutEffort,
    /// Requests with `reasoning_effort: none`, as in GPT-5.6 and GPT-6 Sol.
    EffortNone,
    /// No requests, as in GPT-6 Astra, which does not accept `none`.
    Never,
}

/// The field that enables or disables a model's thinking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ThinkingFieldWords {
    /// None: requests carry no such field.
    #[default]
    None,
    /// `thinking: {type: enabled}` or `disabled`, as in the APIs of DeepSeek, Zhipu, Moonshot and MiniMax.
    Thinking,
    /// `enable_thinking` and `thinking_budget`, as in Alibaba's and SiliconFlow's APIs.
    EnableThinking,
    /// `reasoning_effort` alone, as in Groq and Ollama.
    ReasoningEffort,
    /// `chat_template_kwargs`, as in vLLM and SGLang.
    ChatTemplateKwargs,
}

/// Thinking effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EffortWords {
    /// The model does not think at all.
    None,
    /// The lowest effort above none.
    Minimal,
    /// Below the usual effort.
    Low,
    /// The usual amount of thinking.
    Medium,
    /// Above the usual effort.
    High,
    /// More than `high`, and less than `max`.
    XHigh,
    /// The model's highest effort.
    Max,
}

impl EffortWords {
    /// Name as it stands in requests.
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

/// Charge for a complete answer without usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "MissingUsage")]
pub(crate) enum MissingUsageRule {
    /// The usage seen in the answer. The remaining possible cost is recorded as a loss of the operator.
    Estimate,
    /// The maximum possible cost.
    Bound,
}

/// Limits for reading an answer after the client has disconnected. Beyond them the call is cancelled, and its
/// maximum possible cost is charged.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "OnDisconnect")]
pub(crate) struct OnDisconnectSection {
    /// Time after the client disconnected; `timeouts.total` of the upstream also applies. Default: `1h`.
    pub(crate) time: DurationText,
    /// Maximum number of bytes read and discarded. Default: `64MiB`.
    pub(crate) bytes: ByteSize,
}

impl Default for OnDisconnectSection {
    fn default() -> Self {
        Self { time: DurationText(Duration::from_secs(3600)), bytes: ByteSize(64 << 20) }
    }
}

/// One place where a model is served.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Target")]
pub(crate) struct TargetEntry {
    /// The name of an upstream in routes.yaml.
    pub(crate) upstream: String,
    /// The upstream's name for the model. Default: the model's id.
    #[serde(default)]
    pub(crate) model: Option<String>,
    /// Priority; lower values are tried first. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub(crate) priority: u32,
    /// Share of requests among targets of the same priority. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) weight: u32,
    /// Cost for the operator, in US dollars. Customers never see it. Default: unknown.
    #[serde(default)]
    pub(crate) cost: Option<CostSection>,
}

/// Source of a target's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CostOf {
    /// The model's own prices, multiplied by `times`.
    List,
    /// The cost that the upstream reports with each answer, as OpenRouter and xAI do.
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
        #[serde(deny_unknown_fields, default, rename = "Prices")]
        pub(crate) struct PricesSection {
            $($(#[$price_doc])* pub(crate) $price: Option<$typed>),+
        }

        impl PricesSection {
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
        #[serde(deny_unknown_fields, default, rename = "Cost")]
        pub(crate) struct CostSection {
            /// Source of the cost, instead of prices.
            pub(crate) of: Option<CostOf>,
            /// Factor for the model's prices, with `of: list`. Default: 1.
            pub(crate) times: Option<Times>,
            /// Different prices under some conditions.
            pub(crate) prices_when: Vec<PricesWhenEntry>,
            $($(#[$price_doc])* pub(crate) $price: Option<$typed>),+
        }

        impl CostSection {
            /// The configured prices.
            pub(crate) fn prices(&self) -> PricesSection {
                PricesSection { $($price: self.$price),+ }
            }
        }
    };
}

each_unit!(cost);

/// Prices for requests that meet conditions. The first entry whose conditions all hold applies, so list
/// special cases before general ones.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "PricesWhen")]
pub(crate) struct PricesWhenEntry {
    /// Conditions, all of which must hold.
    pub(crate) when: WhenSection,
    /// The prices that differ.
    pub(crate) prices: PricesSection,
}

/// Conditions on a request, all of which must hold. Some are known when the request arrives. Input, tier,
/// speed, region and thinking are decided by the answer; until then the highest possible price is held.
#[derive(Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "When")]
pub(crate) struct WhenSection {
    /// Applies to requests with more input tokens than this, including cached ones. The prices apply to the
    /// whole request.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) input_tokens_above: Option<u64>,
    /// Service tier reported in the answer, or the requested tier if the answer has none. Requests may only
    /// use tiers that have prices here.
    pub(crate) service_tier: Option<ServiceTierName>,
    /// Speed of the answer: Anthropic's `speed`.
    pub(crate) speed: Option<SpeedName>,
    /// Region of inference: Anthropic's `inference_geo`.
    pub(crate) inference_geo: Option<InferenceGeoName>,
    /// `true` for requests in which the model thinks before it answers.
    pub(crate) thinking: Option<bool>,
    /// Time of day in UTC at which the request arrives, such as `16:30-00:30`.
    pub(crate) time_utc: Option<DayWindowText>,
    /// The resolution of a video, such as `720p`.
    pub(crate) resolution: Option<ResolutionName>,
    /// The size of an image, width by height, such as `1024x1024`.
    pub(crate) size: Option<ImageSizeText>,
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
#[serde(deny_unknown_fields, default, rename = "ModelLimits")]
pub(crate) struct ModelLimitsSection {
    /// The context window: the tokens of input that the model takes. Needed for chat.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) context_tokens_max: Option<u64>,
    /// The formula by which the model counts the tokens of pictures. Default: `anthropic_high` where
    /// all of its upstreams speak Anthropic's protocol, `google` where they speak Google's, and elsewhere
    /// none: a request with a picture then holds the whole context.
    pub(crate) pictures: Option<PictureFamilyName>,
    /// Output limit of the model in tokens, including reasoning; for image models, the tokens of one image.
    /// Required for chat, and for images billed by tokens.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) output_tokens_max: Option<u64>,
    /// Vector sizes of an embedding model. Default: any.
    #[schemars(inner(range(min = 1, max = 65_536)))]
    pub(crate) dimensions: Vec<u32>,
    /// Maximum number of inputs per call of an embedding model; longer arrays are split. Default: no
    /// splitting.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) batch_inputs_max: Option<u32>,
    /// `true` if an embedding model accepts token ids instead of text. Default: `true`.
    pub(crate) token_ids: Option<bool>,
    /// Maximum number of documents in a rerank request. Default: 1000.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) documents_max: Option<u32>,
    /// Maximum number of images produced by one request. Default: 10.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) images_max: Option<u32>,
    /// Minimum number of input images in one request. Default: 0, and 1 for edits.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) reference_images_min: Option<u32>,
    /// Maximum number of input images in one request. Default: 16.
    #[schemars(range(min = 0, max = 100))]
    pub(crate) reference_images_max: Option<u32>,
    /// Image sizes that customers may request, width by height. Default: any that `side_max` and the related
    /// limits allow.
    pub(crate) sizes: Vec<ImageSizeText>,
    /// The longest side of an image of a size that is not listed, in pixels.
    #[schemars(range(min = 1, max = 65_535))]
    pub(crate) side_max: Option<u16>,
    /// Number that the sides of such an image must be multiples of, in pixels.
    #[schemars(range(min = 1, max = 1024))]
    pub(crate) side_multiple: Option<u16>,
    /// Greatest ratio of such an image's long side to its short side.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) aspect_ratio_max: Option<u16>,
    /// Image qualities that customers may request. Default: any.
    pub(crate) qualities: Option<Vec<QualityName>>,
    /// Image file formats that customers may request. Default: any.
    pub(crate) output_formats: Option<Vec<ImageFormatName>>,
    /// Formats of image answers. A single one is not sent to upstreams. Default: any.
    pub(crate) response_formats: Option<Vec<ResponseFormatName>>,
    /// `true` if edits can be limited by a mask. Default: `true`.
    pub(crate) mask: Option<bool>,
    /// `true` if images can be streamed. Default: `false`.
    pub(crate) stream: Option<bool>,
    /// Video resolutions that customers may request.
    pub(crate) resolutions: Vec<ResolutionName>,
    /// Minimum duration of a video, in seconds.
    #[schemars(range(min = 1, max = 3600))]
    pub(crate) seconds_min: Option<u32>,
    /// Maximum duration of a video, or of audio to transcribe, in seconds.
    #[schemars(range(min = 1, max = 86_400))]
    pub(crate) seconds_max: Option<u32>,
    /// `true` if a video's `duration` and `seed` can be -1, which lets its upstream choose them. Default:
    /// `false`.
    pub(crate) minus_one: Option<bool>,
    /// The characters that one request can have spoken. Default: 4096.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) characters_max: Option<u32>,
    /// Audio formats that customers may request, for upstreams that produce only `wav`. With a single format,
    /// the requested one is ignored. Default: any.
    pub(crate) audio_formats: Option<Vec<AudioFormatName>>,
    /// `true` if the model accepts instructions on how to speak. Default: `true`.
    pub(crate) instructions: Option<bool>,
    /// Minimum number of seconds that the upstream bills. Default: 0.
    #[schemars(range(max = 3600))]
    pub(crate) billed_seconds_min: Option<u32>,
    /// Input tokens per second of transcribed audio. Default: 10, as in OpenAI's models.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) audio_tokens_per_second: Option<u32>,
}
