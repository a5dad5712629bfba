//! Provider names, and their aliases in lists and configurations.

/// The names of one provider: models.dev's first, then those of LiteLLM, of OpenRouter, and of upstreams
/// in configurations. Resellers stand for themselves.
const ALIASES: &[&[&str]] = &[
    &["openai"],
    &["anthropic", "claude"],
    &["google", "gemini", "google-ai-studio"],
    &["xai", "x-ai", "grok"],
    &["deepseek"],
    &["alibaba", "dashscope", "qwen"],
    &["moonshotai", "moonshot", "kimi"],
    &["zai", "z-ai", "zhipuai", "zhipu"],
    &["minimax"],
    &["mistral", "mistralai"],
    &["voyage", "voyageai"],
    &["cohere", "cohere_chat"],
    &["bytedance", "ark", "volcengine", "bytedance-seed"],
];

/// Canonical name of a provider with aliases; otherwise the name itself.
pub(crate) fn family(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let entry = ALIASES.iter().find(|aliases| aliases.contains(&name.as_str()));
    entry.and_then(|aliases| aliases.first()).map_or(name, |first| (*first).to_owned())
}

/// A model's name as it is compared: OpenRouter writes `claude-sonnet-4.5` for `claude-sonnet-4-5`.
pub(crate) fn comparable(model: &str) -> String {
    model.to_ascii_lowercase().replace('.', "-")
}

/// A model's name without a prefix of its provider's: `gemini/gemini-2.5-pro` of `gemini`.
pub(crate) fn without_prefix<'a>(name: &'a str, provider: &str) -> &'a str {
    match name.split_once('/') {
        Some((prefix, model)) if family(prefix) == family(provider) => model,
        _ => name,
    }
}

/// The name of a family of releases, of a name with a date: `claude-sonnet-4-5` of
/// `claude-sonnet-4-5-20250929`. Only Anthropic's releases are the model that is named without a date;
/// another provider's can have prices of their own.
pub(crate) fn undated<'a>(provider: &str, model: &'a str) -> Option<&'a str> {
    const DATE_DIGITS: usize = 8;
    let (name, date) = model.rsplit_once('-')?;
    let is_date = date.len() == DATE_DIGITS && date.bytes().all(|byte| byte.is_ascii_digit());
    (is_date && family(provider) == "anthropic").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_has_one_name() {
        for (name, expected) in [
            ("openai", "openai"),
            ("gemini", "google"),
            ("x-ai", "xai"),
            ("grok", "xai"),
            ("Qwen", "alibaba"),
            ("dashscope", "alibaba"),
            ("moonshot", "moonshotai"),
            ("zhipuai", "zai"),
            ("mistralai", "mistral"),
            ("azure", "azure"),
            ("vertex_ai-language-models", "vertex_ai-language-models"),
        ] {
            assert_eq!(family(name), expected, "{name}");
        }
    }

    #[test]
    fn prefixes_and_dates_are_recognized() {
        assert_eq!(without_prefix("gemini/gemini-2.5-pro", "gemini"), "gemini-2.5-pro");
        assert_eq!(without_prefix("qwen/qwen-plus", "dashscope"), "qwen-plus");
        assert_eq!(without_prefix("1024-x-1024/dall-e-2", "openai"), "1024-x-1024/dall-e-2");
        assert_eq!(without_prefix("gpt-4o", "openai"), "gpt-4o");
        let release = "claude-sonnet-4-5-20250929";
        assert_eq!(undated("anthropic", release), Some("claude-sonnet-4-5"));
        assert_eq!(undated("anthropic", "claude-sonnet-4-5"), None);
        assert_eq!(
            undated("openai", "gpt-4o-20240513"),
            None,
            "which costs twice what gpt-4o does"
        );
        assert_eq!(comparable("Claude-Sonnet-4.5"), "claude-sonnet-4-5");
    }
}
