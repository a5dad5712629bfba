//! The table of operations: a row each, in the order in which documents list them.

use super::{BodyKind, ErrorShape, OperationInfo};
use tollgate_money::price::Unit::{
    AudioSeconds, Characters, ContainerSessions, FileSearches, Images, InputTokens, OutputTokens,
    Requests, RerankUnits, Seconds, ToolCalls, WebSearches,
};

/// Makes the enum of operations and its rows.
macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident $row:tt)+) => {
        /// An operation that a customer can request: one for each kind of endpoint.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Operation {
            $($(#[$doc])* $variant,)+
        }

        impl Operation {
            /// Every operation, including those without a name in YAML.
            pub const EVERY: &[Self] = &[$(Self::$variant),+];

            /// The operation's row.
            #[must_use]
            pub const fn info(self) -> &'static OperationInfo {
                match self {
                    $(Self::$variant => const { &operations!(@row $row) },)+
                }
            }
        }
    };
    (@row { $($field:ident: $value:expr),+ ; ..$rest:expr }) => {
        OperationInfo { $($field: $value,)+ ..$rest }
    };
}

/// Defaults of a row: JSON that is billed.
const JSON: OperationInfo = OperationInfo {
    name: "",
    path: "",
    path_suffix: "",
    summary: "",
    body: BodyKind::Json,
    parent: None,
    default_model: None,
    is_billed: true,
    is_task: false,
    is_prompt: false,
    billed_by: &[],
    billed_beside: &[],
    limits: &["context_tokens_max"],
    limits_required: &[],
    limits_required_by_tokens: &[],
    conditions: &["time_utc"],
    passes_nested_fields: false,
    output_limit: None,
    cheaper: "",
    call_kind: None,
    error_shape: ErrorShape::Openai,
    model_missing_code: None,
    model_mismatch_code: None,
    trace_name: None,
    playground: None,
    litellm_mode: None,
    model_names: &[],
    guess_rank: 0,
};

/// A prompt in any dialect. A translated one reaches the endpoint of another prompt, so all are one kind.
const PROMPT: OperationInfo = OperationInfo {
    is_prompt: true,
    billed_by: &[&[InputTokens, OutputTokens]],
    billed_beside: &[WebSearches, Requests],
    limits: &["context_tokens_max", "output_tokens_max", "pictures"],
    limits_required: &["context_tokens_max", "output_tokens_max"],
    conditions: &["time_utc", "input_tokens_above", "service_tier", "thinking"],
    call_kind: Some("generation"),
    trace_name: Some("chat"),
    ..JSON
};

/// A count of a prompt's tokens.
const COUNT: OperationInfo =
    OperationInfo { is_billed: false, call_kind: Some("token_count"), ..JSON };

const IMAGE: OperationInfo = OperationInfo {
    billed_by: &[&[Images], &[InputTokens, OutputTokens]],
    billed_beside: &[Requests],
    limits: &IMAGE_LIMITS,
    limits_required_by_tokens: &["context_tokens_max", "output_tokens_max"],
    conditions: &["time_utc", "size", "quality"],
    passes_nested_fields: true,
    ..JSON
};

const IMAGE_LIMITS: [&str; 13] = [
    "context_tokens_max",
    "output_tokens_max",
    "images_max",
    "sizes",
    "side_max",
    "side_multiple",
    "aspect_ratio_max",
    "qualities",
    "output_formats",
    "response_formats",
    "stream",
    "reference_images_min",
    "reference_images_max",
];

const EDIT_LIMITS: [&str; 14] = {
    let mut limits = ["mask"; 14];
    let mut at = 0;
    while at < IMAGE_LIMITS.len() {
        limits[at] = IMAGE_LIMITS[at];
        at += 1;
    }
    limits
};

/// Text from audio.
const AUDIO_TO_TEXT: OperationInfo = OperationInfo {
    body: BodyKind::Form,
    billed_by: &[&[AudioSeconds], &[InputTokens, OutputTokens], &[Requests]],
    limits: &[
        "context_tokens_max",
        "output_tokens_max",
        "seconds_max",
        "billed_seconds_min",
        "audio_tokens_per_second",
    ],
    limits_required_by_tokens: &["output_tokens_max"],
    cheaper: ", or send shorter audio",
    ..JSON
};

operations! {
    /// `POST /v1/chat/completions`
    Chat {
        name: "chat",
        path: "/v1/chat/completions",
        summary: "OpenAI's chat completions",
        // Models that are never translated take this field; see `output_limit` for the others.
        output_limit: Some("max_tokens"),
        playground: Some("chat"),
        litellm_mode: Some("chat");
        ..PROMPT
    }
    /// `POST /v1/messages`
    Messages {
        name: "messages",
        path: "/v1/messages",
        summary: "Anthropic's Messages API",
        billed_beside: &[WebSearches, ContainerSessions, Requests],
        conditions: &[
            "time_utc", "input_tokens_above", "service_tier", "thinking", "speed", "inference_geo",
        ],
        output_limit: Some("max_tokens"),
        error_shape: ErrorShape::Anthropic,
        playground: Some("chat");
        ..PROMPT
    }
    /// `POST /v1/messages/count_tokens`
    CountTokens {
        name: "count_tokens",
        path: "/v1/messages/count_tokens",
        summary: "count of a prompt's tokens, in Anthropic's words",
        parent: Some(Operation::Messages),
        error_shape: ErrorShape::Anthropic;
        ..COUNT
    }
    /// `POST /v1/responses`
    Responses {
        name: "responses",
        path: "/v1/responses",
        summary: "OpenAI's Responses API, also over WebSockets",
        billed_beside: &[
            WebSearches, FileSearches, ContainerSessions, ToolCalls, Images, Requests,
        ],
        // Size and quality are those of the image generation tool.
        conditions: &[
            "time_utc", "input_tokens_above", "service_tier", "thinking", "size", "quality",
        ],
        output_limit: Some("max_output_tokens"),
        error_shape: ErrorShape::Responses,
        litellm_mode: Some("responses");
        ..PROMPT
    }
    /// `POST /v1beta/models/{model}:generateContent` and `:streamGenerateContent`
    GenerateContent {
        name: "generate_content",
        path: "/v1beta/models",
        path_suffix: "/{model}:generateContent",
        summary: "Google's Gemini API",
        body: BodyKind::ModelInPath,
        passes_nested_fields: true,
        output_limit: Some("maxOutputTokens"),
        error_shape: ErrorShape::Google,
        trace_name: None;
        ..PROMPT
    }
    /// `POST /v1beta/models/{model}:countTokens`
    CountContentTokens {
        name: "count_content_tokens",
        path: "/v1beta/models",
        path_suffix: "/{model}:countTokens",
        summary: "count of a prompt's tokens, in Google's words",
        body: BodyKind::ModelInPath,
        parent: Some(Operation::GenerateContent),
        error_shape: ErrorShape::Google;
        ..COUNT
    }
    /// `POST /v1/responses/compact`
    Compact {
        name: "compact",
        path: "/v1/responses/compact",
        summary: "compaction of a conversation by OpenAI",
        parent: Some(Operation::Responses),
        error_shape: ErrorShape::Responses;
        ..JSON
    }
    /// `POST /v1/responses/input_tokens`
    InputTokens {
        name: "input_tokens",
        path: "/v1/responses/input_tokens",
        summary: "count of a prompt's tokens, in OpenAI's words",
        parent: Some(Operation::Responses),
        error_shape: ErrorShape::Responses;
        ..COUNT
    }
    /// `POST /v1/embeddings`
    Embeddings {
        name: "embeddings",
        path: "/v1/embeddings",
        summary: "vectors of texts",
        body: BodyKind::JsonWithTokenIds,
        billed_by: &[&[InputTokens]],
        billed_beside: &[Requests],
        limits: &["context_tokens_max", "dimensions", "batch_inputs_max", "token_ids"],
        conditions: &["time_utc", "input_tokens_above"],
        litellm_mode: Some("embedding"),
        model_names: &["*embed*"];
        ..JSON
    }
    /// `POST /v1/rerank`
    Rerank {
        name: "rerank",
        path: "/v1/rerank",
        summary: "ranking of documents by a query",
        billed_by: &[&[InputTokens], &[RerankUnits], &[Requests]],
        limits: &["context_tokens_max", "documents_max"],
        conditions: &["time_utc", "input_tokens_above"],
        litellm_mode: Some("rerank"),
        model_names: &["*rerank*"];
        ..JSON
    }
    /// `POST /v1/moderations`
    Moderations {
        name: "moderations",
        path: "/v1/moderations",
        summary: "classification of harmful texts and images",
        default_model: Some("omni-moderation-latest"),
        billed_by: &[&[InputTokens], &[Requests]],
        conditions: &["time_utc", "input_tokens_above"],
        litellm_mode: Some("moderation"),
        model_names: &["*moderation*"];
        ..JSON
    }
    /// `POST /v1/images/generations`
    ImageGeneration {
        name: "image_generation",
        path: "/v1/images/generations",
        summary: "images from a text",
        // Until the body shows whose client it is: this shape has OpenAI's in it.
        error_shape: ErrorShape::Dashscope,
        playground: Some("image"),
        litellm_mode: Some("image_generation"),
        model_names: &[
            "*dall-e*", "*gpt-image*", "*imagen-*", "*titan-image*", "*nova-canvas*", "*stability.*",
        ],
        guess_rank: 1;
        ..IMAGE
    }
    /// `POST /v1/images/edits`
    ImageEdit {
        name: "image_edit",
        path: "/v1/images/edits",
        summary: "changed images, from images and a text",
        body: BodyKind::Form,
        limits: &EDIT_LIMITS,
        litellm_mode: Some("image_edit");
        ..IMAGE
    }
    /// `POST /v1/videos/generations`
    Video {
        name: "video",
        path: "/v1/videos/generations",
        summary: "videos, as tasks",
        billed_by: &[&[Seconds], &[OutputTokens]],
        limits: &[
            "context_tokens_max", "output_tokens_max", "reference_images_min", "reference_images_max",
            "resolutions", "seconds_min", "seconds_max", "minus_one",
        ],
        limits_required: &["seconds_max"],
        conditions: &["time_utc", "resolution", "audio", "draft", "video_input"],
        passes_nested_fields: true,
        is_task: true,
        model_missing_code: Some("InvalidParameter.MissingRequired"),
        playground: Some("video"),
        litellm_mode: Some("video_generation");
        ..JSON
    }
    /// `POST /v1/audio/speech`
    Speech {
        name: "speech",
        path: "/v1/audio/speech",
        summary: "speech from a text",
        billed_by: &[&[Characters]],
        billed_beside: &[Requests],
        limits: &["characters_max", "audio_formats", "instructions"],
        playground: Some("speech"),
        model_mismatch_code: Some("endpoint_model_mismatch"),
        litellm_mode: Some("audio_speech"),
        model_names: &["tts-*", "*-tts"],
        guess_rank: 1;
        ..JSON
    }
    /// `POST /v1/audio/transcriptions`
    Transcription {
        name: "transcription",
        path: "/v1/audio/transcriptions",
        summary: "text from speech",
        litellm_mode: Some("audio_transcription"),
        model_names: &["*whisper*", "*transcribe*"];
        ..AUDIO_TO_TEXT
    }
    /// `POST /v1/audio/translations`: English text from audio in other languages. The name is not
    /// `translation`, which means the translation of requests between dialects.
    AudioTranslation {
        name: "audio_translation",
        path: "/v1/audio/translations",
        summary: "English text from speech in other languages";
        ..AUDIO_TO_TEXT
    }
}
