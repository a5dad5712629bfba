//! The list of tools. Each is described in the file that implements it.

use super::tool::ToolEntry;
use super::{account, chat, edit, embed, images, speak, video};

/// Every tool, in the order in which they are listed.
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
