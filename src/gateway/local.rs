//! Requests that the gateway answers itself: models, balance and usage.

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::envelope::Envelope;
use super::usage;
use crate::clock::UnixMs;
use crate::config::snapshot::{Model, Snapshot};
use crate::error::{Allow, ErrorKind, GatewayError};
use crate::ledger::{Key, Ledger};
use crate::protocols::Operation;

/// Claude Code sends `HEAD` here, before it has a key to show, to learn whether anybody is there.
pub(super) const HELLO_PATHS: [&str; 2] = ["/", "/api/hello"];

/// What the gateway answers without an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Local<'a> {
    /// `GET /v1/models`
    Models,
    /// `GET /v1/models/{id}`
    Model(&'a str),
    /// `GET /v1/balance`
    Balance,
    /// `GET /v1/usage`
    Usage,
}

impl<'a> Local<'a> {
    /// The local answer at `path`, if there is one.
    pub(super) fn at(path: &'a str) -> Option<Self> {
        match path {
            "/v1/models" => Some(Self::Models),
            "/v1/balance" => Some(Self::Balance),
            "/v1/usage" => Some(Self::Usage),
            _ => path.strip_prefix("/v1/models/").filter(|id| !id.is_empty()).map(Self::Model),
        }
    }

    /// The path as metrics and logs name it.
    pub(super) fn route(self) -> &'static str {
        match self {
            Self::Models => "/v1/models",
            Self::Model(_) => "/v1/models/{id}",
            Self::Balance => "/v1/balance",
            Self::Usage => "/v1/usage",
        }
    }

    /// The document. `query` is the request's.
    pub(super) async fn answer(
        self,
        query: Option<&str>,
        snapshot: &Snapshot,
        ledger: &Ledger,
        key: &Key,
        envelope: Envelope,
    ) -> Result<Value, GatewayError> {
        match self {
            Self::Models => {
                // A pattern stands for names that nobody has listed.
                let usable = snapshot
                    .models
                    .iter()
                    .filter(|model| !model.is_wildcard() && key.may_use(&model.id, &model.id));
                let data: Vec<Value> =
                    usable.map(|model| describe(&model.id, model, envelope)).collect();
                Ok(match envelope {
                    Envelope::Openai | Envelope::Responses | Envelope::Dashscope => {
                        json!({"object": "list", "data": data})
                    }
                    Envelope::Anthropic => json!({
                        "data": data,
                        "has_more": false,
                        "first_id": data.first().map(|model| &model["id"]),
                        "last_id": data.last().map(|model| &model["id"]),
                    }),
                })
            }
            Self::Model(id) => {
                // SDKs write a slash in a name as `%2F`.
                let id = percent_decode_str(id).decode_utf8_lossy();
                let usable = |model: &&std::sync::Arc<Model>| key.may_use(&id, &model.id);
                match snapshot.model(&id).filter(usable) {
                    Some(model) => Ok(describe(&id, model, envelope)),
                    None => Err(GatewayError::new(
                        ErrorKind::ModelNotFound,
                        "This model does not exist, or this API key may not use it.",
                    )),
                }
            }
            Self::Usage => usage::answer(ledger, key, query, UnixMs::now()).await,
            Self::Balance => {
                let account = ledger.durable_account(key.account).await;
                let account = account.and_then(|account| {
                    account.ok_or(crate::ledger::LedgerError::UnknownAccount(key.account))
                });
                let account = account.map_err(|error| usage::unread("balance", &error))?;
                Ok(json!({
                    "object": "balance",
                    "currency": "USD",
                    "granted": account.balance.granted,
                    "available": account.balance.available,
                    "held": account.balance.held,
                    "spent": account.balance.spent,
                }))
            }
        }
    }
}

/// A model in the shape that the client's SDK reads. There is no creation time to tell.
fn describe(id: &str, model: &Model, envelope: Envelope) -> Value {
    match envelope {
        Envelope::Openai | Envelope::Responses | Envelope::Dashscope => {
            json!({"id": id, "object": "model", "created": 0, "owned_by": model.owned_by})
        }
        Envelope::Anthropic => json!({
            "type": "model",
            "id": id,
            "display_name": id,
            "created_at": "1970-01-01T00:00:00Z",
            "lifecycle": "active",
            "max_input_tokens": model.limits.input_tokens_max,
            "max_tokens": model.limits.output_tokens_max,
        }),
    }
}

/// The id of the task whose record is at this path: below a route that starts tasks.
pub(super) fn task_at<'a>(snapshot: &Snapshot, path: &'a str) -> Option<&'a str> {
    let mut routes = snapshot.routes.iter().filter(|route| route.operation == Operation::Video);
    let id = routes.find_map(|route| path.strip_prefix(&route.path)?.strip_prefix('/'))?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

/// The answer for a path that leads nowhere: it says where else to go.
pub(super) fn not_found(snapshot: &Snapshot, path: &str) -> GatewayError {
    let shown: String = path.chars().take(80).collect();
    let mut paths: Vec<String> =
        snapshot.routes.iter().map(|route| format!("POST {}", route.path)).collect();
    let videos = snapshot.routes.iter().filter(|route| route.operation == Operation::Video);
    paths.extend(videos.map(|route| format!("GET {}/{{id}}", route.path)));
    let local = ["GET /v1/models", "GET /v1/models/{id}", "GET /v1/balance", "GET /v1/usage"];
    paths.extend(local.map(str::to_owned));
    let message = format!("There is nothing at {shown:?}. There are: {}.", paths.join(", "));
    GatewayError::new(ErrorKind::NotFound, message)
}

/// The answer for the right path with the wrong method.
pub(super) fn wrong_method(allow: Allow) -> GatewayError {
    let message = match allow {
        Allow::Get => "This path takes GET requests.",
        Allow::Post => "This path takes POST requests.",
    };
    let error = GatewayError::new(ErrorKind::MethodNotAllowed, message);
    GatewayError { allow: Some(allow), ..error }
}
