//! Providers by the names that LiteLLM has for them, and how their APIs are reached from here.

/// A provider of LiteLLM's.
#[derive(Debug)]
pub(super) struct Provider {
    /// The word before the first slash of `litellm_params.model`.
    pub(super) name: &'static str,
    /// The protocol that is spoken to it.
    pub(super) protocol: &'static str,
    /// Where its API begins; empty where every customer has a place of their own.
    pub(super) base_url: &'static str,
    /// The environment variable that LiteLLM reads when no key is given; empty where none is needed.
    pub(super) key: &'static str,
    /// The upstream of this project's own list of models that serves the same models.
    pub(super) listed_as: &'static str,
}

const fn openai(
    name: &'static str,
    base_url: &'static str,
    key: &'static str,
    listed_as: &'static str,
) -> Provider {
    Provider { name, protocol: "openai", base_url, key, listed_as }
}

/// Every provider that can be reached.
pub(super) static PROVIDERS: &[Provider] = &[
    openai("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "openai"),
    openai("azure", "", "AZURE_API_KEY", "openai"),
    Provider {
        name: "anthropic",
        protocol: "anthropic",
        base_url: "https://api.anthropic.com",
        key: "ANTHROPIC_API_KEY",
        listed_as: "anthropic",
    },
    openai(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        "gemini",
    ),
    openai(
        "dashscope",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        "qwen",
    ),
    openai("xai", "https://api.x.ai/v1", "XAI_API_KEY", "grok"),
    openai("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "deepseek"),
    Provider {
        name: "voyage",
        protocol: "voyage",
        base_url: "https://api.voyageai.com/v1",
        key: "VOYAGE_API_KEY",
        listed_as: "voyage",
    },
    openai("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", ""),
    openai("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", ""),
    openai("together_ai", "https://api.together.xyz/v1", "TOGETHERAI_API_KEY", ""),
    openai("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", ""),
    openai("fireworks_ai", "https://api.fireworks.ai/inference/v1", "FIREWORKS_AI_API_KEY", ""),
    openai("perplexity", "https://api.perplexity.ai", "PERPLEXITYAI_API_KEY", ""),
    openai("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", ""),
    openai("nvidia_nim", "https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY", ""),
    openai("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", ""),
    openai("hosted_vllm", "", "", ""),
    openai("vllm", "", "", ""),
    openai("lm_studio", "", "", ""),
    openai("llamafile", "", "", ""),
    openai("xinference", "", "", ""),
    openai("litellm_proxy", "", "LITELLM_PROXY_API_KEY", ""),
    openai("openai_like", "", "", ""),
    openai("custom_openai", "", "", ""),
];

/// Words that begin the names of models which LiteLLM knows without a provider.
const KNOWN_MODELS: &[(&str, &str)] = &[
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("text-embedding-3", "openai"),
    ("text-embedding-ada", "openai"),
    ("dall-e", "openai"),
    ("tts-1", "openai"),
    ("claude-", "anthropic"),
];

/// The provider of a model as LiteLLM names it, and the provider's own name for the model; or why
/// there is none.
pub(super) fn find(
    model: &str,
    custom_provider: Option<&str>,
) -> Result<(&'static Provider, String), String> {
    let by_name = |name: &str| PROVIDERS.iter().find(|provider| provider.name == name);
    if let Some(name) = custom_provider {
        let own = model.strip_prefix(name).and_then(|rest| rest.strip_prefix('/')).unwrap_or(model);
        let found = by_name(name).map(|provider| (provider, own.to_owned()));
        return found.ok_or_else(|| unspoken(name));
    }
    if let Some((name, own)) = model.split_once('/') {
        if let Some(provider) = by_name(name) {
            return Ok((provider, own.to_owned()));
        }
        return Err(unspoken(name));
    }
    let known = KNOWN_MODELS.iter().find(|(begin, _)| model.starts_with(begin));
    let provider = known.and_then(|(_, name)| by_name(name));
    provider.map(|provider| (provider, model.to_owned())).ok_or_else(|| {
        format!("`{model}` names no provider, and which one LiteLLM takes it for is not known here")
    })
}

fn unspoken(name: &str) -> String {
    format!("the API of `{name}` is not one that can be spoken to")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_the_provider_that_litellm_takes() {
        for (model, custom, provider, own) in [
            ("openai/gpt-4o", None, "openai", "gpt-4o"),
            ("openai/facebook/opt-125m", None, "openai", "facebook/opt-125m"),
            ("gpt-4o", None, "openai", "gpt-4o"),
            ("claude-3-opus-20240229", None, "anthropic", "claude-3-opus-20240229"),
            ("qwen2", Some("hosted_vllm"), "hosted_vllm", "qwen2"),
            ("azure/my/deployment", Some("azure"), "azure", "my/deployment"),
        ] {
            let (found, name) = find(model, custom).expect(model);
            assert_eq!((found.name, name.as_str()), (provider, own), "{model}");
        }
        for model in ["bedrock/anthropic.claude-v2", "vertex_ai/gemini-pro", "command-r", "*"] {
            assert!(find(model, None).is_err(), "{model}");
        }
    }
}
