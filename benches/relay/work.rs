//! The requests that are measured, and how the upstream answers them.

use crate::body;

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
}

/// What tollgate calls what is asked for, and how it looks on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Chat,
    Messages,
}

/// How many pieces of content a stream has.
const STREAM_CHUNKS: u32 = 100;
/// The body of a large chat.
const LARGE_BYTES: usize = 4 << 20;

impl Work {
    pub(crate) const ALL: [Self; 5] =
        [Self::Instant, Self::Late, Self::Stream, Self::MessageStream, Self::Large];

    pub(crate) fn operation(self) -> Operation {
        match self {
            Self::Instant | Self::Late | Self::Stream | Self::Large => Operation::Chat,
            Self::MessageStream => Operation::Messages,
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
        }
    }

    /// The start of the upstream's paths, which tells the simulator what to do. It answers blindly
    /// unless it is told otherwise.
    fn settings(self) -> String {
        match self {
            Self::Instant | Self::Large => String::new(),
            Self::Late => "/sim:delay-ms=20".to_owned(),
            Self::Stream | Self::MessageStream => {
                format!("/sim:blind=off;chunks={STREAM_CHUNKS};interval-ms=20")
            }
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
        }
    }

    /// What one request moves, in MB.
    pub(crate) fn payload_mb(self) -> f64 {
        self.body().len() as f64 / 1e6
    }
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
        }
    }

    /// The protocol of its upstream.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Self::Messages => "anthropic",
            Self::Chat => "openai",
        }
    }

    /// The customers' path.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
        }
    }

    /// As much of the path as belongs to the upstream's base URL.
    fn version_path(self) -> &'static str {
        match self {
            Self::Messages => "",
            Self::Chat => "/v1",
        }
    }

    /// How a stream of it ends that has not broken off.
    pub(crate) fn stream_end(self) -> &'static [u8] {
        match self {
            Self::Messages => b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            Self::Chat => b"data: [DONE]\n\n",
        }
    }
}
