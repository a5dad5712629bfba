//! Customers' API keys. The key itself is shown once, when it is made.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::accounts::{TEXT_PATTERN, check_text, find as find_account};
use super::caller::Caller;
use super::error::{ApiError, ApiResult};
use super::limits::{KeyLimitsBody, KeyLimitsView, present};
use super::request::{
    Body, ListView, PAGE_DEFAULT, PageQuery, Params, PathNames, WrittenOnce, check_limit,
    unknown_cursor,
};
use super::value::{ObjectBody, Time};
use tollgate_ledger::key_rules::{
    KEY_MODEL_BYTES_MAX, KEY_MODELS_MAX, KeyModelsError, NAME_BYTES_MAX, check_key_models,
};
use tollgate_ledger::{AccountId, Key, KeyId, KeyLimits, KeyLimitsPatch, KeyPatch, NewKey};
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::cut_page;

/// A key as returned: everything except the secret.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Key")]
pub(super) struct KeyView {
    id: KeyId,
    account_id: AccountId,
    name: String,
    /// Models that the key may use; `null` for all.
    models: Option<Vec<String>>,
    /// Expiry; `null` for never.
    expires_at: Option<Time>,
    disabled: bool,
    limits: KeyLimitsView,
    created_at: Time,
    updated_at: Time,
}

impl KeyView {
    fn new(state: &AdminState, key: &Key) -> Self {
        Self {
            id: key.id,
            account_id: key.account,
            name: key.name.clone(),
            models: key.models.clone(),
            expires_at: key.expires_at.map(Time),
            disabled: key.disabled,
            limits: state.ledger.key_limits(key.id).into(),
            created_at: key.created_at.into(),
            updated_at: key.updated_at.into(),
        }
    }
}

/// The changed key, with warnings about possible mistakes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ChangedKey")]
pub(super) struct ChangedKeyView {
    #[serde(flatten)]
    view: KeyView,
    /// Warnings: accepted values that may be mistakes.
    warnings: Vec<String>,
}

impl ChangedKeyView {
    fn new(state: &AdminState, key: &Key) -> Self {
        Self { view: KeyView::new(state, key), warnings: warnings(state, key) }
    }
}

/// The new key with its secret, and warnings about possible mistakes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CreatedKey")]
pub(super) struct CreatedKeyView {
    /// The secret key, returned only in this answer, not even when the request is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(flatten)]
    changed: ChangedKeyView,
}

/// Parameters of a new key.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "NewKey")]
#[serde(deny_unknown_fields)]
pub(super) struct NewKeyBody {
    /// Name that its owner gives the key.
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    name: String,
    /// Models that the key may use; `null` for all.
    #[serde(default)]
    #[schemars(schema_with = "models_schema")]
    models: Option<Vec<String>>,
    /// Expiry; `null` for never.
    #[serde(default)]
    expires_at: Option<Time>,
    #[serde(default)]
    limits: Option<ObjectBody<KeyLimitsBody>>,
}

/// `POST /admin/v1/accounts/{account}/keys`
pub(super) async fn create(
    State(state): State<AdminState>,
    PathNames(account): PathNames<String>,
    caller: Caller,
    Body(new): Body<NewKeyBody>,
) -> ApiResult<WrittenOnce<CreatedKeyView>> {
    check_text("name", &new.name)?;
    // Before the account is looked up, so that a wrong body is a 400 for every account.
    check_models(new.models.as_deref())?;
    let account = find_account(&state, &account)?.id;
    let new = NewKey {
        name: new.name,
        models: new.models,
        expires_at: new.expires_at.map(|time| time.0),
        limits: patch(new.limits).of(KeyLimits::default()),
    };
    let written = caller.by(&state).create_key(account, new).await?;
    let (secret, key) = written.value;
    let changed = ChangedKeyView::new(&state, &key);
    // Only the first response has the secret: the ledger keeps a digest, and a repetition cannot show it
    // again.
    let key = secret.map(|secret| secret.expose().to_owned());
    Ok(WrittenOnce { repeated: written.repeated, body: CreatedKeyView { key, changed } })
}

/// `GET /admin/v1/accounts/{account}/keys`, oldest first.
pub(super) async fn list(
    State(state): State<AdminState>,
    PathNames(account): PathNames<String>,
    Params(PageQuery { limit, after }): Params<PageQuery<KeyId>>,
) -> ApiResult<Json<ListView<KeyView, KeyId>>> {
    let account = find_account(&state, &account)?.id;
    let limit = check_limit(limit.unwrap_or(PAGE_DEFAULT))?;
    let after = match after {
        None => None,
        Some(id) => {
            let key = state.ledger.key_by_id(id).filter(|key| key.account == account);
            Some(key.ok_or_else(unknown_cursor)?)
        }
    };
    // One more than is shown tells whether there is a next page.
    let mut keys = state.ledger.list_keys(account, after.as_deref(), limit + 1);
    let next_after = cut_page(&mut keys, limit, |key| key.id);
    let shown = keys.iter().map(|key| KeyView::new(&state, key));
    Ok(Json(ListView::new(shown.collect(), next_after)))
}

/// `GET /admin/v1/keys/{key}`
pub(super) async fn show(
    State(state): State<AdminState>,
    PathNames(key): PathNames<String>,
) -> ApiResult<Json<KeyView>> {
    let key = find(&state, &key)?;
    Ok(Json(KeyView::new(&state, &key)))
}

fn find(state: &AdminState, id: &str) -> ApiResult<Arc<Key>> {
    let key = id.parse().ok().and_then(|id| state.ledger.key_by_id(id));
    key.ok_or_else(|| ApiError::not_found("There is no such key."))
}

/// Changes to a key. Omitted fields keep their values.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "KeyPatch")]
#[serde(deny_unknown_fields)]
pub(super) struct KeyPatchBody {
    #[serde(default)]
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    name: Option<String>,
    /// Models that the key may use; `null` for all.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "models_schema")]
    models: Option<Option<Vec<String>>>,
    /// Expiry; `null` for never.
    #[serde(default, deserialize_with = "present")]
    expires_at: Option<Option<Time>>,
    #[serde(default)]
    disabled: Option<bool>,
    #[serde(default)]
    limits: Option<ObjectBody<KeyLimitsBody>>,
}

fn patch(limits: Option<ObjectBody<KeyLimitsBody>>) -> KeyLimitsPatch {
    limits.map(|ObjectBody(limits)| limits).unwrap_or_default().into()
}

/// `PATCH /admin/v1/keys/{key}`
pub(super) async fn update(
    State(state): State<AdminState>,
    PathNames(key): PathNames<String>,
    caller: Caller,
    Body(body): Body<KeyPatchBody>,
) -> ApiResult<Json<ChangedKeyView>> {
    if let Some(name) = &body.name {
        check_text("name", name)?;
    }
    check_models(body.models.as_ref().and_then(Option::as_deref))?;
    let patch = KeyPatch {
        name: body.name,
        models: body.models,
        expires_at: body.expires_at.map(|expires_at| expires_at.map(|time| time.0)),
        disabled: body.disabled,
        limits: patch(body.limits),
    };
    let key = caller.by(&state).update_key(find(&state, &key)?.id, patch).await?.value;
    Ok(Json(ChangedKeyView::new(&state, &key)))
}

fn models_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": ["array", "null"],
        "maxItems": KEY_MODELS_MAX,
        "items": {
            "type": "string",
            "pattern": format!("^[!-~]{{1,{KEY_MODEL_BYTES_MAX}}}$"),
        },
    })
}

/// Checks the models of a key. The API is narrower than the ledger, which takes whatever is one line:
/// its schema promises names that `models.yaml` can have.
fn check_models(models: Option<&[String]>) -> ApiResult<()> {
    if check_key_models(models) == Err(KeyModelsError::TooMany) {
        let message = format!("A key names at most {KEY_MODELS_MAX} models.");
        return Err(ApiError::invalid("models", message));
    }
    let is_name = |model: &String| {
        (1..=KEY_MODEL_BYTES_MAX).contains(&model.len())
            && model.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if models.unwrap_or_default().iter().all(is_name) {
        return Ok(());
    }
    let message = format!(
        "A model's name has 1 to {KEY_MODEL_BYTES_MAX} ASCII characters, and no spaces among them."
    );
    Err(ApiError::invalid("models", message))
}

/// Warnings about accepted values. A model that is not configured is no error: the key may be made before the
/// configuration that adds the model.
fn warnings(state: &AdminState, key: &Key) -> Vec<String> {
    let config = state.config.load();
    let is_listed =
        |name: &str| config.models_by_id.contains_key(name) || config.model(name).is_some();
    let unlisted = key.models.iter().flatten().filter(|model| !is_listed(model));
    let mut warnings: Vec<String> =
        unlisted.map(|model| format!("The configuration lists no model {model:?}.")).collect();
    if key.models.as_ref().is_some_and(Vec::is_empty) {
        // An empty list is easily meant as no restriction.
        warnings.push("The key may use no model at all; `null` allows all.".to_owned());
    }
    if key.expires_at.is_some_and(|time| time <= UnixMs::now()) {
        warnings.push("`expires_at` is in the past: the key does not work.".to_owned());
    }
    warnings
}
