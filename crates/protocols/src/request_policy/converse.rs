//! Allowlist of requests to Amazon Bedrock's Converse API. No customer speaks it, so every body is the
//! gateway's own: server tools, tiers and guardrails with prices of their own are never requested.

use super::Field::Plain;
use super::{Allowlist, Field, Key, Kind, MediaShape, ObjectTable, Size};

pub(in super::super) static CONVERSE: Allowlist = Allowlist::of_fields(&[
    ("model", Plain),
    ("messages", Field::Items(&TURNS)),
    ("system", Field::Items(&BLOCKS)),
    ("toolConfig", Plain),
    ("inferenceConfig", Plain),
    ("outputConfig", Plain),
    ("additionalModelRequestFields", Plain),
]);

/// Untyped objects, which Converse distinguishes by their only key.
const UNTYPED: &[Kind] = &[Kind { name: "", size: Size::Bytes(&[]) }];

static TURNS: ObjectTable = ObjectTable {
    what: "a message",
    keys: &[("role", Key::Plain), ("content", Key::Items(&BLOCKS))],
    kinds: UNTYPED,
};

static BLOCKS: ObjectTable = ObjectTable {
    what: "content",
    keys: &[
        ("text", Key::Plain),
        ("toolUse", Key::Plain),
        ("toolResult", Key::Items(&RESULTS)),
        ("reasoningContent", Key::Opaque),
        ("cachePoint", Key::Plain),
        ("image", Key::Medium(MediaShape::ConverseImage)),
        ("document", Key::Media),
    ],
    kinds: UNTYPED,
};

static RESULTS: ObjectTable = ObjectTable {
    what: "a tool's result",
    keys: &[("toolUseId", Key::Plain), ("content", Key::Items(&BLOCKS)), ("status", Key::Plain)],
    kinds: UNTYPED,
};
