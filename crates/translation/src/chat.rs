//! OpenAI's chat completions, and what those who copied them write otherwise.
//!
//! To customers, thoughts travel in `reasoning_content`, as DeepSeek and others have it, and the seals
//! that belong to them in `reasoning_details`, as OpenRouter has it. Upstreams get them back where they
//! have put them.

mod answer;
pub(crate) mod conversation;
mod fields;
mod open_calls;
mod read;
mod read_messages;
mod stream;
mod thoughts;
mod wire;
mod write;

use crate::dialect::implement_dialect;
use crate::names::Naming;

/// `format` of the entries of `reasoning_details` that this gateway writes.
const DETAIL_FORMAT: &str = "tollgate";

/// Dialect of OpenAI's chat completions.
#[derive(Debug)]
pub struct Chat;

implement_dialect!(Chat, target => Naming::chat(target.call_ids), stream::ChatReader, stream::ChatWriter);
