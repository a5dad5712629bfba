//! One customer: money and limits. What else there is of a customer has tabs of its own.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};

use super::access::{Operator, Visit};
use super::done;
use super::form::{Fit, Typed, new_once};
use crate::clock::UnixMs;
use crate::ledger::{Account, AccountId, AccountPatch, Balance, Ledger, RatesPatch};
use crate::limits::Rates;
use crate::money::Nanousd;
use crate::secret::Secret;
use crate::web::{Frame, NavItem, Page, show};

/// The way through the console that customers are on.
pub(super) const HERE: &str = "/customers";
/// What there is of each.
const TABS: &[NavItem] = &[
    NavItem { path: "", label: "Account" },
    NavItem { path: "/keys", label: "Keys" },
    NavItem { path: "/entries", label: "Entries" },
    NavItem { path: "/usage", label: "Usage" },
    NavItem { path: "/tasks", label: "Tasks" },
    NavItem { path: "/audit", label: "Audit" },
];
/// The longest note of a grant, in bytes: it stands before the id of the form in that of the grant.
const NOTE_BYTES_MAX: usize = 160;

/// What stands above all tabs of a customer.
pub(super) struct Head {
    pub(super) id: AccountId,
    pub(super) name: String,
    pub(super) created_at: UnixMs,
    pub(super) suspended: bool,
    pub(super) email: Option<String>,
    pub(super) tabs: &'static [NavItem],
    pub(super) tab: &'static str,
}

impl Head {
    pub(super) fn of(ledger: &Ledger, account: &Account, tab: &'static str) -> Self {
        Self {
            id: account.id,
            name: account.name.clone(),
            created_at: account.created_at,
            suspended: account.suspended,
            email: ledger.login(account.id).map(|login| login.email.clone()),
            tabs: TABS,
            tab,
        }
    }
}

#[derive(Template)]
#[template(path = "operator_customer.html")]
pub(super) struct Customer {
    frame: Frame,
    head: Head,
    typed: Typed,
    once: String,
    /// What it has, or why that cannot be told now.
    figures: Result<(Balance, Nanousd), String>,
    rates: TypedRates,
    /// The password that was just made.
    made: Option<Secret>,
}

/// Limits as they stand in their fields.
struct TypedRates {
    requests_per_minute: String,
    tokens_per_minute: String,
    concurrent_requests: String,
}

impl From<Rates> for TypedRates {
    fn from(rates: Rates) -> Self {
        let text = |limit: Option<std::num::NonZeroU32>| {
            limit.map(|limit| limit.to_string()).unwrap_or_default()
        };
        Self {
            requests_per_minute: text(rates.requests_per_minute),
            tokens_per_minute: text(rates.tokens_per_minute),
            concurrent_requests: text(rates.concurrent_requests),
        }
    }
}

/// `GET /operator/customers/{account}`
pub(super) async fn page(Visit { operator, account }: Visit) -> Response {
    let frame = operator.frame(HERE);
    let page = shown(&operator, frame, Typed::default(), (account, None)).await;
    let is_whole = page.0.figures.is_ok();
    let status = if is_whole { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, page).into_response()
}

/// The page of a customer; without figures where they cannot be read, since a password is shown once.
pub(super) async fn shown(
    operator: &Operator,
    frame: Frame,
    typed: Typed,
    (account, made): (Account, Option<Secret>),
) -> Page<Customer> {
    let figures = match operator.ledger().durable_account(account.id).await {
        Ok(now) => {
            let now = now.as_ref().unwrap_or(&account);
            Ok((now.balance, now.written_off))
        }
        Err(error) => Err(error.to_string()),
    };
    Page(Customer {
        frame,
        head: Head::of(operator.ledger(), &account, ""),
        typed,
        once: new_once(),
        figures,
        rates: operator.ledger().account_rates(account.id).into(),
        made,
    })
}

/// On to the customer's page if it was done; the form once more if not.
async fn ended(
    operator: &Operator,
    account: Account,
    typed: Typed,
    (came_of_it, word): (Fit<()>, &'static str),
) -> Response {
    match came_of_it {
        Ok(()) => done::then(&format!("/customers/{}", account.id), word),
        Err(unfit) => {
            let (status, typed, frame) = typed.refused(unfit, operator.frame(HERE));
            (status, shown(operator, frame, typed, (account, None)).await).into_response()
        }
    }
}

/// `POST /operator/customers/{account}/grants`
pub(super) async fn grant(Visit { operator, account }: Visit, typed: Typed) -> Response {
    let came_of_it = granted(&operator, account.id, &typed).await;
    ended(&operator, account, typed, (came_of_it, "granted")).await
}

async fn granted(operator: &Operator, account: AccountId, typed: &Typed) -> Fit<()> {
    let amount = typed.amount("amount")?;
    let id = noted(typed.line("note", NOTE_BYTES_MAX)?, typed.once()?);
    operator.by(typed)?.grant(account, &id, amount).await?;
    Ok(())
}

/// The id of a movement of money: what the operator notes, and what makes the form count once.
pub(super) fn noted(note: &str, once: &str) -> String {
    if note.is_empty() { once.to_owned() } else { format!("{note} · {once}") }
}

/// `POST /operator/customers/{account}/suspend`: suspends it or takes it up again.
pub(super) async fn suspend(Visit { operator, account }: Visit, typed: Typed) -> Response {
    let suspended = typed.text("to") != "resumed";
    let came_of_it = suspended_now(&operator, account.id, suspended, &typed).await;
    let word = if suspended { "suspended" } else { "resumed" };
    ended(&operator, account, typed, (came_of_it, word)).await
}

async fn suspended_now(
    operator: &Operator,
    account: AccountId,
    suspended: bool,
    typed: &Typed,
) -> Fit<()> {
    let patch = AccountPatch { suspended: Some(suspended), ..AccountPatch::default() };
    operator.by(typed)?.update_account(account, patch).await?;
    Ok(())
}

/// `POST /operator/customers/{account}/name`
pub(super) async fn rename(Visit { operator, account }: Visit, typed: Typed) -> Response {
    let came_of_it = renamed(&operator, account.id, &typed).await;
    ended(&operator, account, typed, (came_of_it, "renamed")).await
}

async fn renamed(operator: &Operator, account: AccountId, typed: &Typed) -> Fit<()> {
    let name = typed.name("name")?.to_owned();
    let patch = AccountPatch { name: Some(name), ..AccountPatch::default() };
    operator.by(typed)?.update_account(account, patch).await?;
    Ok(())
}

/// `POST /operator/customers/{account}/limits`
pub(super) async fn limit(Visit { operator, account }: Visit, typed: Typed) -> Response {
    let came_of_it = limited(&operator, account.id, &typed).await;
    ended(&operator, account, typed, (came_of_it, "limited")).await
}

async fn limited(operator: &Operator, account: AccountId, typed: &Typed) -> Fit<()> {
    let rates = RatesPatch {
        requests_per_minute: Some(typed.count("requests_per_minute")?),
        tokens_per_minute: Some(typed.count("tokens_per_minute")?),
        concurrent_requests: Some(typed.count("concurrent_requests")?),
    };
    let patch = AccountPatch { rates, ..AccountPatch::default() };
    operator.by(typed)?.update_account(account, patch).await?;
    Ok(())
}
