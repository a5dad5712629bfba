//! The words in which an allowlist is written: fields, objects, tools, and what each of them bounds.

use super::setting::SettingTable;
use crate::server_tools::ServerTool;
use tollgate_money::price::Unit;

/// The allowlist of an operation in one dialect.
pub(in super::super) struct Allowlist {
    /// Its top-level fields, the commonest first.
    pub(in super::super) fields: &'static [(&'static str, Field)],
    /// The types of its tools.
    pub(in super::super) tools: &'static [Tool],
    /// The tools that the upstream runs, which need a price.
    pub(in super::super) server_tools: &'static [ServerTool],
    /// The keys of its tools.
    pub(in super::super) tool_keys: &'static [(&'static str, ToolKey)],
}

impl Allowlist {
    /// The allowlist of an operation without tools.
    pub(in super::super) const fn of_fields(fields: &'static [(&'static str, Field)]) -> Self {
        Self { fields, tools: &[], server_tools: &[], tool_keys: &[] }
    }
}

/// Content of a top-level field.
pub(in super::super) enum Field {
    /// The key does not change the price.
    Plain,
    /// Text, or entries of these kinds.
    Items(&'static ObjectTable),
    /// A list of tools, each of a type that is offered.
    Tools,
    /// The key refers to input outside the body.
    Reference,
    /// Values with no effect on the price, alone or in a list; others need a price.
    Words(&'static [&'static str]),
    /// The key controls the model's thinking, which needs a price.
    Thinking,
    /// The key lets the upstream run something, by default at most so often. Needs a price.
    Runs(Unit, u64),
    /// The key selects the audio of the answer, which needs a price.
    Sounds,
    /// The key selects the modalities of the answer: audio and images need a price.
    Modalities,
    /// Handling of a long context by the upstream.
    ContextManagement,
    /// An object whose members are looked at by their values.
    Settings(SettingTable),
    /// A wish that the answer does without, and of which nobody knows what it costs: it is left out of
    /// what goes upstream, by name. With a key and a word, only an object that has them is; any other
    /// means more than a wish.
    Omitted(Option<(&'static str, &'static str)>),
}

/// The objects of an array: messages, items or parts of a content.
pub(in super::super) struct ObjectTable {
    /// Name of the objects in a refusal.
    pub(in super::super) what: &'static str,
    /// Keys whose values cost no more than their bytes; at most 64.
    pub(in super::super) keys: &'static [(&'static str, Key)],
    /// Their types. The empty name is that of objects without a type.
    pub(in super::super) kinds: &'static [Kind],
}

/// Value behind a key.
pub(in super::super) enum Key {
    /// Data that costs no more than its bytes.
    Plain,
    /// Data that is not for people: as many bytes as tokens at least, and mostly more.
    Opaque,
    /// The type of the object, as its kinds name it.
    Type,
    /// Text, or entries of these kinds.
    Items(&'static ObjectTable),
    /// A list of tools, each of a type that is offered.
    Tools,
    /// A tool definition of an available type, at any position.
    Definition,
    /// URL of a picture. Some upstreams take other media there as sound, at another price.
    Picture,
    /// A medium, inline or at an address.
    Medium(MediaShape),
    /// The level of detail at which the model reads the medium beside it.
    Detail,
    /// Citations of a text, or whether a document is to be cited: then it is cut into pieces, each with marks of
    /// which nobody knows the size.
    Citations,
    /// A setting of how a medium is read, with an undocumented effect on its tokens.
    Media,
    /// Reference to a file. One in the operator's account may belong to another customer.
    File,
    /// Billed in this unit, which needs a price, unless it is `null`.
    Billed(Unit),
    /// Inline sound, which needs a price.
    Sound,
    /// An object whose members are looked at by their values.
    Settings(SettingTable),
}

/// A type of objects.
pub(in super::super) struct Kind {
    pub(in super::super) name: &'static str,
    pub(in super::super) size: Size,
}

/// Bound of an object's tokens.
pub(in super::super) enum Size {
    /// Its bytes, if it has all these keys: without them it may stand for what is elsewhere.
    Bytes(&'static [&'static str]),
    /// The definition of one tool of the request, once more.
    ToolAgain,
    /// The bytes of a result that has all these keys, plus so many tokens that it stands for.
    Result(&'static [&'static str], u64),
    /// The model's context alone.
    Context,
    /// The model's context alone, of which some is billed as this unit. That needs a price.
    Billed(Unit),
    /// Its bytes, if it has all these keys, and sound, which needs a price.
    Sound(&'static [&'static str]),
}

/// Value behind a key of a tool.
#[derive(Clone, Copy)]
pub(in super::super) enum ToolKey {
    /// Description of the tool.
    Plain,
    /// The type of the tool.
    Type,
    /// A key that [`Tool::needs`] may require.
    Needed,
    /// Tools nested in this one.
    Tools,
    /// Maximum calls by the upstream.
    Uses,
    /// Maximum number of entries of one result.
    Results,
    /// Makes the tool more expensive, except with one of these literal values.
    Dearer(&'static [&'static str]),
}

/// A type of tools that the customer runs.
pub(in super::super) struct Tool {
    /// The empty name is that of tools without a type.
    pub(in super::super) name: &'static str,
    /// True if types have a date behind the name.
    pub(in super::super) is_dated: bool,
    /// A required key, and its required value or type of value; any if empty.
    pub(in super::super) needs: Option<(&'static str, &'static str)>,
    /// Tokens that the upstream adds to the prompt for it; `None` if unknown.
    pub(in super::super) added_tokens: Option<u64>,
}

/// The shape in which a dialect writes a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum MediaShape {
    /// OpenAI's: the address of a picture.
    Url,
    /// Anthropic's: an object with a `type`, and `data` or a `url`.
    Source,
    /// Google's: an object with a `mimeType` and `data`.
    Blob,
    /// OpenAI's: an object with `file_data`, or that alone.
    File,
    /// OpenAI's: an object with `data` and a `format`.
    Sound,
    /// Amazon's: an object with a `format` and a `source` that has `bytes`.
    ConverseImage,
}

/// True if all tools are recognized by their keys, and none by a type.
pub(in super::super) fn are_tools_recognized_by_keys(allowlist: &Allowlist) -> bool {
    allowlist.tools.iter().all(|tool| tool.name.is_empty())
}
