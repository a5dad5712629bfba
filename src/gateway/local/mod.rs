//! Requests that the gateway answers itself: models, balance and usage.

pub(super) mod usage;
pub(super) mod hosted;
pub(super) mod stored;

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::clock::UnixMs;
use crate::closest::closest;
use crate::config::snapshot::{Model, Pricing, Route, Snapshot};
use crate::error::{AllowedMethods, ErrorKind, GatewayError};
use crate::gateway::request::content_path;
use crate::gateway::request::envelope::Envelope;
use crate::ledger::{Key, Ledger};
use crate::pricing;
use crate::protocols::Operation;

/// Claude Code sends `HEAD` here, before it has a key to show, to learn whether anybody is there.
pub(crate) const HELLO_PATHS: [&str; 2] = ["/", "/api/hello"];

/// Endpoints that the gateway answers without an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalEndpoint<'a> {
    /// `GET /v1/models`
    Models,
    /// `GET /v1/models/{id}`
    Model(&'a str),
    /// `GET /v1beta/models`
    ContentModels,
    /// `GET /v1beta/models/{id}`
    ContentModel(&'a str),
    /// `GET /v1/balance`
    Balance,
    /// `GET /v1/usage`
    Usage,
}

impl<'a> LocalEndpoint<'a> {
    /// The local answer at `path`, if there is one.
    pub(crate) fn at(path: &'a str) -> Option<Self> {
        match path {
            "/v1/models" => Some(Self::Models),
            "/v1/balance" => Some(Self::Balance),
            "/v1/usage" => Some(Self::Usage),
            _ => path.strip_prefix("/v1/models/").filter(|id| !id.is_empty()).map(Self::Model),
        }
    }

    /// The path as metrics and logs name it.
    pub(crate) fn route(self) -> &'static str {
        match self {
            Self::Models => "/v1/models",
            Self::Model(_) => "/v1/models/{id}",
            Self::ContentModels => "/v1beta/models",
            Self::ContentModel(_) => "/v1beta/models/{id}",
            Self::Balance => "/v1/balance",
            Self::Usage => "/v1/usage",
        }
    }

    /// The document, as JSON, for the request's `query`.
    pub(crate) async fn answer<'s>(
        self,
        query: Option<&str>,
        snapshot: &'s Snapshot,
        ledger: &Ledger,
        key: &Key,
        envelope: Envelope,
    ) -> Result<String, GatewayError> {
        match self {
            Self::Models | Self::ContentModels => {
                // A pattern stands for names that nobody has listed.
                let usable = snapshot
                    .models
                    .iter()
                    .filter(|model| !model.is_wildcard() && key.may_use(&model.id, &model.id));
                let priced = |model: &'s Arc<Model>| (model, paid(ledger, key, model, &model.id));
                Ok(list(&usable.map(priced).collect::<Vec<_>>(), envelope))
            }
            Self::Model(id) | Self::ContentModel(id) => {
                // SDKs write a slash in a name as `%2F`.
                let id = percent_decode_str(id).decode_utf8_lossy();
                let usable = |model: &&Arc<Model>| key.may_use(&id, &model.id);
                match snapshot.model(&id).filter(usable) {
                    Some(model) => {
                        let prices = paid(ledger, key, model, &id);
                        Ok(describe(&id, model, &prices, envelope).to_string())
                    }
                    None => Err(GatewayError::new(
                        ErrorKind::ModelNotFound,
                        "This model does not exist, or this API key may not use it.",
                    )),
                }
            }
            Self::Usage => {
                let usage = usage::answer(ledger, key, query, UnixMs::now()).await?;
                Ok(usage.to_string())
            }
            Self::Balance => {
                let account = ledger.durable_account(key.account).await;
                let account = account.and_then(|account| {
                    account.ok_or(crate::ledger::LedgerError::UnknownAccount(key.account))
                });
                let account = account.map_err(|error| usage::unread("balance", &error))?;
                Ok(json!({
                    "object": "balance",
                    "currency": "USD",
                    "granted": account.balance.paid_in(),
                    "available": account.balance.available,
                    "held": account.balance.held,
                    "spent": account.balance.spent,
                    "debt": account.balance.debt,
                    "credit_limit": account.balance.credit,
                    "credit_used": account.balance.credit_used(),
                })
                .to_string())
            }
        }
    }
}

/// The list of models, or one of them, in Google's shape.
pub(crate) fn listed<'a>(snapshot: &Snapshot, path: &'a str) -> Option<LocalEndpoint<'a>> {
    if content_path::routes(snapshot).any(|route| route.path == path) {
        return Some(LocalEndpoint::ContentModels);
    }
    content_path::below(snapshot, path).map(|(_, id)| LocalEndpoint::ContentModel(id))
}

/// The prices that the key's account pays now for the model under this `name`.
fn paid(ledger: &Ledger, key: &Key, model: &Model, name: &str) -> Arc<Pricing> {
    pricing::prices_for(ledger, key.account, (model, name), UnixMs::now())
}

/// Models in the shape that the client's SDK reads, with the prices that its account pays.
fn list(models: &[(&Arc<Model>, Arc<Pricing>)], envelope: Envelope) -> String {
    let is_offered = |(model, _): &&(&Arc<Model>, Arc<Pricing>)| {
        // Google's clients choose among those that they can ask for content.
        envelope != Envelope::Google || model.serves(Operation::GenerateContent)
    };
    let written = |(model, prices): &(&Arc<Model>, Arc<Pricing>)| {
        let write = || describe(&model.id, model, prices, envelope).to_string();
        match envelope {
            Envelope::Openai | Envelope::Responses | Envelope::Dashscope => {
                prices.listed.as_openai(write).to_owned()
            }
            Envelope::Anthropic => prices.listed.as_anthropic(write).to_owned(),
            Envelope::Google => write(),
        }
    };
    let data = models.iter().filter(is_offered).map(written).collect::<Vec<_>>().join(",");
    let id =
        |model: Option<&(&Arc<Model>, Arc<Pricing>)>| json!(model.map(|(model, _)| &*model.id));
    match envelope {
        Envelope::Openai | Envelope::Responses | Envelope::Dashscope => {
            format!(r#"{{"object":"list","data":[{data}]}}"#)
        }
        Envelope::Google => format!(r#"{{"models":[{data}]}}"#),
        Envelope::Anthropic => {
            let (first, last) = (id(models.first()), id(models.last()));
            format!(r#"{{"data":[{data}],"has_more":false,"first_id":{first},"last_id":{last}}}"#)
        }
    }
}

/// A model in the format of the client's SDK, with its prices. Its creation time is unknown.
fn describe(id: &str, model: &Model, prices: &Pricing, envelope: Envelope) -> Value {
    match envelope {
        Envelope::Openai | Envelope::Responses | Envelope::Dashscope => {
            json!({
                "id": id,
                "object": "model",
                "created": 0,
                "owned_by": model.owned_by,
                "pricing": pricing::pricing(model, prices),
            })
        }
        Envelope::Google => {
            let does = model.serves(Operation::GenerateContent);
            let methods: &[&str] = if does { &["generateContent", "countTokens"] } else { &[] };
            json!({
                "name": format!("models/{id}"),
                "baseModelId": id,
                "version": "",
                "displayName": id,
                "description": "",
                "inputTokenLimit": model.limits.input_tokens_max,
                "outputTokenLimit": model.limits.output_tokens_max,
                "supportedGenerationMethods": methods,
                "pricing": pricing::pricing(model, prices),
            })
        }
        Envelope::Anthropic => json!({
            "type": "model",
            "id": id,
            "display_name": id,
            "created_at": "1970-01-01T00:00:00Z",
            "lifecycle": "active",
            "max_input_tokens": model.limits.input_tokens_max,
            "max_tokens": model.limits.output_tokens_max,
            "pricing": pricing::pricing(model, prices),
        }),
    }
}

/// The id of the task whose record is at this path: below a route that starts tasks.
pub(crate) fn task_at<'a>(snapshot: &Snapshot, path: &'a str) -> Option<&'a str> {
    let mut routes = snapshot.routes.iter().filter(|route| route.operation.info().is_task);
    let id = routes.find_map(|route| path.strip_prefix(&route.path)?.strip_prefix('/'))?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

/// Error for an unknown path, with suggestions.
pub(crate) fn not_found(snapshot: &Snapshot, path: &str) -> GatewayError {
    let shown: String = path.chars().take(80).collect();
    let mut paths: Vec<String> = snapshot.routes.iter().map(shown_path).collect();
    let tasks = snapshot.routes.iter().filter(|route| route.operation.info().is_task);
    paths.extend(tasks.map(|route| format!("GET {}/{{id}}", route.path)));
    let responses = snapshot.routes.iter().filter(|route| route.operation == Operation::Responses);
    paths.extend(responses.map(|route| format!("GET {}/{{id}}", route.path)));
    let local = ["GET /v1/models", "GET /v1/models/{id}", "GET /v1/balance", "GET /v1/usage"];
    paths.extend(local.map(str::to_owned));
    if snapshot.mcp.enabled {
        paths.push(format!("POST {}", snapshot.mcp.path));
    }
    if snapshot.console.enabled {
        paths.push(format!("GET {}", snapshot.console.path));
    }
    let message = match nearest(&paths, &shown) {
        Some(closest_path) => {
            format!("There is nothing at {shown:?}. Did you mean {closest_path}?")
        }
        None => format!("There is nothing at {shown:?}."),
    };
    GatewayError::new(ErrorKind::NotFound, format!("{message} There are: {}.", paths.join(", ")))
}

/// A route as an answer names it.
fn shown_path(route: &Arc<Route>) -> String {
    format!("POST {}{}", route.path, route.operation.info().path_suffix)
}

/// The path that was probably meant: a base address has a `/v1` too few or too many, a slash stands at
/// the end, or a letter is wrong.
fn nearest<'a>(paths: &'a [String], requested: &str) -> Option<&'a str> {
    let mut requested = requested.trim_end_matches('/');
    while let Some(rest) = requested.strip_prefix("/v1").filter(|rest| rest.starts_with('/')) {
        requested = rest;
    }
    let bare = |path: &'a String| {
        let (_, path) = path.split_once(' ')?;
        Some(path.strip_prefix("/v1").unwrap_or(path))
    };
    let closest_path = closest(requested, paths.iter().filter_map(bare))?;
    paths.iter().map(String::as_str).find(|path| path.ends_with(closest_path))
}

/// The answer to a request for a WebSocket where there is none. Clients go on over HTTP at once when they
/// read this status, and try for seconds after any other.
pub(crate) fn no_websocket() -> GatewayError {
    let message = "WebSockets are not spoken here. Send the same request with POST over HTTP.";
    GatewayError::new(ErrorKind::UpgradeRequired, message)
}

/// The answer for the right path with the wrong method.
pub(crate) fn wrong_method(allow: AllowedMethods) -> GatewayError {
    let message = match allow {
        AllowedMethods::Get => "This path takes GET requests.",
        AllowedMethods::Post => "This path takes POST requests.",
        AllowedMethods::GetOrDelete => "This path takes GET and DELETE requests.",
    };
    let error = GatewayError::new(ErrorKind::MethodNotAllowed, message);
    GatewayError { allow: Some(allow), ..error }
}
