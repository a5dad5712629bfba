//! The keys of a customer: made (the key is shown once), changed, switched off and on.

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};

use super::access::{LoggedInOperator, Visit};
use super::customer::{CustomerHead, HERE};
use super::done;
use super::form::{self, FormResult};
use crate::error::ApiError;
use tollgate_ledger::{Account, AccountId, Key, KeyId, KeyLimits, KeyPatch, NewKey};
use tollgate_limits::Rates;
use tollgate_types::clock::UnixMs;
use tollgate_types::secret::Secret;
use tollgate_web_kit::{FlashLevel, Form, HtmlPage, PageFrame, new_submit_token, show};

/// Maximum number of listed keys; customers usually have a handful.
const LISTED_MAX: usize = 200;

#[derive(Template)]
#[template(path = "operator_keys.html")]
struct KeysPage {
    frame: PageFrame,
    head: CustomerHead,
    form: Form,
    once: String,
    /// Secret of the new key.
    made: Option<Secret>,
    rows: Vec<KeyRow>,
    left_out: usize,
}

struct KeyRow {
    id: KeyId,
    name: String,
    models: String,
    expires_at: Option<UnixMs>,
    expired: bool,
    disabled: bool,
    created_at: UnixMs,
    limits: String,
}

impl KeyRow {
    fn new(key: &Key, limits: KeyLimits) -> Self {
        Self {
            id: key.id,
            name: key.name.clone(),
            models: key
                .models
                .as_ref()
                .map_or("all".to_owned(), |models| show::line(&models.join(", ")).into_owned()),
            expires_at: key.expires_at,
            expired: key.is_expired(UnixMs::now()),
            disabled: key.disabled,
            created_at: key.created_at,
            limits: show::limits(&limits.rates, limits.spend_per_day, limits.spend_per_month)
                .join(", "),
        }
    }
}

/// `GET /operator/customers/{account}/keys`
pub(super) async fn page(Visit { operator, account }: Visit) -> Response {
    let frame = operator.frame(HERE);
    render(&operator, frame, Form::default(), account, None).into_response()
}

fn render(
    operator: &LoggedInOperator,
    frame: PageFrame,
    form: Form,
    account: Account,
    made: Option<Secret>,
) -> HtmlPage<KeysPage> {
    let ledger = operator.ledger();
    // The newest: operators look for the key that was just made or has just failed.
    let newest = ledger.newest_keys(account.id, LISTED_MAX);
    let left_out = ledger.key_count(account.id).saturating_sub(newest.len());
    let rows = newest.iter().map(|key| KeyRow::new(key, ledger.key_limits(key.id))).collect();
    let head = CustomerHead::new(operator.ledger(), &account, "/keys");
    HtmlPage(KeysPage { frame, head, form, once: new_submit_token(), made, rows, left_out })
}

/// `POST /operator/customers/{account}/keys`
pub(super) async fn create(Visit { operator, account }: Visit, form: Form) -> Response {
    match submit_key(&operator, account.id, &form).await {
        Ok(secret) => {
            let frame = operator.frame(HERE);
            let frame = match secret {
                Some(_) => frame,
                None => frame.with_flash(
                    FlashLevel::Error,
                    "This key was made before. It is not shown again.",
                ),
            };
            render(&operator, frame, Form::default(), account, secret).into_response()
        }
        Err(error) => {
            let (status, form, frame) = form::refuse(form, error, operator.frame(HERE));
            (status, render(&operator, frame, form, account, None)).into_response()
        }
    }
}

async fn submit_key(
    operator: &LoggedInOperator,
    account: AccountId,
    form: &Form,
) -> FormResult<Option<Secret>> {
    let limits = KeyLimits {
        rates: Rates {
            requests_per_minute: form.count("requests_per_minute")?,
            tokens_per_minute: form.count("tokens_per_minute")?,
            concurrent_requests: form.count("concurrent_requests")?,
        },
        spend_per_day: form.amount("spend_per_day")?,
        spend_per_month: form.amount("spend_per_month")?,
    };
    let new = NewKey {
        name: form::name(form, "name")?.to_owned(),
        models: models(form.text("models")),
        expires_at: form.time("expires_at")?,
        limits,
    };
    let (secret, _) = operator.by(form)?.create_key(account, new).await?.value;
    Ok(secret)
}

/// Names between commas or on lines; none for all models.
fn models(text: &str) -> Option<Vec<String>> {
    let names = text.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(str::to_owned).collect();
    (!names.is_empty()).then_some(names)
}

/// `POST /operator/customers/{account}/keys/{key}`: switches it off or on.
pub(super) async fn switch(
    Visit { operator, account }: Visit,
    Path((_, key)): Path<(String, String)>,
    form: Form,
) -> Response {
    let found = key.parse().ok().and_then(|id| operator.ledger().key_by_id(id));
    // A key of another account is not changed through this page, and nothing shows that it exists.
    let Some(key) = found.filter(|key| key.account == account.id) else {
        return operator.failed(ApiError::not_found("This customer has no such key."));
    };
    let disabled = form.text("to") != "on";
    match submit_switch(&operator, key.id, disabled, &form).await {
        Ok(()) => {
            let word = if disabled { "key-off" } else { "key-on" };
            done::redirect(&format!("/customers/{}/keys", account.id), word)
        }
        Err(error) => {
            let (status, form, frame) = form::refuse(form, error, operator.frame(HERE));
            (status, render(&operator, frame, form, account, None)).into_response()
        }
    }
}

async fn submit_switch(
    operator: &LoggedInOperator,
    key: KeyId,
    disabled: bool,
    form: &Form,
) -> FormResult<()> {
    let patch = KeyPatch { disabled: Some(disabled), ..KeyPatch::default() };
    operator.by(form)?.update_key(key, patch).await?;
    Ok(())
}
