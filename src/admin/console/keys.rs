//! The keys of a customer: made (the key is shown once), changed, switched off and on.

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};

use super::access::{Operator, Visit};
use super::customer::{HERE, Head};
use super::done;
use super::form::{Fit, Typed, new_once};
use crate::admin::error::ApiError;
use crate::clock::UnixMs;
use crate::ledger::{Account, AccountId, Key, KeyId, KeyLimits, KeyPatch, NewKey};
use crate::limits::Rates;
use crate::secret::Secret;
use crate::web::{Frame, Page, Tone, show};

/// Keys that are listed: customers have a handful, and a page stays one page.
const LISTED_MAX: usize = 200;

#[derive(Template)]
#[template(path = "operator_keys.html")]
struct Keys {
    frame: Frame,
    head: Head,
    typed: Typed,
    once: String,
    /// The key that was just made.
    made: Option<Secret>,
    rows: Vec<Row>,
    left_out: usize,
}

struct Row {
    id: KeyId,
    name: String,
    models: String,
    expires_at: Option<UnixMs>,
    expired: bool,
    disabled: bool,
    created_at: UnixMs,
    limits: String,
}

impl Row {
    fn of(key: &Key, limits: KeyLimits) -> Self {
        Self {
            id: key.id,
            name: key.name.clone(),
            models: key.models.as_ref().map_or("all".to_owned(), |models| models.join(", ")),
            expires_at: key.expires_at,
            expired: key.is_expired(UnixMs::now()),
            disabled: key.disabled,
            created_at: key.created_at,
            limits: in_words(&limits),
        }
    }
}

fn in_words(limits: &KeyLimits) -> String {
    let rate = |limit: Option<std::num::NonZeroU32>, what: &str| {
        limit.map(|limit| format!("{} {what}", show::count(&limit.get().into())))
    };
    let money =
        |limit: Option<_>, what: &str| limit.map(|limit| format!("{} {what}", show::money(&limit)));
    let all = [
        rate(limits.rates.requests_per_minute, "requests a minute"),
        rate(limits.rates.tokens_per_minute, "tokens a minute"),
        rate(limits.rates.concurrent_requests, "at one time"),
        money(limits.spend_per_day, "a day"),
        money(limits.spend_per_month, "a month"),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `GET /operator/customers/{account}/keys`
pub(super) async fn page(Visit { operator, account }: Visit) -> Response {
    let frame = operator.frame(HERE);
    shown(&operator, frame, Typed::default(), (account, None)).into_response()
}

fn shown(
    operator: &Operator,
    frame: Frame,
    typed: Typed,
    (account, made): (Account, Option<Secret>),
) -> Page<Keys> {
    let ledger = operator.ledger();
    let keys = ledger.keys_of(account.id);
    let left_out = keys.len().saturating_sub(LISTED_MAX);
    let newest = keys.iter().rev().take(LISTED_MAX);
    let rows = newest.map(|key| Row::of(key, ledger.key_limits(key.id))).collect();
    let head = Head::of(operator.ledger(), &account, "/keys");
    Page(Keys { frame, head, typed, once: new_once(), made, rows, left_out })
}

/// `POST /operator/customers/{account}/keys`
pub(super) async fn create(Visit { operator, account }: Visit, typed: Typed) -> Response {
    match made(&operator, account.id, &typed).await {
        Ok(secret) => {
            let frame = operator.frame(HERE);
            let frame = match secret {
                Some(_) => frame,
                None => frame.saying(Tone::Bad, "This key was made before. It is not shown again."),
            };
            shown(&operator, frame, Typed::default(), (account, secret)).into_response()
        }
        Err(unfit) => {
            let (status, typed, frame) = typed.refused(unfit, operator.frame(HERE));
            (status, shown(&operator, frame, typed, (account, None))).into_response()
        }
    }
}

async fn made(operator: &Operator, account: AccountId, typed: &Typed) -> Fit<Option<Secret>> {
    let limits = KeyLimits {
        rates: Rates {
            requests_per_minute: typed.count("requests_per_minute")?,
            tokens_per_minute: typed.count("tokens_per_minute")?,
            concurrent_requests: typed.count("concurrent_requests")?,
        },
        spend_per_day: typed.amount_or_none("spend_per_day")?,
        spend_per_month: typed.amount_or_none("spend_per_month")?,
    };
    let new = NewKey {
        name: typed.name("name")?.to_owned(),
        models: models(typed.text("models")),
        expires_at: typed.time("expires_at")?,
        limits,
    };
    let (secret, _) = operator.by(typed)?.create_key(account, new).await?.value;
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
    typed: Typed,
) -> Response {
    let known = key.parse().ok().and_then(|id| operator.ledger().key_by_id(id));
    let Some(key) = known.filter(|key| key.account == account.id) else {
        return operator.failed(ApiError::not_found("This customer has no such key."));
    };
    let disabled = typed.text("to") != "on";
    match switched(&operator, key.id, disabled, &typed).await {
        Ok(()) => {
            let word = if disabled { "key-off" } else { "key-on" };
            done::then(&format!("/customers/{}/keys", account.id), word)
        }
        Err(unfit) => {
            let (status, typed, frame) = typed.refused(unfit, operator.frame(HERE));
            (status, shown(&operator, frame, typed, (account, None))).into_response()
        }
    }
}

async fn switched(operator: &Operator, key: KeyId, disabled: bool, typed: &Typed) -> Fit<()> {
    let patch = KeyPatch { disabled: Some(disabled), ..KeyPatch::default() };
    operator.by(typed)?.update_key(key, patch).await?;
    Ok(())
}
