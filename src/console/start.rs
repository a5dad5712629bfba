//! The first page: a key for who has none, and what to paste.

use askama::Template;
use axum::extract::State;
use axum::response::IntoResponse as _;

use super::address::GatewayUrl;
use super::customer::{Answer, Customer};
use super::fields::Fields;
use super::snippets::Snippets;
use super::{Console, keys, playground};
use crate::ledger::NewKey;
use crate::money::Nanousd;
use crate::web::{Frame, Page, show};

/// What stands for a key that cannot be shown again.
const PLACEHOLDER: &str = "YOUR_KEY";
/// What the first key is called.
const FIRST_KEY: &str = "My first key";

#[derive(Template)]
#[template(path = "customer_start.html")]
struct Start {
    frame: Frame,
    available: Nanousd,
    broke: bool,
    has_key: bool,
    suspended: bool,
    placeholder: &'static str,
    snippets: Snippets,
    once: String,
}

/// `GET /`
pub(super) async fn page(
    State(console): State<Console>,
    customer: Customer,
    url: GatewayUrl,
) -> Answer {
    let id = customer.account.id;
    let account = console.ledger.durable_account(id).await;
    let account = account.map_err(|error| customer.failed(&console, &error))?;
    let account = account.as_ref().unwrap_or(&customer.account);
    let keys = console.ledger.keys_of(id);
    let has_key = keys.iter().any(|key| !playground::is_its(key));
    let available = account.balance.available;
    let page = Start {
        frame: customer.frame(&console, ""),
        available,
        broke: available.is_zero(),
        has_key,
        suspended: customer.is_suspended(),
        placeholder: PLACEHOLDER,
        snippets: Snippets::of(&console.config.load(), &url.0, PLACEHOLDER),
        once: super::once(),
    };
    Ok(Page(page).into_response())
}

/// `POST /start`
pub(super) async fn first_key(
    State(console): State<Console>,
    customer: Customer,
    url: GatewayUrl,
    fields: Fields,
) -> Answer {
    let new = NewKey { name: FIRST_KEY.to_owned(), ..NewKey::default() };
    keys::make(&console, &customer, &url, (new, &fields)).await
}
