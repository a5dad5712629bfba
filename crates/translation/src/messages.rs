//! Anthropic's Messages API.
//!
//! Thoughts are `thinking` blocks whose `signature` holds the seal, and those that only their maker can
//! read are `redacted_thinking` blocks.

mod answer;
mod fields;
mod read;
mod read_tools;
mod read_turns;
mod stream;
mod write;

use crate::dialect::implement_dialect;
use crate::names::Naming;

/// Dialect of Anthropic's Messages API.
#[derive(Debug)]
pub struct Messages;

implement_dialect!(Messages, _target => Naming::MESSAGES, stream::MessageReader, stream::MessageWriter);
