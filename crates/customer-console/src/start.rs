//! The first page: a key for who has none, and what to paste.

use askama::Template;
use axum::extract::State;
use axum::response::IntoResponse as _;

use super::address::GatewayUrl;
use super::customer::{LoggedInCustomer, PageResult};
use super::playground_keys::is_playground_key;
use super::snippets::Snippets;
use super::{CustomerConsole, keys};
use tollgate_ledger::NewKey;
use tollgate_money::money::Nanousd;
use tollgate_web_kit::{Form, HtmlPage, PageFrame, new_submit_token, show};

/// Placeholder of a key that cannot be shown again.
const PLACEHOLDER: &str = "YOUR_KEY";
/// Name of the first key.
const FIRST_KEY: &str = "My first key";

#[derive(Template)]
#[template(path = "customer_start.html")]
struct StartPage {
    frame: PageFrame,
    available: Nanousd,
    debt: Nanousd,
    credit_limit: Nanousd,
    credit_used: Nanousd,
    broke: bool,
    has_key: bool,
    suspended: bool,
    placeholder: &'static str,
    snippets: Snippets,
    once: String,
}

/// `GET /`
pub(super) async fn page(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    url: GatewayUrl,
) -> PageResult {
    let id = customer.account.id;
    let account = console.ledger.durable_account(id).await;
    let account = account.map_err(|error| customer.failed(&console, &error))?;
    let account = account.as_ref().unwrap_or(&customer.account);
    let keys = console.ledger.keys_of(id);
    let has_key = keys.iter().any(|key| !is_playground_key(key));
    let available = account.balance.available;
    let page = StartPage {
        frame: customer.frame(&console, ""),
        available,
        debt: account.balance.debt,
        credit_limit: account.balance.credit,
        credit_used: account.balance.credit_used(),
        // With a debt, the page speaks of that instead.
        broke: available.is_zero() && account.balance.debt.is_zero(),
        has_key,
        suspended: customer.is_suspended(),
        placeholder: PLACEHOLDER,
        snippets: Snippets::new(&console.config.load(), &url.0, PLACEHOLDER),
        once: new_submit_token(),
    };
    Ok(HtmlPage(page).into_response())
}

/// `POST /start`
pub(super) async fn first_key(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    url: GatewayUrl,
    sent: Form,
) -> PageResult {
    let new = NewKey { name: FIRST_KEY.to_owned(), ..NewKey::default() };
    keys::make(&console, &customer, &url, new, &sent).await
}
