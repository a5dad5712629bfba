//! How many tokens a prompt has: the same for a paid request and for a count of it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::value::RawValue;

use super::answer::Answer;
use super::behaviour::{Behaviour, CountSettings};

/// How many bytes of a prompt make a token, about.
const BYTES_PER_TOKEN: usize = 4;
/// The fields of requests that are a part of the prompt, in any dialect.
const PROMPT_FIELDS: [&str; 12] = [
    "messages",
    "system",
    "input",
    "instructions",
    "contents",
    "systemInstruction",
    "system_instruction",
    "tools",
    "text",
    "output_config",
    "generationConfig",
    "generation_config",
];

/// The tokens of the prompt of a request with this `body`. Settings are none of them.
pub(super) fn tokens(body: &[u8]) -> u64 {
    let fields: BTreeMap<&str, &RawValue> = serde_json::from_slice(body).unwrap_or_default();
    let bytes = |field: &&str| fields.get(*field).map_or(0, |value| value.get().len());
    let bytes: usize = PROMPT_FIELDS.iter().map(bytes).sum();
    1 + (bytes / BYTES_PER_TOKEN) as u64
}
