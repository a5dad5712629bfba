//! The list of tools. Each is described in the file that implements it.

use super::tool::ToolEntry;
use super::{account, chat, edit, embed, images, speak, video};

/// All tools in the order of the list.
pub(super) static TOOLS: [ToolEntry; 9] = [
    chat::TOOL,
    images::TOOL,
    edit::TOOL,
    video::SUBMIT,
    video::GET,
    embed::TOOL,
    speak::TOOL,
    account::MODELS,
    account::BALANCE,
];
