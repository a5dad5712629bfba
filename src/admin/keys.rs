//! Customers' API keys. The key itself is shown once, when it is made.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::AdminState;
use super::accounts::{checked, find as find_account};
use super::error::{Answer, ApiError};
use super::limits::{KeyLimitsBody, KeyLimitsView, present};
use super::request::{Body, Page, Params};
use crate::clock::UnixMs;
use crate::ledger::{AccountId, Key, KeyId, KeyLimits, KeyLimitsPatch, KeyPatch, NewKey};

/// The most models that one key can name.
const MODELS_MAX: usize = 100;

/// A key as it is shown: everything but the key.
#[derive(Serialize)]
struct KeyView<'a> {
    id: KeyId,
    account_id: AccountId,
    name: &'a str,
    models: Option<&'a [String]>,
    expires_at: Option<String>,
    disabled: bool,
    limits: KeyLimitsView,
    created_at: String,
    updated_at: String,
}

impl<'a> KeyView<'a> {
    fn of(state: &AdminState, key: &'a Key) -> Self {
        Self {
            id: key.id,
            account_id: key.account,
            name: &key.name,
            models: key.models.as_deref(),
            expires_at: key.expires_at.map(UnixMs::to_rfc3339),
            disabled: key.disabled,
            limits: state.ledger.key_limits(key.id).into(),
            created_at: key.created_at.to_rfc3339(),
            updated_at: key.updated_at.to_rfc3339(),
        }
    }
}

/// The answer to a change: the key, what the operator may not have meant, and the secret if it is
/// new.
#[derive(Serialize)]
struct Changed<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(flatten)]
    view: KeyView<'a>,
    warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewKeyBody {
    name: String,
    #[serde(default)]
    models: Option<Vec<String>>,
    #[serde(default)]
    expires_at: Option<Time>,
    #[serde(default)]
    limits: Option<KeyLimitsBody>,
}

/// `POST /admin/v1/accounts/{account}/keys`
pub(super) async fn create(
    State(state): State<AdminState>,
    Path(account): Path<String>,
    Body(new): Body<NewKeyBody>,
) -> Answer<(StatusCode, Json<Value>)> {
    checked("name", &new.name)?;
    check_models(new.models.as_deref())?;
    let account = find_account(&state, &account)?.id;
    let new = NewKey {
        name: new.name,
        models: new.models,
        expires_at: new.expires_at.map(|time| time.0),
        limits: patch(new.limits).of(KeyLimits::default()),
    };
    let (secret, key) = state.ledger.create_key(account, new).await?;
    let body = Changed {
        key: Some(secret.expose()),
        view: KeyView::of(&state, &key),
        warnings: warnings(&state, &key),
    };
    Ok((StatusCode::CREATED, Json(json!(body))))
}

/// `GET /admin/v1/accounts/{account}/keys`, oldest first.
pub(super) async fn list(
    State(state): State<AdminState>,
    Path(account): Path<String>,
    Params(page): Params<Page<KeyId>>,
) -> Answer<Json<Value>> {
    let account = find_account(&state, &account)?.id;
    let keys = state.ledger.keys_of(account);
    Ok(Json(page.list(keys, |key| key.id, |key| json!(KeyView::of(&state, &key)))?))
}

/// `GET /admin/v1/keys/{key}`
pub(super) async fn show(
    State(state): State<AdminState>,
    Path(key): Path<String>,
) -> Answer<Json<Value>> {
    let key = find(&state, &key)?;
    Ok(Json(json!(KeyView::of(&state, &key))))
}

fn find(state: &AdminState, id: &str) -> Answer<Arc<Key>> {
    let key = id.parse().ok().and_then(|id| state.ledger.key_by_id(id));
    key.ok_or_else(|| ApiError::not_found("There is no such key."))
}

/// What to change: a field that is left out stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyPatchBody {
    #[serde(default)]
    name: Option<String>,
    #[serde(default, deserialize_with = "present")]
    models: Option<Option<Vec<String>>>,
    #[serde(default, deserialize_with = "present")]
    expires_at: Option<Option<Time>>,
    #[serde(default)]
    disabled: Option<bool>,
    #[serde(default)]
    limits: Option<KeyLimitsBody>,
}

fn patch(limits: Option<KeyLimitsBody>) -> KeyLimitsPatch {
    limits.unwrap_or_default().into()
}

/// `PATCH /admin/v1/keys/{key}`
pub(super) async fn update(
    State(state): State<AdminState>,
    Path(key): Path<String>,
    Body(body): Body<KeyPatchBody>,
) -> Answer<Json<Value>> {
    if let Some(name) = &body.name {
        checked("name", name)?;
    }
    check_models(body.models.as_ref().and_then(Option::as_deref))?;
    let patch = KeyPatch {
        name: body.name,
        models: body.models,
        expires_at: body.expires_at.map(|expires_at| expires_at.map(|time| time.0)),
        disabled: body.disabled,
        limits: patch(body.limits),
    };
    let key = state.ledger.update_key(find(&state, &key)?.id, patch).await?;
    let warnings = warnings(&state, &key);
    Ok(Json(json!(Changed { key: None, view: KeyView::of(&state, &key), warnings })))
}

fn check_models(models: Option<&[String]>) -> Answer<()> {
    let models = models.unwrap_or_default();
    if models.len() > MODELS_MAX {
        let message = format!("A key names at most {MODELS_MAX} models.");
        return Err(ApiError::invalid("models", message));
    }
    models.iter().try_for_each(|model| checked("models", model))
}

/// What was accepted but may be a slip. A model that is not listed is no error: the key may be made
/// before the configuration that brings the model.
fn warnings(state: &AdminState, key: &Key) -> Vec<String> {
    let config = state.config.load();
    let is_known =
        |name: &str| config.models_by_id.contains_key(name) || config.model(name).is_some();
    let unlisted = key.models.iter().flatten().filter(|model| !is_known(model));
    let mut warnings: Vec<String> =
        unlisted.map(|model| format!("The configuration lists no model {model:?}.")).collect();
    if key.models.as_ref().is_some_and(Vec::is_empty) {
        warnings.push("The key may use no model at all; `null` allows all.".to_owned());
    }
    if key.expires_at.is_some_and(|time| time <= UnixMs::now()) {
        warnings.push("`expires_at` is in the past: the key does not work.".to_owned());
    }
    warnings
}

/// A time in RFC 3339.
struct Time(UnixMs);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected = "expected a time in RFC 3339 such as \"2027-01-31T12:00:00Z\"";
        UnixMs::parse_rfc3339(&text).map(Self).ok_or_else(|| serde::de::Error::custom(expected))
    }
}
