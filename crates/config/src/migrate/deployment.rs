//! The entries of `model_list`: several of one name are one model of ours with several targets.

use super::field::{INFO, PARAMS, PRICES};
use super::figure;
use super::plan::PlannedUpstream;
use super::provider::{self, Provider};
use super::tree::Node;
use super::{Migration, listed};
use crate::scalar::Scalar as _;
use crate::snapshot::{MODEL_PUNCTUATION, NAME_BYTES_MAX};
use crate::spans::Mark;
use crate::url::BaseUrl;
use tollgate_money::price::Unit;

/// The last place that a target can have.
const PRIORITY_MAX: u64 = 1000;
/// The most of a rate that can be written.
pub(super) const RATE_MAX: u64 = 1_000_000_000;

/// One entry of `model_list`.
pub(super) struct Deployment {
    pub(super) mark: Mark,
    /// The name that customers use.
    pub(super) name: String,
    /// What it can be asked to do, and the upstream that does it.
    pub(super) served: Vec<(&'static str, String)>,
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
    pub(super) listed: Option<listed::Listed>,
}

impl Migration<'_> {
    /// Reads one entry; `None` when it cannot be served, which is said.
    pub(super) fn deployment(&mut self, entry: &Node, root: &Node) -> Option<Deployment> {
        let (Some(name), Some(params)) = (entry.text_of("model_name"), entry.get("litellm_params"))
        else {
            let help = "an entry has a `model_name`, and `litellm_params` with a `model`";
            self.left_out(entry.mark, "this entry is left out", help);
            return None;
        };
        let mark = entry.get("model_name").map_or(entry.mark, |name| name.mark);
        let nothing = Node { mark: params.mark, value: super::tree::Value::Nothing };
        let info = entry.get("model_info").unwrap_or(&nothing);
        self.sort_out(params, PARAMS);
        self.sort_out(info, INFO);
        let model = params.text_of("model").unwrap_or_default();
        let found = provider::find(model, params.text_of("custom_llm_provider"));
        let (provider, own) = match found {
            Ok(found) => found,
            Err(why) => {
                let at = params.get("model").map_or(mark, |model| model.mark);
                self.left_out(at, &format!("this target of `{name}` is left out"), &why);
                return None;
            }
        };
        if !self.is_usable_name(name, &own, mark) {
            return None;
        }
        let base_model = info.text_of("base_model").unwrap_or(&own);
        let base_model = base_model.rsplit('/').next().unwrap_or_default();
        let operation = self.operation(info, &own, mark)?;
        let served = self.upstreams(provider, params, root, operation)?;
        let whole = |node: &Node, field: &str, max| {
            node.text_of(field).and_then(|text| figure::whole(text, 1..=max))
        };
        Some(Deployment {
            mark,
            name: name.to_owned(),
            served,
            listed: listed::find(provider.listed_as, base_model),
            priority: whole(params, "order", PRIORITY_MAX).unwrap_or(0),
            weight: whole(params, "weight", RATE_MAX),
            rpm: whole(params, "rpm", RATE_MAX),
            tpm: whole(params, "tpm", RATE_MAX),
            concurrent: whole(params, "max_parallel_requests", RATE_MAX),
            prices: self.prices(params, info),
            limits: limits(info),
            own,
        })
    }

    /// Whether customers can use the name here. A pattern gives its targets the customer's name.
    fn is_usable_name(&mut self, name: &str, own: &str, mark: Mark) -> bool {
        let literal = name.strip_suffix('*').unwrap_or(name);
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

    /// What the model does: as it is said, or as its name has it.
    fn operation(&mut self, info: &Node, own: &str, mark: Mark) -> Option<&'static str> {
        let Some(mode) = info.get("mode") else {
            return Some(match own {
                own if own.contains("embed") => "embeddings",
                own if own.contains("rerank") => "rerank",
                own if own.starts_with("dall-e") || own.starts_with("gpt-image") => {
                    "image_generation"
                }
                own if own.starts_with("tts-") => "speech",
                _ => "chat",
            });
        };
        let operation = match mode.text().unwrap_or_default() {
            "chat" => Some("chat"),
            "responses" => Some("responses"),
            "embedding" => Some("embeddings"),
            "rerank" => Some("rerank"),
            "image_generation" => Some("image_generation"),
            "audio_speech" => Some("speech"),
            _ => None,
        };
        if operation.is_none() {
            let mode = mode.text().unwrap_or_default();
            let help = "chat, messages, responses, embeddings, rankings, images, speech and video are served";
            self.left_out(mark, &format!("models of the mode `{mode}` are left out"), help);
        }
        operation
    }

    /// The operations that the entry serves, each with its upstream.
    fn upstreams(
        &mut self,
        provider: &Provider,
        params: &Node,
        root: &Node,
        operation: &'static str,
    ) -> Option<Vec<(&'static str, String)>> {
        let shared = self.shared_values(params, root);
        let value =
            |field: &str| params.get(field).or_else(|| shared.and_then(|values| values.get(field)));
        let typed = value("api_base").or_else(|| value("base_url"));
        let base = self.base_url(provider, typed, params)?;
        let credential = match value("api_key") {
            Some(key) => self.secret(key),
            None if provider.key.is_empty() => None,
            None => Some(format!("${{{}}}", provider.key)),
        };
        let timeout = params.get("timeout");
        let read_timeout = timeout.and_then(|seconds| figure::duration(seconds.text()?));
        if let (Some(timeout), None) = (timeout, &read_timeout) {
            self.left_out(timeout.mark, "`timeout` is left out", "1 ms to a day can be waited");
        }
        let name = match typed.and_then(Node::text) {
            Some(_) if provider.protocol == "anthropic" => provider.name.to_owned(),
            Some(url) => host_name(url, provider.name),
            None => provider.name.replace('_', "-"),
        };
        let protocol = provider.protocol;
        let upstream = PlannedUpstream { name, protocol, base_url: base, credential, read_timeout };
        if protocol != "anthropic" {
            // OpenAI itself and Azure have the newer API beside the older.
            let is_openai = provider.listed_as == "openai"
                && (typed.is_none() || provider.name == "azure")
                && operation == "chat";
            let upstream = self.plan.upstream(upstream);
            let more = is_openai.then(|| ("responses", upstream.clone()));
            return Some(std::iter::once((operation, upstream)).chain(more).collect());
        }
        // Anthropic answers OpenAI's clients below `/v1`, and its own.
        let chat = PlannedUpstream {
            name: format!("{}-chat", upstream.name),
            protocol: "openai",
            base_url: format!("{}/v1", upstream.base_url),
            ..upstream.clone()
        };
        let messages = self.plan.upstream(upstream);
        Some(vec![("messages", messages), ("chat", self.plan.upstream(chat))])
    }

    /// What `credential_list` has for the entry.
    fn shared_values<'r>(&mut self, params: &Node, root: &'r Node) -> Option<&'r Node> {
        let wanted = params.get("litellm_credential_name")?;
        let list = root.get("credential_list").map(Node::items).unwrap_or_default();
        let found = list.iter().find(|item| item.text_of("credential_name") == wanted.text());
        if found.is_none() {
            let help = "name an entry of `credential_list`";
            self.left_out(wanted.mark, "there is no such credential", help);
        }
        found.and_then(|item| item.get("credential_values"))
    }

    /// Where the API begins; `None` where that is not known, which is said.
    fn base_url(
        &mut self,
        provider: &Provider,
        typed: Option<&Node>,
        params: &Node,
    ) -> Option<String> {
        let Some((node, text)) = typed.and_then(|node| Some((node, node.text()?))) else {
            if provider.base_url.is_empty() {
                let help = format!("`{}` needs an `api_base`", provider.name);
                self.left_out(params.mark, "this target is left out", &help);
                return None;
            }
            return Some(provider.base_url.to_owned());
        };
        let mut url = Self::filled(text).trim_end_matches('/').to_owned();
        if provider.name == "azure" {
            // Azure's API of this shape needs no `api_version`, and takes the key as any other does.
            url = url.split("/openai").next().unwrap_or_default().to_owned() + "/openai/v1";
        }
        for end in ["/chat/completions", "/embeddings", "/rerank", "/v1/messages"] {
            url = url.strip_suffix(end).unwrap_or(&url).to_owned();
        }
        if !url.contains("${")
            && let Err(error) = BaseUrl::parse(&url)
        {
            self.left_out(node.mark, "this target is left out", &error.message);
            return None;
        }
        Some(url)
    }

    fn prices(&mut self, params: &Node, info: &Node) -> Vec<(Unit, String)> {
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

/// What `model_info` says of the most that one request can use.
fn limits(info: &Node) -> Vec<(String, String)> {
    let whole = |field: &str| {
        let text = info.text_of(field)?;
        figure::whole(text, 1..=RATE_MAX).map(|count| count.to_string())
    };
    let context = whole("max_input_tokens").map(|count| ("context_tokens_max".to_owned(), count));
    let output = whole("max_output_tokens").or_else(|| whole("max_tokens"));
    let output = output.map(|count| ("output_tokens_max".to_owned(), count));
    context.into_iter().chain(output).collect()
}

/// The name of an upstream at a place of one's own: the first part of its host.
fn host_name(url: &str, provider: &str) -> String {
    let host = url.split_once("://").map_or("", |(_, rest)| rest);
    let host = host.split(['/', ':', '?']).next().unwrap_or_default();
    let is_address = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let name = if is_address { provider } else { host.split('.').next().unwrap_or_default() };
    let is_letter = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '-';
    let name: String = name.chars().filter(is_letter).take(NAME_BYTES_MAX / 2).collect();
    if name.is_empty() { provider.replace('_', "-") } else { name }
}
