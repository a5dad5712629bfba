//! The requests whose cost is counted.

use crate::rig::body;
use crate::rig::counters::Load;
use crate::rig::dialect::{Dialect, Shape};

/// A request whose cost is counted.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) name: &'static str,
    /// The customer's dialect.
    pub(crate) customers: Dialect,
    /// The upstream's dialect; another one means that the request is translated.
    pub(crate) upstreams: Dialect,
    content: Content,
    pub(crate) is_stream: bool,
    pub(crate) load: Load,
    /// Number of requests that are counted.
    pub(crate) requests: usize,
}

/// What a body consists of.
#[derive(Clone, Copy)]
enum Content {
    /// A chat of so many bytes.
    Chat(usize),
    /// A coding agent's request.
    Agent,
}

/// Connections of agents, and the requests of which each is counted.
const AGENT_LOAD: Load = Load::Closed { connections: 16 };
const AGENT_REQUESTS: usize = 320;
/// Agents' requests that are held to bounds.
const AGENT_REQUESTS_CHECKED: usize = 8;

impl Work {
    const fn chat(name: &'static str, bytes: usize, load: Load, requests: usize) -> Self {
        let (customers, upstreams) = (Dialect::Chat, Dialect::Chat);
        let content = Content::Chat(bytes);
        Self { name, customers, upstreams, content, is_stream: false, load, requests }
    }

    const fn agent(name: &'static str, customers: Dialect, upstreams: Dialect) -> Self {
        let (content, load, requests) = (Content::Agent, AGENT_LOAD, AGENT_REQUESTS);
        Self { name, customers, upstreams, content, is_stream: false, load, requests }
    }

    const fn streamed(self) -> Self {
        Self { is_stream: true, ..self }
    }

    /// A small part of it, for what is only held to bounds.
    pub(crate) fn shortened(&self) -> Self {
        if let Content::Agent = self.content {
            // Without optimization and below valgrind one takes seconds, and each connection warms up with ten.
            let load = Load::Closed { connections: 1 };
            return Self { load, requests: AGENT_REQUESTS_CHECKED, ..*self };
        }
        let load = match self.load {
            Load::Closed { .. } => Load::Closed { connections: 16 },
            paced @ Load::Paced { .. } => paced,
        };
        Self { load, requests: self.requests / 10, ..*self }
    }

    /// The model at the upstream of its dialect that answers whole or as a stream.
    pub(crate) fn model(&self) -> &'static str {
        model(self.upstreams, self.is_stream)
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        match self.content {
            Content::Chat(bytes) => body::chat(self.model(), self.is_stream, bytes),
            Content::Agent => self.customers.body(Shape::Agent, self.model(), self.is_stream),
        }
    }
}

/// The name of the model at an upstream.
pub(crate) fn model(upstreams: Dialect, is_stream: bool) -> &'static str {
    match (upstreams, is_stream) {
        (Dialect::Messages, false) => "messages",
        (Dialect::Messages, true) => "messages-streamed",
        (Dialect::Responses, false) => "responses",
        (Dialect::Responses, true) => "responses-streamed",
        (_, false) => "chat",
        (_, true) => "chat-streamed",
    }
}

/// The requests in the order of the tables. An agent's request that is streamed is answered with 100 events.
pub(crate) const ALL: [Work; 17] = [
    Work::chat("1 KiB", 1 << 10, Load::Closed { connections: 64 }, 6_400),
    Work::chat("1 KiB at 200/s", 1 << 10, Load::Paced { per_second: 200 }, 1_000),
    Work::chat("1 KiB, alone", 1 << 10, Load::Closed { connections: 1 }, 1_500),
    Work::chat("16 KiB", 16 << 10, Load::Closed { connections: 64 }, 3_200),
    Work::chat("100 events", 1 << 10, Load::Closed { connections: 16 }, 320).streamed(),
    Work::agent("agent, chat", Dialect::Chat, Dialect::Chat),
    Work::agent("agent, messages", Dialect::Messages, Dialect::Messages),
    Work::agent("agent, responses", Dialect::Responses, Dialect::Responses),
    Work::agent("agent, messages over chat", Dialect::Messages, Dialect::Chat),
    Work::agent("agent, responses over chat", Dialect::Responses, Dialect::Chat),
    Work::agent("agent, chat over messages", Dialect::Chat, Dialect::Messages),
    Work::agent("agent, chat, streamed", Dialect::Chat, Dialect::Chat).streamed(),
    Work::agent("agent, messages, streamed", Dialect::Messages, Dialect::Messages).streamed(),
    Work::agent("agent, responses, streamed", Dialect::Responses, Dialect::Responses).streamed(),
    Work::agent("agent, messages over chat, streamed", Dialect::Messages, Dialect::Chat).streamed(),
    Work::agent("agent, responses over chat, streamed", Dialect::Responses, Dialect::Chat)
        .streamed(),
    Work::agent("agent, chat over messages, streamed", Dialect::Chat, Dialect::Messages).streamed(),
];
