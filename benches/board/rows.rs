//! The rows of the table with their bars.

use std::fmt;

use crate::config::BODY_MEMORY_MIB;

/// A line of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) decimals: usize,
    pub(crate) bar: Bar,
    /// True if the next line of the table is what is left of this one without the direct way.
    pub(crate) added: Option<Bar>,
}

/// The reference of tollgate's figure.
#[derive(Clone, Copy)]
pub(crate) enum Bar {
    None,
    /// At most this many times the floor's.
    FloorMax(f64),
    /// At least this many times the floor's.
    FloorMin(f64),
    /// At most so much more than the floor's.
    FloorAnd(f64),
    /// At most so much more than the floor's and one flush, in ms.
    FlushAnd(f64),
    /// At most this many times the buffered floor's.
    BufferedMax(f64),
    /// At least this many times the first peer's.
    PeerMin(f64),
    /// At most this.
    Max(f64),
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::FloorMax(ratio) => write!(f, "≤ {ratio} × floor"),
            Self::FloorMin(ratio) => write!(f, "≥ {ratio} × floor"),
            Self::FloorAnd(more) => write!(f, "≤ floor + {more}"),
            Self::FlushAnd(more) => write!(f, "≤ floor + flush + {more}"),
            Self::BufferedMax(ratio) => write!(f, "≤ {ratio} × buffered"),
            Self::PeerMin(ratio) => write!(f, "≥ {ratio} × peer"),
            Self::Max(max) => write!(f, "≤ {max:.0$}", usize::from(max.fract() != 0.0) * 2),
        }
    }
}

impl Row {
    const fn new(name: &'static str, decimals: usize, bar: Bar) -> Self {
        Self { name, decimals, bar, added: None }
    }

    /// A row whose figure without the direct way has a bar of its own.
    const fn with_added(name: &'static str, bar: Bar, added: Bar) -> Self {
        Self { name, decimals: 3, bar, added: Some(added) }
    }
}

/// The peak that is allowed under edits: the budget for bodies, in whole MB.
const BODIES_RSS_MB_MAX: f64 = (BODY_MEMORY_MIB * 1024 * 1024 / 1_000_000) as f64;
/// A body and a quarter, in KB: the bodies are 110 KB, and 1 MiB more with a picture.
const AGENT_KB_MAX: f64 = 137.5;
const SCREENSHOT_KB_MAX: f64 = 1448.0;

/// Rows in the order of the table; each is a `static` of its own for whoever measures it.
macro_rules! rows {
    ($($key:ident = $row:expr;)*) => {
        $(pub(crate) static $key: Row = $row;)*
        pub(crate) static ALL: &[&Row] = &[$(&$key),*];
    };
}

rows! {
    CPU_64 = Row::new("CPU per 1 KiB chat, 64 connections, ms", 4, Bar::FloorMax(1.2));
    RATE_1 = Row::new("requests/s, 1 connection", 0, Bar::PeerMin(0.5));
    RATE_4 = Row::new("requests/s, 4 connections", 0, Bar::PeerMin(0.8));
    RATE_16 = Row::new("requests/s, 16 connections", 0, Bar::PeerMin(1.0));
    RATE_64 = Row::new("requests/s, 64 connections", 0, Bar::PeerMin(1.0));
    RATE_256 = Row::new("requests/s, 256 connections", 0, Bar::PeerMin(1.0));
    CPU_PACED = Row::new("CPU per request at 200/s, ms", 3, Bar::Max(0.40));
    LATE_P50 = Row::with_added("p50 at 200/s, upstream 20 ms, ms", Bar::None, Bar::Max(0.10));
    LATE_P99 = Row::with_added("p99 at 200/s, upstream 20 ms, ms", Bar::None, Bar::Max(1.0));
    INSTANT_P50 =
        Row::with_added("p50 at 200/s, instant upstream, ms", Bar::FlushAnd(0.05), Bar::None);
    INSTANT_P99 = Row::with_added("p99 at 200/s, instant upstream, ms", Bar::None, Bar::None);
    FLUSH = Row::new("one flush of 512 bytes, ms", 3, Bar::None);
    KIB_128_CPU = Row::new("CPU per 128 KiB chat, 16 connections, ms", 3, Bar::BufferedMax(1.2));
    KIB_128_RATE = Row::new("  requests/s", 0, Bar::None);
    MIB_1_CPU = Row::new("CPU per 1 MiB chat, 8 connections, ms", 3, Bar::BufferedMax(1.2));
    MIB_1_RATE = Row::new("  the same, requests/s", 0, Bar::None);
    AGENT_CHAT_CPU = Row::new("CPU per agent's chat, 16 connections, ms", 3, Bar::BufferedMax(1.2));
    AGENT_CHAT_RATE = Row::new("  of agents' chats, requests/s", 0, Bar::None);
    AGENT_MESSAGES_CPU = Row::new("CPU per agent's messages, ms", 3, Bar::BufferedMax(1.2));
    AGENT_RESPONSES_CPU = Row::new("CPU per agent's responses, ms", 3, Bar::BufferedMax(1.2));
    MESSAGES_OVER_CHAT_CPU = Row::new("CPU per agent's messages over chat, ms", 3, Bar::None);
    RESPONSES_OVER_CHAT_CPU = Row::new("CPU per agent's responses over chat, ms", 3, Bar::None);
    CHAT_OVER_MESSAGES_CPU = Row::new("CPU per agent's chat over messages, ms", 3, Bar::None);
    SCREENSHOT_CHAT_CPU =
        Row::new("CPU per screenshot in chat, 8 connections, ms", 3, Bar::BufferedMax(1.2));
    SCREENSHOT_CHAT_RATE = Row::new("  of screenshots, requests/s", 0, Bar::None);
    SCREENSHOT_MESSAGES_CPU =
        Row::new("CPU per screenshot in messages, ms", 3, Bar::BufferedMax(1.2));
    SCREENSHOT_RESPONSES_CPU =
        Row::new("CPU per screenshot in responses, ms", 3, Bar::BufferedMax(1.2));
    AGENT_KB = Row::new("memory per waiting agent's chat, KB", 0, Bar::Max(AGENT_KB_MAX));
    SCREENSHOT_KB =
        Row::new("memory per waiting screenshot, KB", 0, Bar::Max(SCREENSHOT_KB_MAX));
    CHUNKS_CPU = Row::new("CPU per 1,000 SSE chunks, s", 4, Bar::FloorMax(1.0));
    MESSAGE_CHUNKS_CPU =
        Row::new("CPU per 1,000 SSE chunks of messages, s", 4, Bar::FloorMax(1.0));
    MIB_4_RATE = Row::new("4 MiB bodies, 8 connections, MB/s", 0, Bar::FloorMin(0.8));
    MIB_4_CPU = Row::new("CPU per 4 MiB request, ms", 2, Bar::None);
    MIB_4_PEAK = Row::new("peak RSS under 4 MiB bodies, MB", 1, Bar::Max(80.0));
    IMAGE_RATE = Row::new("1 MB image answers, 16 connections, MB/s", 0, Bar::FloorMin(0.65));
    IMAGE_CPU = Row::new("CPU per 1 MB image answer, ms", 2, Bar::None);
    EDIT_RATE = Row::new("28 MB edits, 2 connections, MB/s", 0, Bar::FloorMin(0.65));
    EDIT_PEAK = Row::new("peak RSS under 28 MB edits, MB", 1, Bar::Max(BODIES_RSS_MB_MAX));
    STREAMS_RSS = Row::new("RSS at 200 streams, MB", 1, Bar::Max(48.0));
    LOADED_RSS = Row::new("RSS after small chats, MB", 1, Bar::Max(48.0));
    LATER_STREAMS_RSS =
        Row::new("RSS at 200 streams after 4 MiB bodies, MB", 1, Bar::FloorMax(1.0));
    START = Row::new("start to first 200, ms", 1, Bar::Max(60.0));
    IDLE_RSS = Row::new("idle RSS, MB", 1, Bar::FloorAnd(3.0));
    CHAT_INSTRUCTIONS = Row::new("thousand instructions per 1 KiB chat", 0, Bar::None);
    AGENT_INSTRUCTIONS = Row::new("thousand instructions per agent's chat", 0, Bar::None);
    SCREENSHOT_INSTRUCTIONS =
        Row::new("thousand instructions per screenshot in chat", 0, Bar::None);
    EMBEDDINGS_INSTRUCTIONS =
        Row::new("thousand instructions per 2,048 embeddings", 0, Bar::None);
}
