//! Keys: listed, made and shown once, changed, switched off and on, and revoked.
//!
//! The ledger keeps every key that there ever was, so that old charges name one. A revoked key
//! ([`Key::is_revoked`]) is refused as one that never was; the console changes it no more.

mod form;
mod list;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Deserialize;

use super::CustomerConsole;
use super::address::GatewayUrl;
use super::customer::{LoggedInCustomer, PageResult};
use super::snippets::Snippets;
use form::{KeyForm, ListedModels};
use list::{KeyRow, KeyState};
use tollgate_ledger::{Key, KeyId, KeyPatch, LedgerError, NewKey};
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::{DoneMessages, FlashLevel, Form, HtmlPage, PageFrame, new_submit_token};

pub(super) use list::page as list;

/// Maximum number of active keys of one account: one per program, not one per user of it.
const LIVE_MAX: usize = 100;
/// Keys that one account can ever make: the ledger holds all of them in memory, some 300 bytes each.
const EVER_MAX: usize = 10_000;

#[derive(Template)]
#[template(path = "customer_key_new.html")]
struct NewKeyPage {
    frame: PageFrame,
    form: KeyForm,
    listed: ListedModels,
    once: String,
}

impl NewKeyPage {
    fn new(console: &CustomerConsole, customer: &LoggedInCustomer, form: KeyForm) -> Self {
        let listed = ListedModels::from_config(&console.config.load());
        Self { frame: customer.frame(console, "/keys"), form, listed, once: new_submit_token() }
    }
}

/// `GET /keys/new`
pub(super) async fn new(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
) -> Response {
    HtmlPage(NewKeyPage::new(&console, &customer, KeyForm::default())).into_response()
}

/// `POST /keys`
pub(super) async fn create(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    url: GatewayUrl,
    sent: Form,
) -> PageResult {
    let mut form = KeyForm::from_sent(&sent);
    let new = match form.read(None, UnixMs::now()) {
        Ok(new) => new,
        Err(()) => {
            let page = HtmlPage(NewKeyPage::new(&console, &customer, form));
            return Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response());
        }
    };
    make(&console, &customer, &url, new, &sent).await
}

#[derive(Template)]
#[template(path = "customer_key_made.html")]
struct KeyMadePage {
    frame: PageFrame,
    name: String,
    key: String,
    snippets: Snippets,
}

/// Creates a key and shows it once. Sending the form again creates no second key.
pub(super) async fn make(
    console: &CustomerConsole,
    customer: &LoggedInCustomer,
    url: &GatewayUrl,
    new: NewKey,
    sent: &Form,
) -> PageResult {
    let refused = |status: StatusCode, text: &str| {
        let frame = customer.frame(console, "/keys").with_flash(FlashLevel::Error, text);
        let form = KeyForm::from_sent(sent);
        let listed = ListedModels::from_config(&console.config.load());
        let page = NewKeyPage { frame, form, listed, once: new_submit_token() };
        (status, HtmlPage(page)).into_response()
    };
    if let Some(why) = why_no_key(console, customer) {
        return Ok(refused(StatusCode::FORBIDDEN, why));
    }
    if !console.key_makings.take(customer.account.id) {
        let text = "These are many keys in a short time. Wait half a minute and try again.";
        return Ok(refused(StatusCode::TOO_MANY_REQUESTS, text));
    }
    let name = new.name.clone();
    let made = customer.create_key(console, new, sent).await;
    match made.map_err(|error| customer.failed(console, &error))? {
        Some(secret) => {
            let key = secret.expose().to_owned();
            let snippets = Snippets::new(&console.config.load(), &url.0, &key);
            let frame = customer.frame(console, "/keys");
            Ok(HtmlPage(KeyMadePage { frame, name, key, snippets }).into_response())
        }
        None => Ok(refused(
            StatusCode::CONFLICT,
            "This form was sent before, and its key was shown then. If you do not have it, revoke \
             it in the list of keys and make another one here.",
        )),
    }
}

/// Reason why this account can make no key now.
pub(super) fn why_no_key(
    console: &CustomerConsole,
    customer: &LoggedInCustomer,
) -> Option<&'static str> {
    if customer.is_suspended() {
        return Some("The account is suspended: it can make no keys.");
    }
    let (keys, now) = (console.ledger.keys_of(customer.account.id), UnixMs::now());
    if keys.len() >= EVER_MAX {
        return Some("The account has made so many keys that it can make no more.");
    }
    // Ended keys stay in the ledger for ever, so they may not count towards the keys in use.
    let live = keys.iter().filter(|key| KeyState::from_key(key, now) != KeyState::Ended).count();
    let text = "The account has 100 keys. Revoke one that is no longer used, and try again.";
    (live >= LIVE_MAX).then_some(text)
}

#[derive(Template)]
#[template(path = "customer_key.html")]
struct KeyPage {
    frame: PageFrame,
    id: KeyId,
    name: String,
    standing: KeyState,
    row: KeyRow,
    form: KeyForm,
    listed: ListedModels,
}

impl KeyPage {
    fn new(
        console: &CustomerConsole,
        customer: &LoggedInCustomer,
        key: &Key,
        form: KeyForm,
    ) -> Self {
        let now = UnixMs::now();
        let row = KeyRow::new(console, key, None, now);
        Self {
            frame: customer.frame(console, "/keys"),
            id: key.id,
            name: key.name.clone(),
            standing: row.standing,
            row,
            form,
            listed: ListedModels::from_config(&console.config.load()),
        }
    }
}

/// Results of a key's forms.
const DONE: DoneMessages = DoneMessages(&[
    ("saved", "The key was changed. It counts for calls that begin from now on."),
    ("off", "The key is switched off. Calls with it are refused."),
    ("on", "The key is switched on again."),
    ("revoked", "The key is revoked. Calls with it are refused for good."),
]);

/// Result of the previous form, from the address.
#[derive(Default, Deserialize)]
pub(super) struct DoneQuery {
    done: Option<String>,
}

/// `GET /keys/{key}`
pub(super) async fn show(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Path(id): Path<String>,
    Query(before): Query<DoneQuery>,
) -> PageResult {
    let key = find(&console, &customer, &id).await?;
    let form = KeyForm::from_key(&key, &console.ledger.key_limits(key.id));
    let mut page = KeyPage::new(&console, &customer, &key, form);
    if let Some(text) = before.done.as_deref().and_then(|word| DONE.text(word)) {
        page.frame = page.frame.with_flash(FlashLevel::Success, text);
    }
    Ok(HtmlPage(page).into_response())
}

/// The key with this id, if it belongs to the customer.
async fn find(
    console: &CustomerConsole,
    customer: &LoggedInCustomer,
    id: &str,
) -> PageResult<Arc<Key>> {
    let key = id.parse().ok().and_then(|id| console.ledger.key_by_id(id));
    // 404 and not 403: nothing tells whether another account's key exists.
    let own = key.filter(|key| key.account == customer.account.id);
    own.ok_or_else(|| customer.nowhere(console))
}

/// `POST /keys/{key}`
pub(super) async fn save(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Path(id): Path<String>,
    sent: Form,
) -> PageResult {
    let key = find(&console, &customer, &id).await?;
    let mut form = KeyForm::from_sent(&sent);
    match form.read(Some(&key), UnixMs::now()) {
        Ok(_) if !console.changes.take(customer.account.id) => {
            Ok(too_many_changes(KeyPage::new(&console, &customer, &key, form)))
        }
        Ok(new) => change(&console, &customer, &key, form::patch(new), "saved").await,
        Err(()) => {
            let page = HtmlPage(KeyPage::new(&console, &customer, &key, form));
            Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response())
        }
    }
}

/// `POST /keys/{key}/off`
pub(super) async fn switch_off(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Path(id): Path<String>,
) -> PageResult {
    let key = find(&console, &customer, &id).await?;
    if key.disabled {
        return Ok(DONE.redirect(&console.at(&format!("/keys/{id}")), "off"));
    }
    let patch = KeyPatch { disabled: Some(true), ..KeyPatch::default() };
    change(&console, &customer, &key, patch, "off").await
}

/// `POST /keys/{key}/on`
pub(super) async fn switch_on(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Path(id): Path<String>,
) -> PageResult {
    let key = find(&console, &customer, &id).await?;
    // Switching off is never refused: it is done once before this is done again.
    if !console.changes.take(customer.account.id) {
        let form = KeyForm::from_key(&key, &console.ledger.key_limits(key.id));
        return Ok(too_many_changes(KeyPage::new(&console, &customer, &key, form)));
    }
    let patch = KeyPatch { disabled: Some(false), ..KeyPatch::default() };
    change(&console, &customer, &key, patch, "on").await
}

/// `POST /keys/{key}/revoke`
pub(super) async fn revoke(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Path(id): Path<String>,
) -> PageResult {
    let key = find(&console, &customer, &id).await?;
    let now = Some(UnixMs::now());
    let patch = KeyPatch { disabled: Some(true), expires_at: Some(now), ..KeyPatch::default() };
    change(&console, &customer, &key, patch, "revoked").await
}

fn too_many_changes(mut page: KeyPage) -> Response {
    page.frame = page.frame.with_flash(FlashLevel::Error, super::TOO_MANY_CHANGES);
    (StatusCode::TOO_MANY_REQUESTS, HtmlPage(page)).into_response()
}

/// Changes a key that has not ended, and shows it again.
async fn change(
    console: &CustomerConsole,
    customer: &LoggedInCustomer,
    key: &Key,
    patch: KeyPatch,
    done: &'static str,
) -> PageResult {
    let address = console.at(&format!("/keys/{}", key.id));
    // Whoever sends the form of a key that has ended is shown that it has.
    if KeyState::from_key(key, UnixMs::now()) == KeyState::Ended {
        return Ok(Redirect::to(&format!("{address}?done=ended")).into_response());
    }
    match customer.update_key(console, key.id, patch).await {
        Ok(()) => Ok(DONE.redirect(&address, done)),
        Err(LedgerError::UnknownKey(_)) => Err(customer.nowhere(console)),
        Err(error) => Err(customer.failed(console, &error)),
    }
}
