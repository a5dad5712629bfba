//! Allowlist of embeddings, over upstreams with OpenAI's protocol and over Voyage. The input is read where it
//! is measured.

use super::Allowlist;
use super::Field::Plain;

pub(in super::super) static OPENAI_EMBEDDINGS: Allowlist = Allowlist {
    fields: &[
        ("input", Plain),
        ("model", Plain),
        ("encoding_format", Plain),
        ("dimensions", Plain),
        ("user", Plain),
        ("input_type", Plain),
    ],
    tools: &[],
    server_tools: &[],
    tool_keys: &[],
};

pub(in super::super) static VOYAGE_EMBEDDINGS: Allowlist = Allowlist {
    fields: &[
        ("input", Plain),
        ("model", Plain),
        ("encoding_format", Plain),
        ("dimensions", Plain),
        ("input_type", Plain),
        ("truncation", Plain),
        ("output_dimension", Plain),
        ("output_dtype", Plain),
        ("user", Plain),
    ],
    tools: &[],
    server_tools: &[],
    tool_keys: &[],
};
