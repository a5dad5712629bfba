//! Facts of models that decide what their providers refuse.

/// A documented property of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    /// Reasons before it answers, and accepts no sampling settings then.
    Reasons,
    /// Accepts only these effort values.
    Efforts(&'static [&'static str]),
    /// Accepts no stop sequences.
    NoStop,
    /// Calls tools over chat completions only without reasoning.
    NoToolsOverChat,
    /// Accepts no prefilled assistant message.
    NoPrefill,
    /// Accepts system messages in the middle of a conversation.
    SystemInTheMiddle,
    /// Accepts no `temperature`, `top_p` and `top_k`.
    NoSampling,
    /// Accepts `temperature` or `top_p`, not both.
    OneSampling,
    /// Thinking is controlled by `output_config.effort` and adaptive thinking only.
    Adaptive,
    /// Thinking is controlled by a token budget only.
    Budget,
    /// Largest output, in tokens.
    OutputMax(u64),
    /// Its template takes a system message in the first place alone, and wants a user's.
    QwenTemplate,
    /// Its template takes an assistant's message behind results of tools alone.
    MistralTemplate,
    /// Its calls of the turn that is going on come back with their signatures.
    SignsCalls,
    /// Always reasons, whatever the request.
    AlwaysThinks,
}

/// The facts: patterns of names, in which `*` stands for anything, the fact, and its source.
const FACTS: &[(&[&str], Fact, &str)] = &[
    (
        &["o1*", "o3*", "o4*", "gpt-5*", "gpt-6*"],
        Fact::Reasons,
        "https://platform.openai.com/docs/guides/reasoning; https://github.com/Chatbox-AI/chatbox/issues/2627",
    ),
    (
        &["o1*", "o3*", "o4*", "gpt-5-codex*"],
        Fact::Efforts(&["low", "medium", "high"]),
        "https://platform.openai.com/docs/guides/reasoning",
    ),
    (
        &["gpt-5", "gpt-5-mini*", "gpt-5-nano*", "gpt-5-2025*"],
        Fact::Efforts(&["minimal", "low", "medium", "high"]),
        "https://github.com/kaitranntt/ccs/issues/344",
    ),
    (
        &["gpt-5.1*"],
        Fact::Efforts(&["none", "low", "medium", "high"]),
        "https://github.com/anomalyco/opencode/issues/4451",
    ),
    (
        &["gpt-5.2*", "gpt-5.3*", "gpt-5.4*", "gpt-5.5*"],
        Fact::Efforts(&["none", "low", "medium", "high", "xhigh"]),
        "https://github.com/stdapi-ai/stdapi.ai/issues/8",
    ),
    (
        &["gpt-5.6*", "gpt-6*"],
        Fact::Efforts(&["none", "low", "medium", "high", "xhigh", "max"]),
        "https://github.com/bolna-ai/bolna/pull/852",
    ),
    (
        &["o3*", "o4-mini*", "gpt-5", "gpt-5-mini*", "gpt-5-nano*"],
        Fact::NoStop,
        "https://platform.openai.com/docs/api-reference/chat/create#chat-create-stop",
    ),
    (
        &["gpt-5.4*", "gpt-5.5*", "gpt-5.6*", "gpt-6*"],
        Fact::NoToolsOverChat,
        "https://platform.openai.com/docs/guides/latest-model",
    ),
    (
        &[
            "*claude-opus-4-6*",
            "*claude-opus-4-7*",
            "*claude-opus-4-8*",
            "*claude-sonnet-4-6*",
            "*claude-opus-5*",
            "*claude-sonnet-5*",
            "*claude-haiku-5*",
            "*claude-fable*",
        ],
        Fact::NoPrefill,
        "https://platform.claude.com/docs/en/about-claude/models/whats-new-claude-4-6; https://github.com/Kilo-Org/kilocode/issues/8260",
    ),
    (
        &[
            "*claude-opus-4-8*",
            "*claude-opus-5*",
            "*claude-sonnet-5*",
            "*claude-haiku-5*",
            "*claude-fable*",
        ],
        Fact::SystemInTheMiddle,
        "https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages",
    ),
    (
        &[
            "*claude-opus-4-7*",
            "*claude-opus-4-8*",
            "*claude-opus-5*",
            "*claude-sonnet-5*",
            "*claude-haiku-5*",
            "*claude-fable*",
        ],
        Fact::NoSampling,
        "https://platform.claude.com/docs/en/about-claude/models/migration-guide",
    ),
    (
        &["*claude-*4-1*", "*claude-*4-5*", "*claude-*4-6*"],
        Fact::OneSampling,
        "https://platform.claude.com/docs/en/about-claude/models/migration-guide",
    ),
    (
        &[
            "*claude-opus-4-7*",
            "*claude-opus-4-8*",
            "*claude-opus-5*",
            "*claude-sonnet-5*",
            "*claude-haiku-5*",
            "*claude-fable*",
        ],
        Fact::Adaptive,
        "https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking",
    ),
    (
        &["*claude-3-7*", "*claude-*4-0*", "*claude-*4-1*", "*claude-*4-5*"],
        Fact::Budget,
        "https://platform.claude.com/docs/en/build-with-claude/extended-thinking",
    ),
    (
        &["*claude-haiku-4-5*", "*claude-sonnet-4-5*", "*claude-opus-4-5*"],
        Fact::OutputMax(64_000),
        "https://platform.claude.com/docs/en/about-claude/models/overview",
    ),
    (
        &["*claude-opus-4-6*", "*claude-opus-4-7*", "*claude-opus-4-8*", "*claude-opus-5*"],
        Fact::OutputMax(128_000),
        "https://platform.claude.com/docs/en/about-claude/models/overview",
    ),
    (
        &["*qwen3*", "*Qwen3*"],
        Fact::QwenTemplate,
        "https://github.com/vllm-project/vllm/issues/41114; https://github.com/langgenius/dify/issues/33152",
    ),
    (
        &["*mistral*", "*magistral*", "*devstral*", "*codestral*", "*pixtral*"],
        Fact::MistralTemplate,
        "https://github.com/avante-corp/avante.nvim/pull/2695",
    ),
    (&["*gemini-3*"], Fact::SignsCalls, "https://ai.google.dev/gemini-api/docs/thought-signatures"),
    (
        &["*gemini-2.5-pro*", "*gemini-3*"],
        Fact::AlwaysThinks,
        "https://ai.google.dev/gemini-api/docs/thinking",
    ),
];

/// The facts of a model.
pub(super) fn facts(model: &str) -> impl Iterator<Item = Fact> + '_ {
    let rows = FACTS
        .iter()
        .filter(move |(patterns, ..)| patterns.iter().any(|pattern| matches(pattern, model)));
    rows.map(|(_, fact, _)| *fact)
}

/// True if the fact holds for a model.
pub(super) fn is(model: &str, fact: Fact) -> bool {
    facts(model).any(|listed| listed == fact)
}

/// The words of effort that a model knows; `None` where it is not in the table.
pub(super) fn efforts(model: &str) -> Option<&'static [&'static str]> {
    facts(model).find_map(|fact| match fact {
        Fact::Efforts(words) => Some(words),
        _ => None,
    })
}

/// The most tokens that a model puts out; `None` where it is not in the table.
pub(super) fn output_max(model: &str) -> Option<u64> {
    facts(model).find_map(|fact| match fact {
        Fact::OutputMax(tokens) => Some(tokens),
        _ => None,
    })
}

/// True if a name matches a pattern with `*` as wildcard.
fn matches(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    if !pattern.contains('*') {
        return rest.is_empty();
    }
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some(at) = rest.find(piece) else { return false };
        rest = rest.get(at + piece.len()..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_by_patterns_of_their_names() {
        for (model, fact, holds) in [
            ("gpt-5.1", Fact::Reasons, true),
            ("gpt-4.1", Fact::Reasons, false),
            ("gpt-5", Fact::NoStop, true),
            ("gpt-5.1", Fact::NoStop, false),
            ("us.anthropic.claude-opus-4-8-v1", Fact::NoPrefill, true),
            ("claude-haiku-4-5", Fact::NoPrefill, false),
            ("claude-haiku-4-5", Fact::Budget, true),
            ("claude-opus-4-8", Fact::Budget, false),
            ("mistral-large-latest", Fact::MistralTemplate, true),
            ("gemini-3.5-flash", Fact::SignsCalls, true),
        ] {
            assert_eq!(is(model, fact), holds, "{model} {fact:?}");
        }
        assert_eq!(efforts("gpt-5").map(<[_]>::len), Some(4));
        assert_eq!(efforts("sim"), None);
        assert_eq!(output_max("claude-haiku-4-5"), Some(64_000));
    }

    #[test]
    fn each_fact_names_its_source() {
        assert!(FACTS.iter().all(|(.., source)| source.starts_with("https://")));
    }
}
