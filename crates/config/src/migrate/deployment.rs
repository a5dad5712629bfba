//! The entries of `model_list`: several of one name are one model of ours with several targets.

use tollgate_money::price::Unit;
use tollgate_protocols::{Dialect, Operation};

use super::field::{INFO, PARAMS, PRICES, offers};
use super::place::{host_name, is_region};
use super::plan::PlannedUpstream;
use super::provider::{self, ApiLocation, LitellmProvider};
use super::tree::YamlNode;
use super::values::Values;
use super::{Migration, figure, listed};
use crate::snapshot::{MODEL_PUNCTUATION, NAME_BYTES_MAX};
use crate::spans::Mark;

/// The last place that a target can have.
const PRIORITY_MAX: u64 = 1000;
/// Maximum value of a rate.
pub(super) const RATE_MAX: u64 = 1_000_000_000;

/// One entry of `model_list`.
pub(super) struct Deployment {
    pub(super) mark: Mark,
    /// The name that customers use.
    pub(super) name: String,
    /// Operations of the model.
    pub(super) operations: Vec<Operation>,
    /// Dialect of its upstream.
    pub(super) dialect: Dialect,
    /// The upstream that does it.
    pub(super) upstream: String,
    /// Anthropic's OpenAI-compatible API, for a model whose other targets answer OpenAI's clients
    /// without a translation.
    pub(super) compatible: Option<PlannedUpstream>,
    /// The provider's name for the model.
    pub(super) own: String,
    pub(super) priority: u64,
    pub(super) weight: Option<u64>,
    pub(super) rpm: Option<u64>,
    pub(super) tpm: Option<u64>,
    pub(super) concurrent: Option<u64>,
    pub(super) prices: Vec<(Unit, String)>,
    pub(super) limits: Vec<(String, String)>,
    /// Prices and limits of this project's own list.
    pub(super) listed: Option<listed::ShippedModel>,
}

impl Migration<'_> {
    /// Reads one entry; `None` when it cannot be served, which is said.
    pub(super) fn deployment(&mut self, entry: &YamlNode, root: &YamlNode) -> Option<Deployment> {
        let (Some(name), Some(params)) = (entry.text_of("model_name"), entry.get("litellm_params"))
        else {
            let help = "an entry has a `model_name`, and `litellm_params` with a `model`";
            self.left_out(entry.mark, "this entry is left out", help);
            return None;
        };
        let mark = entry.get("model_name").map_or(entry.mark, |name| name.mark);
        let nothing = YamlNode { mark: params.mark, value: super::tree::YamlValue::Nothing };
        let info = entry.get("model_info").unwrap_or(&nothing);
        self.sort_out(params, PARAMS);
        self.sort_out(info, INFO);
        let (provider, own) = self.provider(name, params, mark)?;
        if !self.is_usable_name(name, &own, mark) {
            return None;
        }
        let base_model = info.text_of("base_model").unwrap_or(&own);
        // A base model may have the provider in front, which lists have not.
        let base_model = base_model.rsplit('/').next().unwrap_or_default();
        let listed = listed::find(provider.listed_as, base_model);
        let operations = self.operations(provider, info, &own, listed.as_ref(), mark)?;
        let values = Values { params, shared: self.shared_values(params, root) };
        let mut upstream = self.upstream(provider, &values, *operations.first()?)?;
        let whole = |node: &YamlNode, field: &str, max| {
            node.text_of(field).and_then(|text| figure::whole(text, 1..=max))
        };
        if provider.protocol.dialect() == Dialect::Anthropic {
            // Its OpenAI-compatible API may become a second upstream, named the same with `-chat` behind.
            upstream.name = provider.name.to_owned();
        }
        Some(Deployment {
            mark,
            name: name.to_owned(),
            operations,
            dialect: provider.protocol.dialect(),
            compatible: compatible(provider, &upstream),
            upstream: self.plan.upstream(upstream),
            listed,
            priority: whole(params, "order", PRIORITY_MAX).unwrap_or(0),
            weight: whole(params, "weight", RATE_MAX),
            rpm: whole(params, "rpm", RATE_MAX),
            tpm: whole(params, "tpm", RATE_MAX),
            concurrent: whole(params, "max_parallel_requests", RATE_MAX).or(self.concurrent),
            prices: self.prices(params, info),
            limits: limits(info),
            own,
        })
    }

    /// Provider of an entry, and its name for the model; `None` if the provider is not supported.
    fn provider(
        &mut self,
        name: &str,
        params: &YamlNode,
        mark: Mark,
    ) -> Option<(&'static LitellmProvider, String)> {
        let model = params.text_of("model").unwrap_or_default();
        let found = provider::find(model, params.text_of("custom_llm_provider"));
        let found = found.and_then(|(provider, own)| {
            let own = own_name(provider, &own);
            match (provider.place, own) {
                (ApiLocation::Vertex, own) if !own.starts_with("gemini") => Err(format!(
                    "of Vertex AI, Google's own models of the name `gemini-…` are reached, and `{own}` \
                     is none"
                )),
                (ApiLocation::Azure, own) if own.starts_with("claude") => Err(
                    "Claude on Azure has an API of the protocol `anthropic`: add an upstream by hand"
                        .to_owned(),
                ),
                (_, own) => Ok((provider, own.to_owned())),
            }
        });
        match found {
            Ok(found) => Some(found),
            Err(why) => {
                let at = params.get("model").map_or(mark, |model| model.mark);
                self.left_out(at, &format!("this target of `{name}` is left out"), &why);
                None
            }
        }
    }

    /// True if customers can use the name here. A pattern gives its targets the customer's name.
    fn is_usable_name(&mut self, name: &str, own: &str, mark: Mark) -> bool {
        let literal = name.strip_suffix('*').unwrap_or(name);
        // LiteLLM replaces the asterisk in the provider's name; ours has one price, and no rewriting.
        if name.ends_with('*') && name != own {
            let help = "a pattern of ours sends the customer's name upstream as it is, and has one \
                        price: list the models one by one";
            self.left_out(mark, &format!("the pattern `{name}` is left out"), help);
            return false;
        }
        let is_letter =
            |byte: u8| byte.is_ascii_alphanumeric() || MODEL_PUNCTUATION.as_bytes().contains(&byte);
        let is_name =
            (1..=NAME_BYTES_MAX).contains(&literal.len()) && literal.bytes().all(is_letter);
        if !is_name && name != "*" {
            let help = format!(
                "names have 1 to {NAME_BYTES_MAX} letters, digits and `{MODEL_PUNCTUATION}`"
            );
            self.left_out(mark, &format!("the model `{name}` is left out"), &help);
            return false;
        }
        let is_own_name = !own.is_empty() && !own.chars().any(char::is_control);
        if !is_own_name {
            let help = "`litellm_params.model` names no model behind its provider";
            self.left_out(mark, &format!("this target of `{name}` is left out"), help);
        }
        is_own_name
    }

    /// The operations of a model: by its mode or its name, as far as the provider's protocol has them.
    fn operations(
        &mut self,
        provider: &LitellmProvider,
        info: &YamlNode,
        own: &str,
        listed: Option<&listed::ShippedModel>,
        mark: Mark,
    ) -> Option<Vec<Operation>> {
        let mode = info.text_of("mode");
        let Some(operation) = mode.map_or_else(|| Some(by_name(own)), by_mode) else {
            let mode = mode.unwrap_or_default();
            let all: Vec<&str> = Operation::ALL.iter().map(|one| one.as_str()).collect();
            let help = format!("these operations are served: {}", all.join(", "));
            self.left_out(mark, &format!("models of the mode `{mode}` are left out"), &help);
            return None;
        };
        // Some models are only served over the Responses API: chat requests would be refused upstream.
        if mode == Some("responses") && provider.serves(operation) {
            return Some(vec![operation]);
        }
        if operation.info().is_prompt {
            return Some(provider.prompts());
        }
        if !provider.serves(operation) {
            let message = format!("{operation} over `{}` is left out", provider.name);
            self.left_out(mark, &message, &provider.served());
            return None;
        }
        let of_list = listed.map(|listed| listed.operations.clone()).unwrap_or_default();
        // Our own list knows more of the model than a mode, such as that an image model also edits.
        if of_list.contains(&operation) && of_list.iter().all(|one| provider.serves(*one)) {
            return Some(of_list);
        }
        Some(vec![operation])
    }

    /// The upstream of an entry; reports an entry without one and returns `None`.
    fn upstream(
        &mut self,
        provider: &LitellmProvider,
        values: &Values<'_>,
        operation: Operation,
    ) -> Option<PlannedUpstream> {
        let base_url = self.base_url(provider, values, operation)?;
        let auth = self.sign_in(provider, values);
        let credential = match values.get("api_key") {
            // An upstream has a key or signs in, not both.
            _ if auth.is_some() => None,
            Some(key) => self.secret(key),
            None if provider.key.is_empty() => None,
            None => Some(format!("${{{}}}", provider.key)),
        };
        let timeout = values.params.get("timeout");
        let read_timeout = timeout.and_then(|seconds| figure::duration(seconds.text()?));
        if let (Some(timeout), None) = (timeout, &read_timeout) {
            self.left_out(timeout.mark, "`timeout` is left out", "1 ms to a day can be waited");
        }
        let typed = values.get("api_base").or_else(|| values.get("base_url"));
        let named = typed.and_then(|url| host_name(url, provider.name));
        let name = named.unwrap_or_else(|| provider.name.replace('_', "-"));
        let protocol = provider.protocol.as_str();
        let headers = self.headers(values);
        Some(PlannedUpstream { name, protocol, base_url, credential, auth, headers, read_timeout })
    }

    /// Headers of the operator's own, where upstreams can have them.
    fn headers(&mut self, values: &Values<'_>) -> Vec<(String, String)> {
        if !offers("headers") {
            return Vec::new();
        }
        let mut headers = Vec::new();
        for field in ["extra_headers", "headers"] {
            for header in values.params.get(field).map(YamlNode::fields).unwrap_or_default() {
                let value = match is_secret(&header.key) {
                    true => self.secret(&header.node),
                    false => header.node.text().map(Self::filled),
                };
                headers.extend(value.map(|value| (header.key.clone(), value)));
            }
        }
        let organization = values.filled("organization");
        headers.extend(organization.map(|id| ("OpenAI-Organization".to_owned(), id)));
        headers
    }

    /// The shared credential of an entry, from `credential_list`.
    fn shared_values<'r>(&mut self, params: &YamlNode, root: &'r YamlNode) -> Option<&'r YamlNode> {
        let name = params.get("litellm_credential_name")?;
        let list = root.get("credential_list").map(YamlNode::items).unwrap_or_default();
        let found = list.iter().find(|item| item.text_of("credential_name") == name.text());
        if found.is_none() {
            let help = "name an entry of `credential_list`";
            self.left_out(name.mark, "there is no such credential", help);
        }
        found.and_then(|item| item.get("credential_values"))
    }

    fn prices(&mut self, params: &YamlNode, info: &YamlNode) -> Vec<(Unit, String)> {
        let mut prices = Vec::new();
        for (theirs, unit) in PRICES {
            let Some(node) = info.get(theirs).or_else(|| params.get(theirs)) else { continue };
            let text = node.text().unwrap_or_default();
            let price = match unit.info().per {
                1 => figure::per_unit(text),
                1_000 => figure::per_thousand(text),
                _ => figure::per_million(text),
            };
            match price {
                Ok(price) => prices.push((*unit, price)),
                Err(why) => self.left_out(node.mark, &format!("`{theirs}` is left out"), why),
            }
        }
        prices
    }
}

/// True for a header that may hold a key.
fn is_secret(header: &str) -> bool {
    let name = header.to_ascii_lowercase();
    ["auth", "key", "token", "secret", "cookie"].iter().any(|word| name.contains(word))
}

/// The provider's own name for a model, without what LiteLLM puts before it.
fn own_name<'a>(provider: &LitellmProvider, own: &'a str) -> &'a str {
    if provider.place != ApiLocation::Bedrock {
        return own;
    }
    let mut own = own;
    while let Some((first, rest)) = own.split_once('/') {
        if !matches!(first, "converse" | "converse_like" | "invoke") && !is_region(first) {
            break;
        }
        own = rest;
    }
    own
}

/// An upstream for Anthropic's OpenAI-compatible API, beside the native one.
fn compatible(provider: &LitellmProvider, upstream: &PlannedUpstream) -> Option<PlannedUpstream> {
    (provider.protocol.dialect() == Dialect::Anthropic).then(|| PlannedUpstream {
        name: format!("{}-chat", upstream.name),
        protocol: Dialect::Openai.as_str(),
        base_url: format!("{}/v1", upstream.base_url),
        ..upstream.clone()
    })
}

/// The operation of models of this `mode`; `None` for a mode that is not served.
fn by_mode(mode: &str) -> Option<Operation> {
    Operation::ALL.into_iter().find(|operation| operation.info().litellm_mode == Some(mode))
}

/// The operation that a model's name suggests, where no mode is set.
fn by_name(own: &str) -> Operation {
    let fits = |pattern: &&str| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) => own.contains(pattern.trim_matches('*')),
        (Some(end), None) => own.ends_with(end),
        (None, Some(begin)) => own.starts_with(begin),
        (None, None) => own == *pattern,
    };
    let fitting = Operation::ALL.into_iter().filter(|one| one.info().model_names.iter().any(fits));
    fitting.min_by_key(|one| one.info().guess_rank).unwrap_or(Operation::Chat)
}

/// The limits of a request, from `model_info`.
fn limits(info: &YamlNode) -> Vec<(String, String)> {
    let whole = |field: &str| {
        let text = info.text_of(field)?;
        figure::whole(text, 1..=RATE_MAX).map(|count| count.to_string())
    };
    let context = whole("max_input_tokens").map(|count| ("context_tokens_max".to_owned(), count));
    // `max_tokens` is the older name, which LiteLLM still reads.
    let output = whole("max_output_tokens").or_else(|| whole("max_tokens"));
    let output = output.map(|count| ("output_tokens_max".to_owned(), count));
    context.into_iter().chain(output).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_two_operations_is_transcription_before_image_before_speech() {
        for (name, operation) in [
            ("whisper-gpt-image", Operation::Transcription),
            ("gpt-image-transcribe", Operation::Transcription),
            ("tts-transcribe", Operation::Transcription),
            ("whisper-tts", Operation::Transcription),
            ("gpt-image-tts", Operation::ImageGeneration),
            ("tts-dall-e", Operation::ImageGeneration),
            ("embed-whisper", Operation::Embeddings),
            ("rerank-moderation", Operation::Rerank),
            ("moderation-transcribe", Operation::Moderations),
            ("tts-1", Operation::Speech),
            ("gpt-4o", Operation::Chat),
        ] {
            assert_eq!(by_name(name), operation, "{name}");
        }
    }
}
