//! Allowlist of rankings, over upstreams with the API that Jina, vLLM, SiliconFlow and Cohere share, and over
//! Voyage. Query and documents are read where they are measured.

use super::Allowlist;
use super::Field::Plain;

pub(in super::super) static OPENAI_RERANK: Allowlist = Allowlist {
    fields: &[
        ("query", Plain),
        ("documents", Plain),
        ("model", Plain),
        ("top_n", Plain),
        ("return_documents", Plain),
        ("max_tokens_per_doc", Plain),
        ("instruction", Plain),
    ],
    tools: &[],
    server_tools: &[],
    tool_keys: &[],
};

pub(in super::super) static VOYAGE_RERANK: Allowlist = Allowlist {
    fields: &[
        ("query", Plain),
        ("documents", Plain),
        ("model", Plain),
        ("top_n", Plain),
        ("return_documents", Plain),
        ("truncation", Plain),
    ],
    tools: &[],
    server_tools: &[],
    tool_keys: &[],
};
