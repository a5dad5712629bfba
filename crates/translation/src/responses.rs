//! OpenAI's Responses API, without what it keeps for its customers: every request brings all of its
//! conversation, and reasoning travels encrypted.
//!
//! Thoughts are `reasoning` items, whose `encrypted_content` holds the seal.

mod answer;
mod item;
mod fields;
mod open_items;
mod read;
mod read_items;
mod read_tools;
mod read_stream;
mod write;
mod write_stream;

use crate::dialect::implement_dialect;
use crate::names::Naming;

/// Dialect of OpenAI's Responses API.
#[derive(Debug)]
pub struct Responses;

implement_dialect!(Responses, _target => Naming::RESPONSES, read_stream::ResponseReader, write_stream::ResponseWriter);
