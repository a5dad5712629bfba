//! Providers by the names that LiteLLM has for them, and how their APIs are reached from here.

use tollgate_protocols::{Dialect, Operation, bridge, is_served};

use crate::names::Protocol;

/// A provider known to LiteLLM.
#[derive(Debug)]
pub(super) struct LitellmProvider {
    /// The word before the first slash of `litellm_params.model`.
    pub(super) name: &'static str,
    /// Protocol of the provider.
    pub(super) protocol: Protocol,
    /// Way to find the URL of its API.
    pub(super) place: ApiLocation,
    /// The environment variable that LiteLLM reads when no key is given; empty where none is needed.
    pub(super) key: &'static str,
    /// Name of the matching upstream in the built-in list of models; empty if there is none.
    pub(super) listed_as: &'static str,
    /// True if it has OpenAI's Responses API beside chat completions.
    pub(super) has_responses: bool,
}

/// Way to find the URL of a provider's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiLocation {
    /// Default base URL, unless `api_base` is set.
    At(&'static str),
    /// `api_base` says it: every customer has a place of their own.
    Typed,
    /// A resource of Azure's, with OpenAI's paths below `/openai/v1`.
    Azure,
    /// Bedrock in a region of AWS.
    Bedrock,
    /// A project of Google Cloud.
    Vertex,
    /// A server of Ollama's, whose OpenAI-compatible API is below `/v1`.
    Ollama,
    /// Cohere: rankings have a place of their own.
    Cohere,
}

const fn openai(name: &'static str, base_url: &'static str, key: &'static str) -> LitellmProvider {
    let place = if base_url.is_empty() { ApiLocation::Typed } else { ApiLocation::At(base_url) };
    let protocol = Protocol::Dialect(Dialect::Openai);
    LitellmProvider { name, protocol, place, key, listed_as: "", has_responses: false }
}

const fn listed(name: &'static str, base_url: &'static str, key: &'static str) -> LitellmProvider {
    LitellmProvider { listed_as: name, ..openai(name, base_url, key) }
}

const fn speaking(dialect: Dialect, provider: LitellmProvider) -> LitellmProvider {
    LitellmProvider { protocol: Protocol::Dialect(dialect), ..provider }
}

const fn placed(place: ApiLocation, provider: LitellmProvider) -> LitellmProvider {
    LitellmProvider { place, ..provider }
}

const fn azure(name: &'static str, key: &'static str) -> LitellmProvider {
    let provider = placed(ApiLocation::Azure, openai(name, "", key));
    LitellmProvider {
        protocol: Protocol::Azure,
        listed_as: "openai",
        has_responses: true,
        ..provider
    }
}

/// All supported providers.
pub(super) static PROVIDERS: &[LitellmProvider] = &[
    LitellmProvider {
        has_responses: true,
        ..listed("openai", "https://api.openai.com/v1", "OPENAI_API_KEY")
    },
    azure("azure", "AZURE_API_KEY"),
    azure("azure_ai", "AZURE_AI_API_KEY"),
    speaking(
        Dialect::Anthropic,
        listed("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    ),
    speaking(Dialect::Bedrock, placed(ApiLocation::Bedrock, openai("bedrock", "", ""))),
    speaking(Dialect::Bedrock, placed(ApiLocation::Bedrock, openai("bedrock_converse", "", ""))),
    LitellmProvider {
        listed_as: "gemini",
        ..speaking(Dialect::Vertex, placed(ApiLocation::Vertex, openai("vertex_ai", "", "")))
    },
    LitellmProvider {
        listed_as: "gemini",
        ..speaking(Dialect::Vertex, placed(ApiLocation::Vertex, openai("vertex_ai_beta", "", "")))
    },
    listed("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    placed(ApiLocation::Cohere, openai("cohere", "", "COHERE_API_KEY")),
    placed(ApiLocation::Cohere, openai("cohere_chat", "", "COHERE_API_KEY")),
    placed(ApiLocation::Ollama, openai("ollama", "", "")),
    placed(ApiLocation::Ollama, openai("ollama_chat", "", "")),
    LitellmProvider {
        listed_as: "qwen",
        ..openai(
            "dashscope",
            "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
            "DASHSCOPE_API_KEY",
        )
    },
    LitellmProvider { listed_as: "grok", ..openai("xai", "https://api.x.ai/v1", "XAI_API_KEY") },
    listed("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    speaking(Dialect::Voyage, listed("voyage", "https://api.voyageai.com/v1", "VOYAGE_API_KEY")),
    listed("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    listed("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    listed("minimax", "https://api.minimax.io/v1", "MINIMAX_API_KEY"),
    LitellmProvider {
        listed_as: "zhipu",
        ..openai("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY")
    },
    openai("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    openai("together_ai", "https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    openai("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    openai("fireworks_ai", "https://api.fireworks.ai/inference/v1", "FIREWORKS_AI_API_KEY"),
    openai("perplexity", "https://api.perplexity.ai", "PERPLEXITYAI_API_KEY"),
    openai("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    openai("nvidia_nim", "https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY"),
    openai("sambanova", "https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    openai("deepinfra", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    openai("hyperbolic", "https://api.hyperbolic.xyz/v1", "HYPERBOLIC_API_KEY"),
    openai("jina_ai", "https://api.jina.ai/v1", "JINA_AI_API_KEY"),
    openai("codestral", "https://codestral.mistral.ai/v1", "CODESTRAL_API_KEY"),
    openai("vercel_ai_gateway", "https://ai-gateway.vercel.sh/v1", "VERCEL_AI_GATEWAY_API_KEY"),
    openai("hosted_vllm", "", ""),
    openai("vllm", "", ""),
    openai("lm_studio", "", ""),
    openai("llamafile", "", ""),
    openai("xinference", "", ""),
    openai("infinity", "", ""),
    openai("databricks", "", "DATABRICKS_API_KEY"),
    openai("litellm_proxy", "", "LITELLM_PROXY_API_KEY"),
    openai("openai_like", "", ""),
    openai("custom_openai", "", ""),
];

/// Words that begin the names of models which LiteLLM knows without a provider.
const MODEL_PREFIXES: &[(&str, &str)] = &[
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("codex-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("text-embedding-3", "openai"),
    ("text-embedding-ada", "openai"),
    ("text-moderation", "openai"),
    ("omni-moderation", "openai"),
    ("dall-e", "openai"),
    ("tts-1", "openai"),
    ("whisper-", "openai"),
    ("claude-", "anthropic"),
    ("gemini-", "vertex_ai"),
    ("command-", "cohere"),
    ("embed-", "cohere"),
    ("rerank-", "cohere"),
    ("anthropic.", "bedrock"),
    ("amazon.", "bedrock"),
    ("meta.", "bedrock"),
    ("us.", "bedrock"),
    ("eu.", "bedrock"),
];

/// The provider of a model as LiteLLM names it, and the provider's own name for the model; or why
/// there is none.
pub(super) fn find(
    model: &str,
    custom_provider: Option<&str>,
) -> Result<(&'static LitellmProvider, String), String> {
    let by_name = |name: &str| PROVIDERS.iter().find(|provider| provider.name == name);
    if let Some(name) = custom_provider {
        // With `custom_llm_provider` the prefix is optional, and other slashes belong to the name.
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
    // LiteLLM has a list of thousands of names; prefixes cover those that are common without a provider.
    let prefix = MODEL_PREFIXES.iter().find(|(begin, _)| model.starts_with(begin));
    let provider = prefix.and_then(|(_, name)| by_name(name));
    provider.map(|provider| (provider, model.to_owned())).ok_or_else(|| {
        format!("`{model}` names no provider, and which one LiteLLM takes it for is not known here")
    })
}

/// The protocols are those that `routes.yaml` can name.
fn unspoken(name: &str) -> String {
    let protocols: Vec<&str> = Protocol::ALL.iter().map(|protocol| protocol.as_str()).collect();
    format!(
        "`{name}` is not among the providers that this command knows. If it has an API of one of the \
         protocols {}, add an upstream for it by hand",
        protocols.join(", ")
    )
}

impl LitellmProvider {
    /// Prompt operations that the provider serves: native ones, then translated ones.
    pub(super) fn prompts(&self) -> Vec<Operation> {
        let dialect = self.protocol.dialect();
        let all = Operation::prompts();
        let is_native = |operation: &Operation| {
            is_served(*operation, dialect)
                && (*operation != Operation::Responses || self.has_responses)
        };
        let mut found: Vec<Operation> = all.clone().filter(is_native).collect();
        if found.is_empty() {
            // Bedrock's own API is no customer's: everything is translated.
            found.push(Operation::Chat);
        }
        // What its dialect has and it has not would be sent to it as it is.
        let more: Vec<Operation> = all
            .filter(|one| !found.contains(one) && !is_served(*one, dialect))
            .filter(|one| bridge(*one, dialect, &found).is_some())
            .collect();
        found.extend(more);
        found
    }

    /// True if the provider serves the operation.
    pub(super) fn serves(&self, operation: Operation) -> bool {
        if operation.info().is_prompt {
            return self.prompts().contains(&operation);
        }
        is_served(operation, self.protocol.dialect())
    }

    /// The operations of its protocol, as a sentence.
    pub(super) fn served(&self) -> String {
        let served = Operation::ALL.into_iter().filter(|operation| self.serves(*operation));
        let served: Vec<&str> = served.map(Operation::as_str).collect();
        let protocol = self.protocol.as_str();
        format!("over the protocol `{protocol}` these are served: {}", served.join(", "))
    }
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
            ("whisper-1", None, "openai", "whisper-1"),
            ("claude-3-opus-20240229", None, "anthropic", "claude-3-opus-20240229"),
            ("command-r", None, "cohere", "command-r"),
            ("bedrock/anthropic.claude-v2", None, "bedrock", "anthropic.claude-v2"),
            ("vertex_ai/gemini-pro", None, "vertex_ai", "gemini-pro"),
            ("ollama_chat/llama3", None, "ollama_chat", "llama3"),
            ("qwen2", Some("hosted_vllm"), "hosted_vllm", "qwen2"),
            ("azure/my/deployment", Some("azure"), "azure", "my/deployment"),
        ] {
            let (found, name) = find(model, custom).expect(model);
            assert_eq!((found.name, name.as_str()), (provider, own), "{model}");
        }
        for model in ["replicate/llama", "sagemaker/endpoint", "nobody-knows-it", "*"] {
            assert!(find(model, None).is_err(), "{model}");
        }
    }

    /// The gateway's own tables name every protocol.
    #[test]
    fn every_protocol_that_a_file_can_name_is_named() {
        let message = find("replicate/llama", None).expect_err("nobody speaks it");
        let schema = crate::routes_schema();
        let protocols = schema["$defs"]["Upstream"]["properties"]["protocol"]["enum"].clone();
        let protocols: Vec<String> = serde_json::from_value(protocols).expect("words");
        assert!(protocols.len() >= 10, "{protocols:?}");
        for protocol in protocols {
            assert!(message.contains(&protocol), "{protocol} in {message}");
        }
    }

    #[test]
    fn providers_serve_prompts_of_every_dialect() {
        use Operation::{Chat, GenerateContent, Messages, Responses};
        let prompts = |model: &str| find(model, None).expect(model).0.prompts();
        assert_eq!(prompts("openai/m"), [Chat, Responses, Messages, GenerateContent]);
        assert_eq!(prompts("azure/m"), [Chat, Responses, Messages, GenerateContent]);
        // Its server has no Responses API: those are translated where the model does not list them.
        assert_eq!(prompts("groq/m"), [Chat, Messages, GenerateContent]);
        assert_eq!(prompts("anthropic/m"), [Messages, Chat, Responses, GenerateContent]);
        assert_eq!(prompts("bedrock/m"), [Chat, Messages, Responses, GenerateContent]);
        assert_eq!(prompts("vertex_ai/m"), [GenerateContent, Chat, Messages, Responses]);
        let bedrock = find("bedrock/m", None).expect("a provider").0;
        assert!(!bedrock.serves(Operation::Embeddings));
        assert!(bedrock.served().ends_with("chat, messages, responses, generate_content"));
        assert!(find("cohere/m", None).expect("a provider").0.serves(Operation::Rerank));
    }
}
