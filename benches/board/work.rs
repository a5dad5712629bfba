//! The requests that are measured, and how the upstream answers them.

use crate::rig::body;
use crate::rig::dialect::{Dialect, Shape};

/// A kind of request.
pub(crate) struct Work {
    /// The requested model. Each work has one with an upstream address of its own, where it has the same name, so
    /// that no byte of a native body has to change.
    pub(crate) model: &'static str,
    /// The operation that customers ask for.
    pub(crate) customers: Operation,
    /// The operation of the upstream; another one means that the request is translated.
    pub(crate) upstreams: Operation,
    /// The start of the upstream's paths, which tells the simulator what to do. It answers blindly unless told
    /// otherwise.
    pub(crate) settings: &'static str,
    content: Content,
}

/// Names of an operation: tollgate's own, and the path and body on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Language(Dialect),
    Embeddings,
    ImageEdit,
    ImageGeneration,
}

/// What a body consists of.
#[derive(Clone, Copy)]
enum Content {
    /// A chat of about this many bytes, 600 at least.
    Chat(usize),
    /// The same small chat, streamed.
    StreamedChat,
    /// The same as a message in Anthropic's protocol, streamed.
    StreamedMessage,
    Agent(Shape),
    /// Texts whose vectors are requested.
    Embeddings(usize),
    Edit,
    Prompt,
}

/// Bytes of an edit, with everything around the image.
const EDIT_BYTES: usize = 28 << 20;
/// Characters of base64 of an image in an answer; `IMAGE` says the same to the simulator.
const IMAGE_BYTES: f64 = 1e6;
/// Streams of 100 pieces, one each 20 ms.
const STREAMED: &str = "/sim:blind=off;chunks=100;interval-ms=20";
/// An upstream that keeps all of a test's requests at one time.
const LATE_ANSWER: &str = "/sim:delay-ms=400";

const CHAT: Operation = Operation::Language(Dialect::Chat);
const MESSAGES: Operation = Operation::Language(Dialect::Messages);
const RESPONSES: Operation = Operation::Language(Dialect::Responses);
const AGENT: Content = Content::Agent(Shape::Agent);
const SCREENSHOT: Content = Content::Agent(Shape::Screenshot);

impl Work {
    const fn native(
        model: &'static str,
        operation: Operation,
        settings: &'static str,
        content: Content,
    ) -> Self {
        Self { model, customers: operation, upstreams: operation, settings, content }
    }

    const fn translated(model: &'static str, customers: Operation, upstreams: Operation) -> Self {
        Self { model, customers, upstreams, settings: "", content: AGENT }
    }
}

/// A small chat that the upstream answers at once.
pub(crate) static INSTANT: Work = Work::native("chat-instant", CHAT, "", Content::Chat(0));
/// The same, answered after 20 ms.
pub(crate) static LATE: Work =
    Work::native("chat-late", CHAT, "/sim:delay-ms=20", Content::Chat(0));
pub(crate) static STREAM: Work = Work::native("chat-stream", CHAT, STREAMED, Content::StreamedChat);
pub(crate) static MESSAGE_STREAM: Work =
    Work::native("message-stream", MESSAGES, STREAMED, Content::StreamedMessage);
pub(crate) static KIB_128: Work = Work::native("chat-128k", CHAT, "", Content::Chat(128 << 10));
pub(crate) static MIB_1: Work = Work::native("chat-1m", CHAT, "", Content::Chat(1 << 20));
pub(crate) static MIB_4: Work = Work::native("chat-4m", CHAT, "", Content::Chat(4 << 20));
pub(crate) static AGENT_CHAT: Work = Work::native("agent-chat", CHAT, "", AGENT);
pub(crate) static AGENT_MESSAGES: Work = Work::native("agent-messages", MESSAGES, "", AGENT);
pub(crate) static AGENT_RESPONSES: Work = Work::native("agent-responses", RESPONSES, "", AGENT);
pub(crate) static SCREENSHOT_CHAT: Work = Work::native("screenshot-chat", CHAT, "", SCREENSHOT);
pub(crate) static SCREENSHOT_MESSAGES: Work =
    Work::native("screenshot-messages", MESSAGES, "", SCREENSHOT);
pub(crate) static SCREENSHOT_RESPONSES: Work =
    Work::native("screenshot-responses", RESPONSES, "", SCREENSHOT);
/// An agent's requests that wait for their answers together.
pub(crate) static AGENT_LATE: Work = Work::native("agent-late", CHAT, LATE_ANSWER, AGENT);
pub(crate) static SCREENSHOT_LATE: Work =
    Work::native("screenshot-late", CHAT, LATE_ANSWER, SCREENSHOT);
pub(crate) static MESSAGES_OVER_CHAT: Work = Work::translated("messages-over-chat", MESSAGES, CHAT);
pub(crate) static RESPONSES_OVER_CHAT: Work =
    Work::translated("responses-over-chat", RESPONSES, CHAT);
pub(crate) static CHAT_OVER_MESSAGES: Work = Work::translated("chat-over-messages", CHAT, MESSAGES);
/// 2,048 vectors of 256 dimensions: an answer of 11 MB.
pub(crate) static EMBEDDINGS: Work = Work::native(
    "embeddings",
    Operation::Embeddings,
    "/sim:blind=off;dimensions=256",
    Content::Embeddings(2_048),
);
/// A form with an image to edit, answered at once.
pub(crate) static EDIT: Work = Work::native("image-edit", Operation::ImageEdit, "", Content::Edit);
/// A small prompt that is answered at once with an image of 1 MB in base64.
pub(crate) static IMAGE: Work = Work::native(
    "image-generation",
    Operation::ImageGeneration,
    "/sim:image-bytes=1000000",
    Content::Prompt,
);

pub(crate) static ALL: [&Work; 21] = [
    &INSTANT,
    &LATE,
    &STREAM,
    &MESSAGE_STREAM,
    &KIB_128,
    &MIB_1,
    &MIB_4,
    &AGENT_CHAT,
    &AGENT_MESSAGES,
    &AGENT_RESPONSES,
    &SCREENSHOT_CHAT,
    &SCREENSHOT_MESSAGES,
    &SCREENSHOT_RESPONSES,
    &AGENT_LATE,
    &SCREENSHOT_LATE,
    &MESSAGES_OVER_CHAT,
    &RESPONSES_OVER_CHAT,
    &CHAT_OVER_MESSAGES,
    &EMBEDDINGS,
    &EDIT,
    &IMAGE,
];

impl Work {
    /// The path of the upstream's base URL in tollgate's configuration.
    pub(crate) fn base_path(&self) -> String {
        self.settings.to_owned() + self.upstreams.version_path()
    }

    /// The path at the upstream of a request that nobody translates.
    pub(crate) fn upstream_path(&self) -> String {
        self.settings.to_owned() + self.customers.path()
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        match (self.content, self.customers) {
            (Content::Chat(bytes), _) => body::chat(self.model, false, bytes),
            (Content::StreamedChat, _) => body::chat(self.model, true, 0),
            (Content::StreamedMessage, _) => body::message(self.model),
            (Content::Agent(shape), Operation::Language(dialect)) => {
                dialect.body(shape, self.model, false)
            }
            (Content::Embeddings(texts), _) => body::embeddings(self.model, texts),
            (Content::Edit, _) => body::edit(self.model, EDIT_BYTES),
            (Content::Prompt | Content::Agent(_), _) => body::prompt(self.model),
        }
    }

    /// Bytes that one request moves, in MB: the image of its answer, or else its body.
    pub(crate) fn payload_mb(&self) -> f64 {
        match self.content {
            Content::Prompt => IMAGE_BYTES / 1e6,
            _ => self.body().len() as f64 / 1e6,
        }
    }
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Language(dialect) => dialect.operation(),
            Self::Embeddings => "embeddings",
            Self::ImageEdit => "image_edit",
            Self::ImageGeneration => "image_generation",
        }
    }

    /// The protocol of its upstream.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Self::Language(dialect) => dialect.protocol(),
            Self::Embeddings | Self::ImageEdit | Self::ImageGeneration => "openai",
        }
    }

    /// The customers' path.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Language(Dialect::Messages) => "/v1/messages",
            Self::Language(Dialect::Responses) => "/v1/responses",
            Self::Language(_) => "/v1/chat/completions",
            Self::Embeddings => "/v1/embeddings",
            Self::ImageEdit => "/v1/images/edits",
            Self::ImageGeneration => "/v1/images/generations",
        }
    }

    /// As much of the path as belongs to the upstream's base URL.
    fn version_path(self) -> &'static str {
        match self {
            Self::Language(dialect) => dialect.version_path(),
            Self::Embeddings | Self::ImageEdit | Self::ImageGeneration => "/v1",
        }
    }

    pub(crate) fn content_type(self) -> String {
        match self {
            Self::ImageEdit => body::form_type(),
            _ => "application/json".to_owned(),
        }
    }

    /// The last bytes of a complete stream.
    pub(crate) fn stream_end(self) -> &'static [u8] {
        match self {
            Self::Language(dialect) => dialect.stream_end(),
            _ => b"",
        }
    }
}
