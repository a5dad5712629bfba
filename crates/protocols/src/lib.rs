//! Pure codecs: bytes in, data out; no I/O and no clock.
//!
//! A [`Codec`] speaks one operation to upstreams of some dialects. It reads a request once into a
//! [`Call`], which knows the most that the request can use and the bytes to change for a target;
//! the call makes a [`Meter`] for each response, which relays it and counts what was used. A new
//! protocol is one file here and one line in [`REGISTRY`].
//!
//! The contract between codecs and the rest of the gateway is in `codec`, `meter`, `collect` and `task`.
//! `request_bounds` and `fields` read the fields that requests of several protocols share; `request_policy`
//! is the allowlist of a prompt's fields, tools and contents.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

// The contract, from the request to its answer.
mod operation;
mod dialect;
mod request;
mod codec;
mod request_bounds;
mod meter;
mod collect;
pub mod task;
mod registry;

// The codecs.
pub mod openai_chat;
pub mod anthropic_messages;
pub mod openai_responses;
pub mod gemini_content;
pub mod openai_compact;
pub mod openai_input_tokens;
pub mod bedrock_converse;
pub mod embeddings;
pub mod rerank;
pub mod moderations;
pub mod openai_images;
pub mod openai_image_edits;
pub mod dashscope_image;
pub mod openai_speech;
pub mod dashscope_speech;
pub mod transcription;
pub mod dashscope_video;
pub mod ark_video;
pub mod xai_video;
mod bridge;
pub mod codec_choice;

// Requests.
mod request_policy;
mod allowed_keys;
mod fields;
pub mod output_limit;
mod server_tools;
mod stored;
pub mod limits;
pub mod path_segment;
pub mod query;
pub mod beta;
pub mod azure;
mod dashscope;
mod video;
mod images;
pub mod plain;
pub mod public_url;
mod media_url;

// Answers.
mod metering;
mod counts;
mod disjoint;
mod base_resp;
pub mod refusal;

// Counting what a request can use.
pub mod counter;
pub mod estimate;
mod prompt_count;
pub mod media;
pub mod audio;
pub mod audio_length;

// Formats.
pub mod form;
pub mod json;
mod json_cursor;
mod typed_elements;
pub mod json_scan;
pub mod splice;
pub mod sse;
pub mod event_stream;

#[cfg(test)]
mod pieces;
#[cfg(test)]
mod spelling_tests;
#[cfg(test)]
mod counted_tests;
#[cfg(test)]
mod noted_tests;

pub use allowed_keys::AllowedKey;
pub use bridge::bridge;
pub use codec::{Call, Codec, Delivery, PathVariables, is_estimated};
pub use collect::{Collect, CollectedAnswer, CollectedContent, UpstreamFault};
pub use dialect::Dialect;
pub use disjoint::{Contradiction, Contradictions};
pub use meter::{FixedUsageMeter, Framing, Meter, ReportedSides};
pub use operation::{BodyKind, ErrorShape, Operation, OperationInfo};
pub use registry::{REGISTRY, TASK_REGISTRY, allowed_keys, codec, is_served, task_codec};
pub use request::{ModelInPath, Request};
pub use request_bounds::{OutputBound, RequestBounds};
pub use stored::Reference;
