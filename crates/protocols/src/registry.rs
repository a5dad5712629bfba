//! The codecs of this build: one line each.

use super::allowed_keys::AllowedKey;
use super::codec::Codec;
use super::dialect::Dialect;
use super::operation::Operation;
use super::task::TaskCodec;
use super::{
    anthropic_messages, ark_video, dashscope_image, dashscope_speech, dashscope_video, embeddings,
    gemini_content, moderations, openai_chat, openai_compact, openai_image_edits, openai_images,
    openai_input_tokens, openai_responses, openai_speech, rerank, transcription, xai_video,
};

/// All codecs of this build that clients can call directly. Requests for other upstream dialects are
/// translated by [`super::bridge`].
pub static REGISTRY: &[&dyn Codec] = &[
    &openai_chat::OpenaiChat,
    &anthropic_messages::AnthropicMessages,
    &anthropic_messages::AnthropicCountTokens,
    &openai_responses::OpenaiResponses,
    &gemini_content::GeminiContent,
    &gemini_content::GeminiCountTokens,
    &openai_compact::OpenaiCompact,
    &openai_input_tokens::OpenaiInputTokens,
    &embeddings::OpenaiEmbeddings,
    &embeddings::VoyageEmbeddings,
    &rerank::OpenaiRerank,
    &rerank::VoyageRerank,
    &moderations::OpenaiModerations,
    &openai_images::OpenaiImages,
    &openai_images::ArkImages,
    &openai_image_edits::OpenaiImageEdits,
    &dashscope_image::DashscopeImage,
    &openai_speech::OpenaiSpeech,
    &dashscope_speech::DashscopeSpeech,
    &transcription::OpenaiTranscription,
    &transcription::OpenaiAudioTranslation,
    &dashscope_video::DashscopeVideo,
    &ark_video::ArkVideo,
    &xai_video::XaiVideo,
];

/// Every task codec of this build.
pub static TASK_REGISTRY: &[&dyn TaskCodec] =
    &[&dashscope_video::DashscopeTasks, &ark_video::ArkTasks, &xai_video::XaiTasks];

/// The task codec for upstreams that speak `dialect`.
#[must_use]
pub fn task_codec(dialect: Dialect) -> Option<&'static dyn TaskCodec> {
    TASK_REGISTRY.iter().find(|codec| codec.dialect() == dialect).copied()
}

/// The codec for `operation` over an upstream that speaks `dialect`, if this build has one.
#[must_use]
pub fn codec(operation: Operation, dialect: Dialect) -> Option<&'static dyn Codec> {
    let fits =
        |codec: &&&dyn Codec| codec.operation() == operation && codec.dialects().contains(&dialect);
    REGISTRY.iter().find(fits).copied()
}

/// The keys that requests of `operation` may have over its provider's own dialect, which the first of its codecs
/// speaks; empty for a codec without a table of them.
#[must_use]
pub fn allowed_keys(operation: Operation) -> Vec<AllowedKey> {
    let own = REGISTRY.iter().find(|codec| codec.operation() == operation);
    own.map(|codec| codec.allowed_keys()).unwrap_or_default()
}

/// True if this build can serve `operation` over an upstream that speaks `dialect`.
#[must_use]
pub fn is_served(operation: Operation, dialect: Dialect) -> bool {
    codec(operation, dialect).is_some()
}
