//! Keys: listed, made and shown once, changed, switched off and on, and revoked.
//!
//! The ledger keeps every key that there ever was, so that old charges name one. A revoked key
//! ([`Key::is_revoked`]) is refused as one that never was; the console changes it no more.

mod form;

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Deserialize;

use super::Console;
use super::address::GatewayUrl;
use super::customer::{Answer, Customer};
use super::fields::Fields;
use super::snippets::Snippets;
use crate::clock::UnixMs;
use crate::ledger::{Key, KeyId, KeyLimits, KeyPatch, LedgerError, NewKey};
use crate::web::{Frame, Page, Tone, show};
use form::{KeyForm, Known};

/// Keys on one page of the list.
const PAGE_KEYS: usize = 50;
/// Keys of one account that can be in use at one time: one for each program, not one for each user of
/// it.
const LIVE_MAX: usize = 100;
/// Keys that one account can ever make: the ledger holds all of them in memory, some 300 bytes each.
const EVER_MAX: usize = 10_000;

/// What a key is good for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Works,
    Off,
    Ended,
}

impl Standing {
    fn of(key: &Key, now: UnixMs) -> Self {
        match (key.is_expired(now), key.disabled) {
            (true, _) => Self::Ended,
            (false, true) => Self::Off,
            (false, false) => Self::Works,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Off => "switched off",
            Self::Ended => "ended",
        }
    }

    fn tone(self) -> &'static str {
        match self {
            Self::Works => "good",
            Self::Off => "warn",
            Self::Ended => "bad",
        }
    }
}

/// One key in the list.
struct Row {
    id: KeyId,
    name: String,
    models: String,
    limits: Vec<String>,
    created: String,
    ends: String,
    used: String,
    standing: Standing,
}

#[derive(Template)]
#[template(path = "customer_keys.html")]
struct Keys {
    frame: Frame,
    rows: Vec<Row>,
    older: Option<String>,
    suspended: bool,
}

/// Which part of the list, and what was done before.
#[derive(Default, Deserialize)]
pub(super) struct Wanted {
    /// Only keys that were made before this one.
    before: Option<String>,
}

/// `GET /keys`, newest first.
pub(super) async fn list(
    State(console): State<Console>,
    customer: Customer,
    Query(wanted): Query<Wanted>,
) -> Answer {
    let now = UnixMs::now();
    let mut keys = console.ledger.keys_of(customer.account.id);
    // A key of the playground that has ended is of no use to anybody.
    keys.retain(|key| !(super::playground::is_its(key) && key.is_expired(now)));
    keys.reverse();
    if let Some(before) = &wanted.before {
        let place = before.parse().ok().and_then(|id| keys.iter().position(|key| key.id == id));
        let place = place.ok_or_else(|| customer.nowhere(&console))?;
        keys.drain(..=place);
    }
    let has_older = keys.len() > PAGE_KEYS;
    keys.truncate(PAGE_KEYS);
    let used = console.ledger.keys_last_used(customer.account.id).await;
    let used = used.map_err(|error| customer.failed(&console, &error))?;
    let rows: Vec<Row> = keys.iter().map(|key| row(&console, key, &used, now)).collect();
    let older = rows.last().filter(|_| has_older);
    let older = older.map(|row| console.at(&format!("/keys?before={}", row.id)));
    let suspended = customer.is_suspended();
    Ok(Page(Keys { frame: customer.frame(&console, "/keys"), rows, older, suspended })
        .into_response())
}

fn row(console: &Console, key: &Key, used: &HashMap<KeyId, UnixMs>, now: UnixMs) -> Row {
    Row {
        id: key.id,
        name: key.name.clone(),
        models: match key.models.as_deref() {
            None => "all".to_owned(),
            Some([]) => "none".to_owned(),
            Some([one]) => one.clone(),
            Some([one, rest @ ..]) => format!("{one} and {} more", rest.len()),
        },
        limits: limits_in_words(&console.ledger.key_limits(key.id)),
        created: show::day(&key.created_at),
        ends: key.expires_at.as_ref().map_or("never".to_owned(), show::time),
        used: used.get(&key.id).map_or("never".to_owned(), |at| show::ago(at, &now)),
        standing: Standing::of(key, now),
    }
}

fn limits_in_words(limits: &KeyLimits) -> Vec<String> {
    let count = |count: std::num::NonZeroU32| show::count(&u64::from(count.get()));
    let rates = limits.rates;
    [
        rates.requests_per_minute.map(|of| format!("{} requests a minute", count(of))),
        rates.tokens_per_minute.map(|of| format!("{} tokens a minute", count(of))),
        rates.concurrent_requests.map(|of| format!("{} at one time", count(of))),
        limits.spend_per_day.map(|of| format!("{} a day", show::money(&of))),
        limits.spend_per_month.map(|of| format!("{} a month", show::money(&of))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[derive(Template)]
#[template(path = "customer_key_new.html")]
struct NewKeyPage {
    frame: Frame,
    form: KeyForm,
    known: Known,
    once: String,
}

impl NewKeyPage {
    fn of(console: &Console, customer: &Customer, form: KeyForm) -> Self {
        let known = Known::of(&console.config.load());
        Self { frame: customer.frame(console, "/keys"), form, known, once: super::once() }
    }
}

/// `GET /keys/new`
pub(super) async fn new(State(console): State<Console>, customer: Customer) -> Response {
    Page(NewKeyPage::of(&console, &customer, KeyForm::default())).into_response()
}

/// `POST /keys`
pub(super) async fn create(
    State(console): State<Console>,
    customer: Customer,
    url: GatewayUrl,
    fields: Fields,
) -> Answer {
    let mut form = KeyForm::of(&fields);
    let new = match form.read(None, UnixMs::now()) {
        Ok(new) => new,
        Err(()) => {
            let page = Page(NewKeyPage::of(&console, &customer, form));
            return Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response());
        }
    };
    make(&console, &customer, &url, (new, &fields)).await
}

#[derive(Template)]
#[template(path = "customer_key_made.html")]
struct Made {
    frame: Frame,
    name: String,
    key: String,
    snippets: Snippets,
}

/// Makes a key and shows it, this once. A form that is sent again makes no second one.
pub(super) async fn make(
    console: &Console,
    customer: &Customer,
    url: &GatewayUrl,
    (new, fields): (NewKey, &Fields),
) -> Answer {
    let refused = |status: StatusCode, text: &str| {
        let frame = customer.frame(console, "/keys").saying(Tone::Bad, text);
        let form = KeyForm::of(fields);
        let known = Known::of(&console.config.load());
        let page = NewKeyPage { frame, form, known, once: super::once() };
        (status, Page(page)).into_response()
    };
    if let Some(why) = why_no_key(console, customer) {
        return Ok(refused(StatusCode::FORBIDDEN, why));
    }
    if !console.key_makings.may_try(None, Some(&customer.account.id.to_string())) {
        let text = "These are many keys in a short time. Wait half a minute and try again.";
        return Ok(refused(StatusCode::TOO_MANY_REQUESTS, text));
    }
    let name = new.name.clone();
    let made = customer.create_key(console, new, fields.text("once")).await;
    match made.map_err(|error| customer.failed(console, &error))? {
        Some(secret) => {
            let key = secret.expose().to_owned();
            let snippets = Snippets::of(&console.config.load(), &url.0, &key);
            let frame = customer.frame(console, "/keys");
            Ok(Page(Made { frame, name, key, snippets }).into_response())
        }
        None => Ok(refused(
            StatusCode::CONFLICT,
            "This form was sent before, and its key was shown then. If you do not have it, revoke \
             it in the list of keys and make another one here.",
        )),
    }
}

/// Why this account can make no key now.
pub(super) fn why_no_key(console: &Console, customer: &Customer) -> Option<&'static str> {
    if customer.is_suspended() {
        return Some("The account is suspended: it can make no keys.");
    }
    let (keys, now) = (console.ledger.keys_of(customer.account.id), UnixMs::now());
    if keys.len() >= EVER_MAX {
        return Some("The account has made so many keys that it can make no more.");
    }
    let live = keys.iter().filter(|key| Standing::of(key, now) != Standing::Ended).count();
    let text = "The account has 100 keys. Revoke one that is no longer used, and try again.";
    (live >= LIVE_MAX).then_some(text)
}

#[derive(Template)]
#[template(path = "customer_key.html")]
struct KeyPage {
    frame: Frame,
    id: KeyId,
    name: String,
    standing: Standing,
    row: Row,
    form: KeyForm,
    known: Known,
}

impl KeyPage {
    fn of(console: &Console, customer: &Customer, key: &Key, form: KeyForm) -> Self {
        let now = UnixMs::now();
        let row = row(console, key, &HashMap::new(), now);
        Self {
            frame: customer.frame(console, "/keys"),
            id: key.id,
            name: key.name.clone(),
            standing: row.standing,
            row,
            form,
            known: Known::of(&console.config.load()),
        }
    }
}

/// What was done before the page was asked for again.
#[derive(Default, Deserialize)]
pub(super) struct Before {
    done: Option<String>,
}

/// `GET /keys/{key}`
pub(super) async fn show(
    State(console): State<Console>,
    customer: Customer,
    Path(id): Path<String>,
    Query(before): Query<Before>,
) -> Answer {
    let key = find(&console, &customer, &id).await?;
    let form = KeyForm::filled(&key, &console.ledger.key_limits(key.id));
    let mut page = KeyPage::of(&console, &customer, &key, form);
    let done = match before.done.as_deref() {
        Some("saved") => "The key was changed. It counts for calls that begin from now on.",
        Some("off") => "The key is switched off. Calls with it are refused.",
        Some("on") => "The key is switched on again.",
        Some("revoked") => "The key is revoked. Calls with it are refused for good.",
        _ => return Ok(Page(page).into_response()),
    };
    page.frame = page.frame.saying(Tone::Good, done);
    Ok(Page(page).into_response())
}

/// The key of this id, if it is the customer's.
async fn find(console: &Console, customer: &Customer, id: &str) -> Answer<Arc<Key>> {
    let key = id.parse().ok().and_then(|id| console.ledger.key_by_id(id));
    let own = key.filter(|key| key.account == customer.account.id);
    own.ok_or_else(|| customer.nowhere(console))
}

/// `POST /keys/{key}`
pub(super) async fn save(
    State(console): State<Console>,
    customer: Customer,
    Path(id): Path<String>,
    fields: Fields,
) -> Answer {
    let key = find(&console, &customer, &id).await?;
    let mut form = KeyForm::of(&fields);
    match form.read(Some(&key), UnixMs::now()) {
        Ok(new) => change(&console, &customer, &key, (form::patch(new), "saved")).await,
        Err(()) => {
            let page = Page(KeyPage::of(&console, &customer, &key, form));
            Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response())
        }
    }
}

/// `POST /keys/{key}/off`
pub(super) async fn switch_off(
    State(console): State<Console>,
    customer: Customer,
    Path(id): Path<String>,
) -> Answer {
    let key = find(&console, &customer, &id).await?;
    let patch = KeyPatch { disabled: Some(true), ..KeyPatch::default() };
    change(&console, &customer, &key, (patch, "off")).await
}

/// `POST /keys/{key}/on`
pub(super) async fn switch_on(
    State(console): State<Console>,
    customer: Customer,
    Path(id): Path<String>,
) -> Answer {
    let key = find(&console, &customer, &id).await?;
    let patch = KeyPatch { disabled: Some(false), ..KeyPatch::default() };
    change(&console, &customer, &key, (patch, "on")).await
}

/// `POST /keys/{key}/revoke`
pub(super) async fn revoke(
    State(console): State<Console>,
    customer: Customer,
    Path(id): Path<String>,
) -> Answer {
    let key = find(&console, &customer, &id).await?;
    let now = Some(UnixMs::now());
    let patch = KeyPatch { disabled: Some(true), expires_at: Some(now), ..KeyPatch::default() };
    change(&console, &customer, &key, (patch, "revoked")).await
}

/// Changes a key that has not ended, and shows it again.
async fn change(
    console: &Console,
    customer: &Customer,
    key: &Key,
    (patch, done): (KeyPatch, &str),
) -> Answer {
    let again = |done: &str| {
        let address = console.at(&format!("/keys/{}?done={done}", key.id));
        Redirect::to(&address).into_response()
    };
    // Whoever sends the form of a key that has ended is shown that it has.
    if Standing::of(key, UnixMs::now()) == Standing::Ended {
        return Ok(again("ended"));
    }
    match customer.update_key(console, key.id, patch).await {
        Ok(()) => Ok(again(done)),
        Err(LedgerError::UnknownKey(_)) => Err(customer.nowhere(console)),
        Err(error) => Err(customer.failed(console, &error)),
    }
}
