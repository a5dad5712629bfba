//! Operations that customers can request.

use std::fmt;

/// An operation that customers can request: one per kind of endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`: goes with [`Operation::Messages`], and has no name in YAML.
    CountTokens,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1beta/models/{model}:generateContent` and `:streamGenerateContent`
    GenerateContent,
    /// `POST /v1beta/models/{model}:countTokens`: goes with [`Operation::GenerateContent`], and has no
    /// name in YAML.
    CountContentTokens,
    /// `POST /v1/responses/compact`: goes with [`Operation::Responses`], and has no name in YAML.
    Compact,
    /// `POST /v1/responses/input_tokens`: goes with [`Operation::Responses`], and has no name in YAML.
    InputTokens,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/rerank`
    Rerank,
    /// `POST /v1/moderations`
    Moderations,
    /// `POST /v1/images/generations`
    ImageGeneration,
    /// `POST /v1/images/edits`
    ImageEdit,
    /// `POST /v1/videos/generations`
    Video,
    /// `POST /v1/audio/speech`
    Speech,
    /// `POST /v1/audio/transcriptions`
    Transcription,
    /// `POST /v1/audio/translations`: a text in English of what is said in another language. Its name is
    /// not `translation`, which is what becomes of requests between dialects.
    AudioTranslation,
}

impl Operation {
    /// Every operation that YAML can name, in the order in which documents list them.
    pub const ALL: [Self; 13] = [
        Self::Chat,
        Self::Messages,
        Self::Responses,
        Self::GenerateContent,
        Self::Embeddings,
        Self::Rerank,
        Self::Moderations,
        Self::ImageGeneration,
        Self::ImageEdit,
        Self::Video,
        Self::Speech,
        Self::Transcription,
        Self::AudioTranslation,
    ];

    /// The operation that a model must have to be asked for this one.
    #[must_use]
    pub fn granted_by(self) -> Self {
        match self {
            Self::CountTokens => Self::Messages,
            Self::CountContentTokens => Self::GenerateContent,
            Self::Compact | Self::InputTokens => Self::Responses,
            other => other,
        }
    }

    /// The model that is meant by a request that names none; `None` where one must be named.
    #[must_use]
    pub fn default_model(self) -> Option<&'static str> {
        (self == Self::Moderations).then_some("omni-moderation-latest")
    }

    /// True if its requests are forms; the others are JSON.
    #[must_use]
    pub fn takes_form(self) -> bool {
        matches!(self, Self::ImageEdit | Self::Transcription | Self::AudioTranslation)
    }

    /// True if it costs anything.
    #[must_use]
    pub fn is_billed(self) -> bool {
        !matches!(self, Self::CountTokens | Self::CountContentTokens | Self::InputTokens)
    }

    /// True if the path of its requests names the model and the form of the answer.
    #[must_use]
    pub fn names_model_in_path(self) -> bool {
        matches!(self, Self::GenerateContent | Self::CountContentTokens)
    }

    /// The word used in YAML, logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
            Self::Responses => "responses",
            Self::GenerateContent => "generate_content",
            Self::CountContentTokens => "count_content_tokens",
            Self::Compact => "compact",
            Self::InputTokens => "input_tokens",
            Self::Embeddings => "embeddings",
            Self::Rerank => "rerank",
            Self::Moderations => "moderations",
            Self::ImageGeneration => "image_generation",
            Self::ImageEdit => "image_edit",
            Self::Video => "video",
            Self::Speech => "speech",
            Self::Transcription => "transcription",
            Self::AudioTranslation => "audio_translation",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
