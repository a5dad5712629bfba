//! Azure's way to name OpenAI's API: one path for each deployment, with the API's version as a query.
//!
//! Source: Azure OpenAI's REST API reference, data plane. The API below `/openai/v1` is OpenAI's own
//! and needs none of this.

use super::path_segment;

/// Paths of OpenAI's API below which Azure has one path per deployment.
const OF_DEPLOYMENTS: [&str; 7] = [
    "/chat/completions",
    "/embeddings",
    "/images/generations",
    "/images/edits",
    "/audio/speech",
    "/audio/transcriptions",
    "/audio/translations",
];
/// The path whose requests name their deployment in the body.
const RESPONSES: &str = "/responses";

/// True if Azure has an equivalent of OpenAI's `path`.
#[must_use]
pub fn has_path(path: &str) -> bool {
    is_of_responses(path) || OF_DEPLOYMENTS.contains(&path)
}

fn is_of_responses(path: &str) -> bool {
    path.strip_prefix(RESPONSES).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The path below the host at which the deployment `model` is asked what OpenAI's API has at `path`;
/// `None` where there is no such path, or the name would lead out of its place.
#[must_use]
pub fn deployment_path(path: &str, model: &str, api_version: &str) -> Option<String> {
    if is_of_responses(path) {
        return Some(format!("/openai{path}?api-version={api_version}"));
    }
    let segment = path_segment::encode(model).filter(|_| has_path(path))?;
    Some(format!("/openai/deployments/{segment}{path}?api-version={api_version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_is_one_segment_of_its_path() {
        let path =
            |model| deployment_path("/chat/completions", model, "2024-10-21").unwrap_or_default();
        let at = |name: &str| {
            format!("/openai/deployments/{name}/chat/completions?api-version=2024-10-21")
        };
        assert_eq!(path("my-gpt-4o"), at("my-gpt-4o"));
        assert_eq!(path("a/b&c"), at("a%2Fb%26c"));
        assert_eq!(path("ü"), at("%C3%BC"));
        for name in ["", ".", "..", "a/../b", "a%2f..%2fb", "a?api-version=x", "a#y"] {
            assert_eq!(path(name), "", "{name:?} leads elsewhere");
        }
    }

    #[test]
    fn responses_name_their_deployment_in_the_body() {
        let path = deployment_path("/responses", "m", "2025-04-01-preview");
        assert_eq!(path.as_deref(), Some("/openai/responses?api-version=2025-04-01-preview"));
        let path = deployment_path("/responses/resp_1/cancel", "", "2025-04-01-preview");
        let kept = "/openai/responses/resp_1/cancel?api-version=2025-04-01-preview";
        assert_eq!(path.as_deref(), Some(kept));
        assert_eq!(deployment_path("/moderations", "m", "2024-10-21"), None);
    }
}
