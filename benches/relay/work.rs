//! The requests that are measured, and how the upstream answers them.

use crate::rig::body;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A small chat that the upstream answers at once.
    Instant,
    /// The same, answered after 20 ms.
    Late,
    /// The same, streamed.
    Stream,
    /// The same as a message in Anthropic's protocol, streamed.
    MessageStream,
    /// A chat of 4 MiB, answered at once.
    Large,
    /// A form of 28 MiB with an image to edit, answered at once.
    Edit,
    /// A small prompt that is answered at once with an image of 1 MB in base64.
    Image,
}

/// Names of an operation: tollgate's own, and the path and body on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Chat,
    Messages,
    ImageEdit,
    ImageGeneration,
}

/// Pieces of content in a stream.
const STREAM_CHUNKS: u32 = 100;
/// The body of a large chat.
const LARGE_BYTES: usize = 4 << 20;
/// The body of an edit, with everything around the image.
const EDIT_BYTES: usize = 28 << 20;
/// The characters of base64 of an image in an answer.
const IMAGE_BYTES: u32 = 1_000_000;

impl Work {
    pub(crate) const ALL: [Self; 7] = [
        Self::Instant,
        Self::Late,
        Self::Stream,
        Self::MessageStream,
        Self::Large,
        Self::Edit,
        Self::Image,
    ];

    pub(crate) fn operation(self) -> Operation {
        match self {
            Self::Instant | Self::Late | Self::Stream | Self::Large => Operation::Chat,
            Self::MessageStream => Operation::Messages,
            Self::Edit => Operation::ImageEdit,
            Self::Image => Operation::ImageGeneration,
        }
    }

    /// The model that is asked for: each has an upstream address of its own, where it has the same
    /// name, so that no byte of a body has to change.
    pub(crate) fn model(self) -> &'static str {
        match self {
            Self::Instant => "chat-instant",
            Self::Late => "chat-late",
            Self::Stream => "chat-stream",
            Self::MessageStream => "message-stream",
            Self::Large => "chat-large",
            Self::Edit => "image-edit",
            Self::Image => "image-generation",
        }
    }

    /// The start of the upstream's paths, which tells the simulator what to do. It answers blindly
    /// unless it is told otherwise.
    fn settings(self) -> String {
        match self {
            Self::Instant | Self::Large | Self::Edit => String::new(),
            Self::Late => "/sim:delay-ms=20".to_owned(),
            Self::Stream | Self::MessageStream => {
                format!("/sim:blind=off;chunks={STREAM_CHUNKS};interval-ms=20")
            }
            Self::Image => format!("/sim:image-bytes={IMAGE_BYTES}"),
        }
    }

    /// The path of the upstream's base URL.
    pub(crate) fn base_path(self) -> String {
        self.settings() + self.operation().version_path()
    }

    /// The path at the upstream.
    pub(crate) fn upstream_path(self) -> String {
        self.settings() + self.operation().path()
    }

    pub(crate) fn body(self) -> Vec<u8> {
        let model = self.model();
        match self {
            Self::Instant | Self::Late => body::chat(model, false, 0),
            Self::Stream => body::chat(model, true, 0),
            Self::MessageStream => body::message(model),
            Self::Large => body::chat(model, false, LARGE_BYTES),
            Self::Edit => body::edit(model, EDIT_BYTES),
            Self::Image => body::prompt(model),
        }
    }

    /// Bytes that one request moves, in MB: the image of its answer, or else its body.
    pub(crate) fn payload_mb(self) -> f64 {
        let bytes = match self {
            Self::Image => f64::from(IMAGE_BYTES),
            _ => self.body().len() as f64,
        };
        bytes / 1e6
    }
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
            Self::ImageEdit => "image_edit",
            Self::ImageGeneration => "image_generation",
        }
    }

    /// The protocol of its upstream.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Self::Messages => "anthropic",
            Self::Chat | Self::ImageEdit | Self::ImageGeneration => "openai",
        }
    }

    /// The customers' path.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
            Self::ImageEdit => "/v1/images/edits",
            Self::ImageGeneration => "/v1/images/generations",
        }
    }

    /// As much of the path as belongs to the upstream's base URL.
    fn version_path(self) -> &'static str {
        match self {
            Self::Messages => "",
            Self::Chat | Self::ImageEdit | Self::ImageGeneration => "/v1",
        }
    }

    pub(crate) fn content_type(self) -> String {
        match self {
            Self::Chat | Self::Messages | Self::ImageGeneration => "application/json".to_owned(),
            Self::ImageEdit => body::form_type(),
        }
    }

    /// The last bytes of a complete stream.
    pub(crate) fn stream_end(self) -> &'static [u8] {
        match self {
            Self::Messages => b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            Self::Chat | Self::ImageEdit | Self::ImageGeneration => b"data: [DONE]\n\n",
        }
    }
}
