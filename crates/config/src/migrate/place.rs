//! Base URLs of deployments.

use tollgate_protocols::Operation;

use super::Migration;
use super::provider::{ApiLocation, LitellmProvider};
use super::tree::YamlNode;
use super::values::Values;
use crate::scalar::Scalar as _;
use crate::url::BaseUrl;

/// Cohere's compatible API, and its own for rerank.
const COHERE: (&str, &str) =
    ("https://api.cohere.ai/compatibility/v1", "https://api.cohere.com/v2");
/// The address at which a server of Ollama's listens unless it is told otherwise.
const OLLAMA: &str = "http://localhost:11434";

impl Migration<'_> {
    /// The base URL; `None`, with a note, where it is unknown.
    pub(super) fn base_url(
        &mut self,
        provider: &LitellmProvider,
        values: &Values<'_>,
        operation: Operation,
    ) -> Option<String> {
        let typed = values.get("api_base").or_else(|| values.get("base_url"));
        let typed = match provider.place {
            ApiLocation::Bedrock => values.get("aws_bedrock_runtime_endpoint").or(typed),
            _ => typed,
        };
        let Some((node, text)) = typed.and_then(|node| Some((node, node.text()?))) else {
            return self.untyped(provider, values, operation);
        };
        if provider.place == ApiLocation::Vertex {
            let help = "the URL is made of the project and the location: put yours in by hand";
            self.left_out(node.mark, "`api_base` of Vertex AI is left out", help);
            return self.untyped(provider, values, operation);
        }
        let mut url = Self::filled(text).trim_end_matches('/').to_owned();
        // LiteLLM takes whole URLs of endpoints; a base URL here gets the path appended.
        for end in ["/chat/completions", "/embeddings", "/rerank", "/v1/messages"] {
            url = url.strip_suffix(end).unwrap_or(&url).to_owned();
        }
        match provider.place {
            // Azure's API of this shape needs no `api_version`.
            ApiLocation::Azure => {
                let host = url.split("/openai").next().unwrap_or_default();
                url = host.trim_end_matches("/models").to_owned() + "/openai/v1";
            }
            ApiLocation::Ollama if !url.ends_with("/v1") => url.push_str("/v1"),
            _ => {}
        }
        // A URL with a variable is checked when the variable is known.
        if !url.contains("${")
            && let Err(error) = BaseUrl::parse(&url)
        {
            self.left_out(node.mark, "this target is left out", &error.message);
            return None;
        }
        Some(url)
    }

    /// The default base URL of the provider.
    fn untyped(
        &mut self,
        provider: &LitellmProvider,
        values: &Values<'_>,
        operation: Operation,
    ) -> Option<String> {
        match provider.place {
            ApiLocation::At(base_url) => Some(base_url.to_owned()),
            ApiLocation::Typed | ApiLocation::Azure => {
                let help = format!("`{}` needs an `api_base`", provider.name);
                self.left_out(values.params.mark, "this target is left out", &help);
                None
            }
            ApiLocation::Bedrock => {
                let model = values.params.text_of("model").unwrap_or_default();
                let region = region(values, region_in(model));
                Some(format!("https://bedrock-runtime.{region}.amazonaws.com"))
            }
            ApiLocation::Vertex => Some(vertex(values)),
            ApiLocation::Ollama => Some(format!("{OLLAMA}/v1")),
            ApiLocation::Cohere if operation == Operation::Rerank => Some(COHERE.1.to_owned()),
            ApiLocation::Cohere => Some(COHERE.0.to_owned()),
        }
    }
}

/// The API of Google's own models in a project.
fn vertex(values: &Values<'_>) -> String {
    let either = |one: &str, other: &str| values.filled(one).or_else(|| values.filled(other));
    let project = either("vertex_project", "vertex_ai_project");
    let project = project.unwrap_or_else(|| "${VERTEXAI_PROJECT}".to_owned());
    let location = either("vertex_location", "vertex_ai_location");
    let location = location.unwrap_or_else(|| "us-central1".to_owned());
    let host = match location.as_str() {
        // The global endpoint has no region in its host.
        "global" => "aiplatform.googleapis.com".to_owned(),
        location => format!("{location}-aiplatform.googleapis.com"),
    };
    format!("https://{host}/v1/projects/{project}/locations/{location}/publishers/google")
}

/// AWS region: configured, or in the name of the model, or in LiteLLM's variable.
pub(super) fn region(values: &Values<'_>, in_model: Option<&str>) -> String {
    let typed = values.filled("aws_region_name");
    let found = typed.or_else(|| in_model.map(str::to_owned));
    found.unwrap_or_else(|| "${AWS_REGION_NAME}".to_owned())
}

/// The region that a model of Bedrock is named with, as in `bedrock/us-east-1/…`.
pub(super) fn region_in(model: &str) -> Option<&str> {
    model.split('/').find(|part| is_region(part))
}

/// True for a region of AWS, such as `eu-central-1`.
pub(super) fn is_region(part: &str) -> bool {
    let mut words = part.split('-');
    let is_place = words
        .next()
        .is_some_and(|word| word.len() == 2 && word.bytes().all(|byte| byte.is_ascii_lowercase()));
    let is_number = part.rsplit('-').next().is_some_and(|last| last.parse::<u8>().is_ok());
    is_place && is_number && part.split('-').count() >= 3
}

/// The name of an upstream at a place of one's own: the first part of its host.
pub(super) fn host_name(url: &YamlNode, provider: &str) -> Option<String> {
    use crate::snapshot::NAME_BYTES_MAX;
    let host = url.text()?.split_once("://").map_or("", |(_, rest)| rest);
    let host = host.split(['/', ':', '?']).next().unwrap_or_default();
    // The first part of an address, such as `10`, would name every machine of a network.
    let is_address = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let name = if is_address { provider } else { host.split('.').next().unwrap_or_default() };
    let is_letter = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '-';
    let name: String = name.chars().filter(is_letter).take(NAME_BYTES_MAX / 2).collect();
    Some(if name.is_empty() { provider.replace('_', "-") } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_told_from_names_of_models() {
        assert_eq!(region_in("bedrock/us-east-1/anthropic.claude-v2"), Some("us-east-1"));
        assert_eq!(region_in("bedrock/us-gov-west-1/amazon.nova-pro-v1:0"), Some("us-gov-west-1"));
        for model in ["bedrock/anthropic.claude-v2", "bedrock/converse/us.amazon.nova-pro-v1:0"] {
            assert_eq!(region_in(model), None, "{model}");
        }
    }
}
