//! The requests that are measured, and how the upstream answers them.

use serde_json::json;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A small chat that the upstream answers at once.
    Instant,
    /// The same, answered after 20 ms.
    Late,
    /// The same, streamed.
    Stream,
    /// A chat of 4 MiB, answered at once.
    Large,
}

/// How many pieces of content a stream has.
const STREAM_CHUNKS: u32 = 100;
/// The body of a large request.
const LARGE_BYTES: usize = 4 << 20;

impl Work {
    pub(crate) const ALL: [Self; 4] = [Self::Instant, Self::Late, Self::Stream, Self::Large];

    /// The model that is asked for: each has an upstream address of its own.
    pub(crate) fn model(self) -> &'static str {
        match self {
            Self::Instant => "chat-instant",
            Self::Late => "chat-late",
            Self::Stream => "chat-stream",
            Self::Large => "chat-large",
        }
    }

    /// The path of the upstream's base URL, which tells the simulator what to do. It answers blindly
    /// unless it is told otherwise.
    pub(crate) fn base_path(self) -> String {
        match self {
            Self::Instant | Self::Large => "/v1".to_owned(),
            Self::Late => "/sim:delay-ms=20/v1".to_owned(),
            Self::Stream => {
                format!("/sim:blind=off;chunks={STREAM_CHUNKS};interval-ms=20/v1")
            }
        }
    }

    /// A chat of the size that applications send, about 600 bytes; a large one is padded.
    pub(crate) fn body(self) -> String {
        let mut question = "A train leaves Lyon at 9:14 and arrives in Paris at 11:08. Another \
            leaves at 9:44 and takes eleven minutes longer. Which one should I take if I have to be \
            at the Gare de l'Est, twenty-five minutes from the station by metro, at noon, and how \
            much time would be left there?"
            .to_owned();
        if self == Self::Large {
            while question.len() < LARGE_BYTES - 512 {
                let line = question.len();
                question += &format!(" Timetable entry {line}: every quarter of an hour.");
            }
        }
        let system = "You are a travel assistant. Answer in two sentences, without a greeting, \
            and say which assumption matters most.";
        json!({
            "model": self.model(),
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": question},
            ],
            "temperature": 0.2,
            "max_tokens": 256,
            "stream": self == Self::Stream,
        })
        .to_string()
    }
}
