//! Requests and answers of one dialect of language models in the words of another.
//!
//! A dialect reads what it is sent into [`part`]s and writes parts in its own words; both sides of a
//! translation know nothing of each other, so a new dialect is one module here. Bytes in, bytes out: no
//! I/O, no clock, and what an answer used is told by whoever meters it.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

pub mod part;
pub mod dialect;
pub mod names;
pub mod seal;
pub mod call_input;
mod answer_format;
mod cache_marks;
mod failure;
mod json;
mod raw;
mod field_path;
mod field_rules;
mod customer_tools;
mod turns;
mod pairing;
mod sequence;
mod tool_schema;
mod claude;
mod schemas;
mod media;
mod openai_tools;
mod thinking;
mod upstream_tools;
mod usage;

mod chat;
mod gemini;
mod messages;
mod responses;
mod converse;
pub use chat::Chat;
pub use converse::Converse;
pub use gemini::Gemini;
pub use messages::Messages;
pub use responses::Responses;
#[cfg(test)]
mod tests;
